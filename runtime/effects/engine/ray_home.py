"""Ray in this process: one at a time, shared by all clusters that are open, and gone with the last of them."""

import importlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from attrs import frozen

from ....core.errors import message
from .interface import EngineError
from .processes_member import described
from .ray_nodes import Node, environment, head, outward
from .ray_version import installed

LOOK = 0.2  # seconds between two looks at the first node
START = 120.0  # seconds in which Ray's processes must be there


@frozen
class Home:
    """Ray, connected."""

    ray: Any  # the module
    node: Node  # the head, on this machine
    token: str  # without which nobody can speak to this Ray
    prints: Callable[..., None]  # how Ray prints what it tells of by itself


Lost = Callable[[str], None]  # (why): Ray is no more


class _Shared:
    """The home, and who is to be told when it is lost."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.guests: list[Lost] = []
        self.home: Home | None = None

    def take(self, hosts: tuple[str, ...], lost: Lost) -> Home:
        """The home, opened where there is none; its address is one that the hosts can reach. Raises: EngineError."""
        with self.lock:
            if self.home is None:
                self.home = _opened(hosts)
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


def _opened(hosts: tuple[str, ...]) -> Home:
    """Starts Ray here and connects to it. Raises: EngineError."""
    installed()
    token = secrets.token_hex(32)
    with _terminated_as_before():
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        if ray.is_initialized():
            got, remedy = "in use by this process", "end it first, by ray.shutdown()"
            raise EngineError(message("engine ray: Ray", got=got, wanted="not yet in use", remedy=remedy))
        node = head(outward(hosts[0]) if hosts else "", token, timeout=START)
        prints = ray._private.worker.print_to_stdstream
        ray._private.worker.print_to_stdstream = _silent  # it tells of deaths where commands print their results
        try:
            with _environment(ray, token):
                ray.init(
                    address=node.gcs,
                    _node_ip_address=node.ip,
                    _temp_dir=node.folder,
                    configure_logging=False,
                    log_to_driver=False,
                )
        except BaseException as error:
            node.end()
            ray._private.worker.print_to_stdstream = prints
            _reads_again(ray)
            if not isinstance(error, Exception):
                raise
            got, remedy = f"not to be had ({described(error)})", "see that no other Ray disturbs it"
            raise EngineError(message("engine ray: Ray", got=got, wanted="connected", remedy=remedy)) from error
    return Home(ray, node, token, prints)


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
