"""Ray in this process: one connection at a time, shared by all open clusters, and closed with the last of them."""

import importlib
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from attrs import frozen

from .....core.errors import message
from ..addresses import parted
from ..interface import EngineError
from ..local.member_program import describe_failure
from ..security import ray_security
from ..version import installed
from .nodes import RayNode, head, ray_variables

LOOK = 0.2  # seconds between two checks of the head node
VARIABLE = "RAY_ADDRESS"
REACH = 10.0  # seconds in which an existing cluster must be reached
START = 120.0  # seconds in which Ray's processes must run


@frozen
class RayRuntime:
    """A connection to Ray."""

    ray: Any  # the module
    node: RayNode  # the head node, on this machine; a placeholder if `given`
    given: bool  # RAY_ADDRESS names a cluster that was started by others
    token: str  # required by our own Ray for every connection
    prints: Callable[..., None]  # Ray's own function that prints its reports


Lost = Callable[[str], None]  # (why): Ray has ended


class _SharedRay:
    """The current connection, and the callbacks for its loss."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.guests: list[Lost] = []
        self.home: RayRuntime | None = None

    def take(self, store: int, lost: Lost) -> RayRuntime:
        """Return the connection, opened if there is none: to the cluster of RAY_ADDRESS, or a new Ray with that object store.

        Raises: EngineError.
        """
        with self.lock:
            given = os.environ.get(VARIABLE, "").removeprefix("local")  # in Ray, "local" means a new cluster
            if self.home is not None and self.home.given != bool(given):
                got, remedy = "in use by another cluster", f"stop that first, or let {VARIABLE} be for both as it is"
                raise EngineError(message("engine ray: Ray", got=got, wanted="that of this one", remedy=remedy))
            if self.home is None:
                self.home = _opened(store, given)
                threading.Thread(target=self.watch, args=(self.home,), name="purestep-ray-home", daemon=True).start()
            self.guests.append(lost)
            return self.home

    def leave(self, home: RayRuntime, lost: Lost) -> None:
        """Remove one user of the connection; the last one closes it. A second call does nothing."""
        with self.lock:
            if self.home is home and lost in self.guests:
                self.guests.remove(lost)
                if not self.guests:
                    self.home = None
                    _closed(home)

    def watch(self, home: RayRuntime) -> None:
        """Close the connection if its node ends by itself: Ray ends this process a minute after its head node."""
        while home.node.running():
            time.sleep(LOOK)
        with self.lock:
            if self.home is home:
                guests, self.guests, self.home = self.guests, [], None
                for lost in guests:
                    lost("Ray has ended")
                _closed(home)


shared = _SharedRay()


def _opened(store: int, given: str) -> RayRuntime:
    """Start Ray here, unless a cluster is given, and connect to it. Raises: EngineError."""
    installed("ray")
    if given:
        ray_security()  # refuses keys and tokens that others can read
    token = "" if given else secrets.token_hex(32)
    with _terminated_as_before():
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        if ray.is_initialized():
            got, remedy = "in use by this process", "end it first, by ray.shutdown()"
            raise EngineError(message("engine ray: Ray", got=got, wanted="not yet in use", remedy=remedy))
        node = _visited(given) if given else head(token, store, timeout=START)
        own = {} if given else {"_node_ip_address": node.ip, "_temp_dir": node.folder}
        home = RayRuntime(ray, node, bool(given), token, ray._private.worker.print_to_stdstream)
        ray._private.worker.print_to_stdstream = _silent  # it would mix reports of deaths with a command's results
        try:
            with _environment(ray, token), _loopback(ray, given):
                ray.init(address=node.gcs, configure_logging=False, log_to_driver=False, **own)
        except BaseException as error:
            _closed(home)
            if not isinstance(error, Exception):
                raise
            remedy = f"see that there is a node of it on this machine, or unset {VARIABLE}" if given else "try again"
            got = f"not to be had ({describe_failure(error)})"
            raise EngineError(
                message(f"engine ray: {given or 'Ray'}", got=got, wanted="there", remedy=remedy)
            ) from error
    return home


def _visited(address: str) -> RayNode:
    """Return a placeholder for a node of others: it counts as running as long as this process is connected.

    Raises: EngineError if nothing listens there (Ray would go on trying for minutes); ChoiceError for a malformed address.
    """
    if address != "auto":
        try:
            socket.create_connection(parted(address), REACH).close()
        except OSError as error:
            got, remedy = f"unreachable ({error.strerror or error})", f"see that it runs, or unset {VARIABLE}"
            raise EngineError(message(f"engine ray: {address}", got=got, wanted="a Ray", remedy=remedy)) from error
    ended = threading.Event()
    return RayNode(address, "", "", "", lambda: not ended.is_set(), lambda process: None, ended.set)


def _silent(*_: Any, **__: Any) -> None:
    """Print nothing."""


def _closed(home: RayRuntime) -> None:
    with suppress(Exception):
        home.ray.shutdown()
    home.node.end()
    home.ray._private.worker.print_to_stdstream = home.prints
    _reads_again(home.ray)


@contextmanager
def _environment(ray: Any, token: str) -> Iterator[None]:
    """Set the environment variables that Ray reads while it connects."""
    kept = {name: os.environ.get(name) for name in ray_variables(token)}
    os.environ.update(ray_variables(token))
    _reads_again(ray)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _loopback(ray: Any, given: str) -> Iterator[None]:
    """Make Ray connect to the loopback address if it is our own; by default it takes one that other machines can reach."""
    services = ray._private.services
    kept = services.resolve_ip_for_localhost
    if not given:
        services.resolve_ip_for_localhost = str
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = kept


def _reads_again(ray: Any) -> None:
    """Make Ray read its environment and its token again; by itself it does so once, at its import and first use."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _terminated_as_before() -> Iterator[None]:
    """Restore this process's handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)
