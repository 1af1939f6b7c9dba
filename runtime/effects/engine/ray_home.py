"""Ray in this process: one at a time, shared by all clusters that are open, and gone with the last of them."""

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

from ....core.errors import message
from ..processes_member import described
from .addresses import parted
from .interface import EngineError
from .ray_nodes import Node, environment, head
from .ray_version import installed
from .security import ray_security

LOOK = 0.2  # seconds between two looks at the first node
VARIABLE = "RAY_ADDRESS"
REACH = 10.0  # seconds in which a cluster that is given must be reached
START = 120.0  # seconds in which Ray's processes must be there


@frozen
class Home:
    """Ray, connected."""

    ray: Any  # the module
    node: Node  # the head, on this machine; where `given`, nothing but what stands for it
    given: bool  # RAY_ADDRESS names a cluster that somebody else looks after
    token: str  # without which nobody can speak to this Ray, where it is ours
    prints: Callable[..., None]  # how Ray prints what it tells of by itself


Lost = Callable[[str], None]  # (why): Ray is no more


class _Shared:
    """The home, and who is to be told when it is lost."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.guests: list[Lost] = []
        self.home: Home | None = None

    def take(self, store: int, lost: Lost) -> Home:
        """Return the home, opened where there is none: the cluster that RAY_ADDRESS names, or a Ray with that object store.

        Raises: EngineError.
        """
        with self.lock:
            given = os.environ.get(VARIABLE, "").removeprefix("local")  # one's own, as Ray has it
            if self.home is not None and self.home.given != bool(given):
                got, remedy = "in use by another cluster", f"stop that first, or let {VARIABLE} be for both as it is"
                raise EngineError(message("engine ray: Ray", got=got, wanted="that of this one", remedy=remedy))
            if self.home is None:
                self.home = _opened(store, given)
                threading.Thread(target=self.watch, args=(self.home,), name="purestep-ray-home", daemon=True).start()
            self.guests.append(lost)
            return self.home

    def leave(self, home: Home, lost: Lost) -> None:
        """A guest goes; with the last of them the home does. Again, it does nothing."""
        with self.lock:
            if self.home is home and lost in self.guests:
                self.guests.remove(lost)
                if not self.guests:
                    self.home = None
                    _closed(home)

    def watch(self, home: Home) -> None:
        """Closes the home where its node has ended by itself: Ray ends this process a minute after its first node."""
        while home.node.running():
            time.sleep(LOOK)
        with self.lock:
            if self.home is home:
                guests, self.guests, self.home = self.guests, [], None
                for lost in guests:
                    lost("Ray has ended")
                _closed(home)


shared = _Shared()


def _opened(store: int, given: str) -> Home:
    """Starts Ray here, where none is given, and connects to it. Raises: EngineError."""
    installed()
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
        home = Home(ray, node, bool(given), token, ray._private.worker.print_to_stdstream)
        ray._private.worker.print_to_stdstream = _silent  # it tells of deaths where commands print their results
        try:
            with _environment(ray, token), _loopback(ray, given):
                ray.init(address=node.gcs, configure_logging=False, log_to_driver=False, **own)
        except BaseException as error:
            _closed(home)
            if not isinstance(error, Exception):
                raise
            remedy = f"see that there is a node of it on this machine, or unset {VARIABLE}" if given else "try again"
            got = f"not to be had ({described(error)})"
            raise EngineError(
                message(f"engine ray: {given or 'Ray'}", got=got, wanted="there", remedy=remedy)
            ) from error
    return home


def _visited(address: str) -> Node:
    """What stands for a node that is not ours: it runs as long as we are connected.

    Raises: EngineError where nobody listens: Ray would go on trying for minutes. ChoiceError for what is no address.
    """
    if address != "auto":
        try:
            socket.create_connection(parted(address), REACH).close()
        except OSError as error:
            got, remedy = f"unreachable ({error.strerror or error})", f"see that it runs, or unset {VARIABLE}"
            raise EngineError(message(f"engine ray: {address}", got=got, wanted="a Ray", remedy=remedy)) from error
    ended = threading.Event()
    return Node(address, "", "", "", lambda: not ended.is_set(), lambda process: None, ended.set)


def _silent(*_: Any, **__: Any) -> None:
    """Prints nothing."""


def _closed(home: Home) -> None:
    with suppress(Exception):
        home.ray.shutdown()
    home.node.end()
    home.ray._private.worker.print_to_stdstream = home.prints
    _reads_again(home.ray)


@contextmanager
def _environment(ray: Any, token: str) -> Iterator[None]:
    """The environment that Ray is to read while it connects."""
    kept = {name: os.environ.get(name) for name in environment(token)}
    os.environ.update(environment(token))
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
    """Ray connects to the loopback address where it is ours; by itself it takes one that other machines reach."""
    services = ray._private.services
    kept = services.resolve_ip_for_localhost
    if not given:
        services.resolve_ip_for_localhost = str
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = kept


def _reads_again(ray: Any) -> None:
    """Ray reads its environment once, where it is imported, and its token once: now it does so again."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _terminated_as_before() -> Iterator[None]:
    """Ray puts its own handler for SIGTERM in the place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)
