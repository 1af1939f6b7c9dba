"""Actors beside the members of a cluster on one host of Monarch. Sent by value: the host need not import the package for them.

Both live in one process of the host. `Watch` reports the processes that have ended, and kills all of them, with what they have
started, when it has not been polled for `silence` seconds. `Order` kills, also while `Watch` waits. Monarch itself reports
late, or not at all, members that exit with code 0 and clients that are gone, and does not kill what members started.
"""

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import metadata
from typing import Any


def watch(actor: Any) -> Any:
    """Return the class of the actors that watch processes; `actor` is the module monarch.actor."""
    methods = {"__init__": _begun, "about": actor.endpoint(_about), "gone": actor.endpoint(_gone)}
    return type("Watch", (actor.Actor,), methods)


def order(actor: Any) -> Any:
    """Return the class of the actors that kill processes."""
    methods = {"kill": actor.endpoint(_kill), "leave": actor.endpoint(_leave)}
    return type("Order", (actor.Actor,), methods)


def _begun(self: Any, silence: float) -> None:
    self.silence, self.members, self.asked = silence, {}, time.monotonic()
    threading.Thread(target=_patient, args=(self,), daemon=True).start()


def _patient(self: Any) -> None:
    """Kill all members and end this process once nothing has polled it for `silence` seconds."""
    while time.monotonic() - self.asked < self.silence:
        time.sleep(self.silence / 20)
    for pid in [*self.members]:
        _end_group(pid)
    os._exit(0)


def _about(self: Any) -> dict[str, Any]:
    """Return this host's module path, its Monarch's version, and the id of this process, with which members end."""
    return {"path": sys.path, "version": metadata.version("torchmonarch"), "keeper": os.getpid()}


def _gone(self: Any, pids: list[int], seconds: float) -> list[int]:
    """Return those of the processes that have ended, as soon as one has; an empty list after so many seconds."""
    self.asked = time.monotonic()
    found = []
    for pid in [pid for pid in pids if pid not in self.members]:
        try:
            self.members[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            found.append(pid)
    if not found:
        ready = {*select.select([*self.members.values()], [], [], seconds)[0]}
        found = [pid for pid, descriptor in self.members.items() if descriptor in ready]
    for pid in found:
        _end_group(pid)
        if pid in self.members:
            os.close(self.members.pop(pid))
    self.asked = time.monotonic()
    return found


def _kill(self: Any, pid: int) -> None:
    _end_group(pid)


def _leave(self: Any, pids: list[int]) -> None:
    """Kill members, and end this process soon after it has answered."""
    for pid in pids:
        _end_group(pid)
    threading.Timer(0.2, os._exit, (0,)).start()


def _end_group(pid: int) -> None:
    """Kill a member, which leads a process group of its own, with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
