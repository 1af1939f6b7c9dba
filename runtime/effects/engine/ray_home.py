"""Ray in this process: one at a time, shared by all clusters that are open, and gone with the last of them."""

import importlib
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from attrs import frozen

from ....core.errors import message
from .interface import EngineError
from .processes_member import described
from .ray_nodes import Node, environment, head, outward
from .ray_version import installed

START = 120.0  # seconds in which Ray's processes must be there


@frozen
class Home:
    """Ray, connected."""

    ray: Any  # the module
    node: Node  # the head, on this machine
    token: str  # without which nobody can speak to this Ray


class _Shared:
    """The home, and how many clusters there are in it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.home: Home | None = None

    def take(self, hosts: tuple[str, ...]) -> Home:
        with self.lock:
            if self.home is None:
                self.home = _opened(hosts)
            self.count += 1
            return self.home

    def release(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.home is not None:
                home, self.home = self.home, None
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
        ray._private.worker.print_to_stdstream = _silent  # it prints deaths where commands give their results
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
            if not isinstance(error, Exception):
                raise
            got, remedy = f"not to be had ({described(error)})", "see that no other Ray disturbs it"
            raise EngineError(message("engine ray: Ray", got=got, wanted="connected", remedy=remedy)) from error
    return Home(ray, node, token)


def _silent(*_: Any, **__: Any) -> None:
    """Prints nothing."""


def _closed(home: Home) -> None:
    with suppress(Exception):
        home.ray.shutdown()
    home.node.end()


@contextmanager
def _environment(ray: Any, token: str) -> Iterator[None]:
    """The environment that Ray reads while it connects. It has read it before, where it was imported: it is told to again."""
    kept = {name: os.environ.get(name) for name in environment(token)}
    os.environ.update(environment(token))
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
