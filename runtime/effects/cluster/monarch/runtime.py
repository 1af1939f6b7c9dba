"""Monarch in this process: initialised once, with a handler of all failures and a thread that waits for answers.

A process has one Monarch client, which cannot be restarted: it listens at the address that the first cluster chose.
"""

import asyncio
import atexit
import importlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from .....core.errors import message
from ..addresses import host_and_port
from ..interface import EngineError
from ..local.member_program import describe_failure
from ..security import monarch_scheme
from ..version import installed
from . import keeper, member

SETTINGS = {
    "HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY": "1s",  # default 10 s, the delay until the cause of a death is known
    # a member that computes while it holds Python's lock does not answer Monarch, and yet is alive: `keeper`
    # and `HostMembers.listen` check whether processes and hosts are alive
    "HYPERACTOR_MESH_GET_ACTOR_STATE_MAX_IDLE": "10m",
    "HYPERACTOR_MESH_GET_PROC_STATE_MAX_IDLE": "10m",
    "HYPERACTOR_MESSAGE_DELIVERY_TIMEOUT": "10m",
    # A connection on which messages are unconfirmed numbers on when its host is restarted at the same address, which refuses
    # them all, until it has been without the host for this long: less than a host takes to start.
    "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "1s",
    "HYPERACTOR_MESH_SUPERVISION_WATCHDOG_TIMEOUT": "30m",  # must be larger than the poll interval and both of those
}
BINDINGS = "monarch._rust_bindings.monarch_hyperactor"
PREFIX = "purestep-"  # of the names of our actors
LEAVE = 5.0  # seconds in which Monarch's client ends with this process
Tell = Callable[[str], None]


class MonarchRuntime:
    """Monarch's modules, the class of members, and the callback for the failure of each of our actors, by its name."""

    def __init__(self, ip: str) -> None:
        installed("monarch")
        self.ip, self.scheme = ip, monarch_scheme()
        with _environment():
            self.actor: Any = importlib.import_module("monarch.actor")
            importlib.import_module(f"{BINDINGS}.config").reload_config_from_env()
        self.errors = importlib.import_module(f"{BINDINGS}.supervision").SupervisionError
        for module in (member, keeper):
            importlib.import_module("cloudpickle").register_pickle_by_value(module)
        self.member = member.member(self.actor)
        self.watch, self.order = keeper.watch(self.actor), keeper.order(self.actor)
        self.count, self.lock = 0, threading.Lock()
        self.concerned: dict[str, Tell] = {}
        self.others = self.actor.unhandled_fault_hook
        self.listen()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="purestep-monarch", daemon=True).start()

    def listen(self) -> None:
        """Start Monarch's client at this machine's address. Raises: EngineError."""
        at = f"{self.scheme}://{host_and_port(self.ip, 0)}"
        try:
            self.actor.enable_transport(at)
            self.actor.context()
        except Exception as error:
            remedy = (
                "open the cluster before anything else uses Monarch, and see that the address is one of this machine"
            )
            got = f"not to be had at {at} ({describe_failure(error)})"
            raise EngineError(message("engine monarch: Monarch", got=got, wanted="listening", remedy=remedy)) from error
        self.actor.unhandled_fault_hook = self.failed
        atexit.register(self.leave)

    def leave(self) -> None:
        """End Monarch's client; its own shutdown would print an error if a host is gone."""
        with suppress(Exception):
            self.actor.shutdown_context(host_timeout=0.3).get(timeout=LEAVE)

    def failed(self, failure: Any) -> None:
        """Handle a failure that Monarch reports. This must not raise: Monarch's own handler does, and ends this process.

        Failures of others' actors go to the previous handler, unless it is Monarch's own: a stray message must not end this
        process.
        """
        name = str(failure.mesh_name).rpartition("-")[0]
        if name.startswith(PREFIX):
            self.concerned.get(name, _nobody)(str(failure.report()))
        elif self.others.__module__.partition(".")[0] != "monarch":
            self.others(failure)

    def named(self, tell: Tell) -> str:
        """Return a new unique actor name; `tell(report)` is called if the actor with it fails."""
        with self.lock:
            self.count += 1
            name = f"{PREFIX}{self.count}"
            self.concerned[name] = tell
            return name

    def forget(self, name: str) -> None:
        """Remove the callback for an actor's failure."""
        self.concerned.pop(name, None)

    def wait(self, awaited: Coroutine[Any, Any, None]) -> Future[None]:
        """Wait for a coroutine in Monarch's thread; it must not raise."""
        return asyncio.run_coroutine_threadsafe(awaited, self.loop)


def _nobody(report: str) -> None:
    pass


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment variables that are not set already, while Monarch reads them."""
    ours = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


class _SharedMonarch:
    """The process's only `MonarchRuntime`, once it is made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.home: MonarchRuntime | None = None

    def at(self, ip: str) -> MonarchRuntime:
        """Return the home; a new one listens at that address."""
        with self.lock:
            if self.home is None:
                self.home = MonarchRuntime(ip)
            return self.home


shared = _SharedMonarch()


def check_reached(ours: str, theirs: str, host: str) -> None:
    """Refuse a host that cannot reach our client at the address `ours`; `theirs` is this machine's address as the host sees it.

    Raises: EngineError.

    >>> check_reached("10.0.0.1", "10.0.0.1", "10.0.0.2:7000"), check_reached("10.0.0.1", "127.0.0.1", "127.0.0.1:7000")
    (None, None)
    """
    if ours.startswith("127.") and not theirs.startswith("127."):
        got, wanted = f"unable to reach us at {ours}", "one on this machine, as in the first cluster of this process"
        remedy = "open a cluster with this host first, in a new process"
        raise EngineError(message(f"host {host}", got=got, wanted=wanted, remedy=remedy))
