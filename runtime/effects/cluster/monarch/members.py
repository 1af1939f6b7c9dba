"""Members on one host of Monarch, each an actor in a process of its own: starting, calls, answers and end.

Each member has a mesh of one process, so that the loss of one affects no other. `keeper`, on the host, reports at once
that a process has ended; Monarch reports the cause within its poll interval, which is waited for. A member is ended by killing
its process: Monarch's own way takes seconds if the member is busy, and a call to a mesh that it has stopped may hang.
"""

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

from .....core.errors import message
from ..interface import STOPPED, EngineError
from ..local import member_program
from ..local.member_program import answer_message, describe_failure
from ..local.members import ENDED, SAID, HostAccess, Tell
from ..local.rules import Seat
from ..version import installed
from .runtime import MonarchRuntime

PROGRAM = Path(member_program.__file__).read_text()
REASON = 1.5  # seconds for Monarch to report why a process has ended
LONGEST = 200  # characters of that
FORGET = 1.0  # seconds for Monarch to register the end of members
ASK = 0.2  # seconds that one poll for ended members waits on the host
PATIENCE, LEAST = 2.0, 10.0  # the keeper kills its members after so many times `silence`, and at least so many seconds
LEAVE = 1.0  # seconds for it to end
TRY = 5.0  # seconds of one try to attach


class _Member:
    """State of one member."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid, self.ended, self.told = 0, False, False
        self.procs: Any = None
        self.actor: Any = None


class HostMembers:
    """The members on one host."""

    def __init__(self, home: MonarchRuntime, at: str, tell: Tell, *, silence: float, timeout: float) -> None:
        """Attach to the host at that address. Raises: EngineError if that does not succeed in time."""
        self.home, self.at, self.tell, self.silence = home, at, tell, silence
        self.lock, self.closed = threading.Lock(), False
        self.members: dict[Seat, _Member] = {}
        self.seats: dict[int, Seat] = {}
        self.waits: set[futures.Future[None]] = set()
        until = time.monotonic() + timeout
        about: dict[str, Any] = {}
        while not about:
            try:
                about = self.attached(min(TRY, max(0.1, until - time.monotonic())))
            except Exception as error:
                if time.monotonic() < until:  # the first messages to a restarted host may go to the previous one
                    continue
                got = f"not to be had at {at} ({describe_failure(error) if str(error) else f'timed out after {timeout:.1f} s'})"
                remedy = "see that purestep host runs there, and that both machines reach each other at any port"
                raise EngineError(message("a host of Monarch", got=got, wanted="attached", remedy=remedy)) from error
        self.path, self.keeper = [str(entry) for entry in about["path"]], int(about["keeper"])
        if about["version"] != installed("monarch"):
            self.order("leave", [])
            remedy = "install one version on all hosts"
            where = f"host {at}: torchmonarch"
            raise EngineError(message(where, got=about["version"], wanted=installed("monarch"), remedy=remedy))

    def attached(self, seconds: float) -> dict[str, Any]:
        """Attach to the worker loop and start a keeper there; return its description of the host."""
        self.host = self.home.actor.attach_to_workers(ca="trust_all_connections", workers=[self.at])
        self.host.initialized.get(timeout=seconds)
        procs = self.host.spawn_procs(name=self.home.named(_nobody))
        silence = max(PATIENCE * self.silence, LEAST)
        self.watching = procs.spawn(self.home.named(_nobody), self.home.watch, silence)
        self.ordering = procs.spawn(self.home.named(_nobody), self.home.order)
        found: dict[str, Any] = self.watching.about.call_one().get(timeout=max(seconds, LEAST))
        return found

    def watch(self, lost: Callable[[str], None]) -> None:
        """Poll for ended members from now on; `lost(why)` is called once the host does not answer."""
        self.wait(self.listen(lost))

    async def listen(self, lost: Callable[[str], None]) -> None:
        """Poll until the host is lost, or these members are closed."""
        while not self.closed:
            with self.lock:
                pids = [*self.seats]
            try:
                gone = await asyncio.wait_for(_awaited(self.watching.gone.call_one(pids, ASK)), ASK + self.silence)
            except TimeoutError:
                why = f"silent for {self.silence:.1f} s"
            except self.home.errors:
                why = "its process that watches members has ended"
            except Exception as error:
                why = describe_failure(error)[:LONGEST]
            else:
                for pid in gone:
                    self.left(pid)
                continue
            if not self.closed:
                # in a thread of its own, since it waits for others of this loop
                threading.Thread(target=lost, args=(why,), name="purestep-monarch-lost", daemon=True).start()
            return

    def order(self, word: str, argument: Any) -> None:
        """Send the keeper an order, without waiting for it."""
        with suppress(Exception):
            self.wait(_forgotten(getattr(self.ordering, word).call_one(argument)))

    def host_access(self) -> HostAccess:
        """Return these members as a `HostAccess`, for a cluster."""
        return HostAccess(self.start, self.send, self.end, self.close)

    def start(self, seat: Seat) -> None:
        """Start a member."""
        one = _Member(self.home.named(lambda report: self.died(seat, _why(report))))
        self.members[seat] = one
        try:
            one.procs = self.host.spawn_procs(name=one.name)
            one.actor = one.procs.spawn(one.name, self.home.member, self.path, PROGRAM, self.keeper)
            self.wait(self.begin(seat, one, one.actor.pid.call_one()))
        except Exception as error:
            self.doubt(seat, f"not begun ({describe_failure(error)[:LONGEST]})")

    async def begin(self, seat: Seat, one: _Member, future: Any) -> None:
        """Wait until a member has a process, and watch that."""
        try:
            pid = await future
        except Exception as error:
            self.died(seat, f"not begun ({describe_failure(error)[:LONGEST]})")
            return
        with self.lock:
            one.pid, late = pid, one.ended
            self.seats[pid] = seat
        if late:
            self.order("kill", pid)

    def send(self, seat: Seat, letter: bytes) -> None:
        """Send a call to a member."""
        one = self.members.get(seat)
        if one is None:
            return
        try:
            future = one.actor.perform.call_one(letter)
        except Exception as error:
            self.doubt(seat, f"its actor cannot be called ({describe_failure(error)[:LONGEST]})")
        else:
            self.wait(self.hear(seat, letter[: member_program.HEAD.size], future))

    async def hear(self, seat: Seat, head: bytes, future: Any) -> None:
        """Wait for an answer and pass it on."""
        try:
            said = await future
        except self.home.errors as error:
            self.doubt(seat, f"its actor has failed ({_why(str(error))})")
        except Exception as error:
            call, _ = member_program.HEAD.unpack(head)
            self.tell(SAID, seat, answer_message(call, False, describe_failure(error)))
        else:
            self.tell(SAID, seat, said)

    def left(self, pid: int) -> None:
        """Handle the end of a process."""
        with self.lock:
            seat = self.seats.pop(pid, None)
            one = self.members.get(seat) if seat else None
        if seat and one:
            if one.ended:
                self.died(seat, STOPPED)
            else:
                self.doubt(seat, "its process ended")

    def doubt(self, seat: Seat, why: str) -> None:
        """Report the end of a member after `REASON` seconds, within which Monarch may report the cause."""
        timer = threading.Timer(REASON, self.died, (seat, why))
        timer.daemon = True
        timer.start()

    def died(self, seat: Seat, why: str) -> None:
        """Report the end of a member, once; kill its process if that is still alive although Monarch reported its death."""
        with self.lock:
            one = self.members.pop(seat, None)
        if one is None:
            return
        self.home.forget(one.name)
        if one.pid:
            self.order("kill", one.pid)
        self.tell(ENDED, seat, why.encode())
        if one.procs is not None and not self.closed:
            self.wait(_forgotten(one.procs.stop()))

    def end(self, seat: Seat) -> None:
        """Kill a member, with all that it has started."""
        with self.lock:
            one = self.members.get(seat)
            if one is None:
                return
            one.ended = True
        if one.pid:
            self.order("kill", one.pid)

    def close(self) -> None:
        """End all members of this cluster on the host; the host goes on."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        if not self.members:  # else the host is lost, and its members never answer
            futures.wait([*self.waits], FORGET)
        with suppress(Exception):
            leave = self.ordering.leave.call_one([one.pid for one in self.members.values() if one.pid])
            leave.get(timeout=LEAVE)
        for seat in [*self.members]:
            self.died(seat, STOPPED)
        for wait in [*self.waits]:
            wait.cancel()

    def wait(self, awaited: Coroutine[Any, Any, None]) -> None:
        """Wait for a coroutine in Monarch's thread; cancelled when these members are closed."""
        wait = self.home.wait(awaited)
        self.waits.add(wait)
        wait.add_done_callback(self.waits.discard)


def _nobody(report: str) -> None:
    """Ignore the failure of a keeper: the next poll notices it."""


async def _awaited(future: Any) -> Any:
    """Await one of Monarch's futures."""
    return await future


async def _forgotten(future: Any) -> None:
    """Await a future and ignore its result and exception."""
    with suppress(Exception):
        await future


def _why(report: str) -> str:
    """Return Monarch's report of a death, shortened.

    >>> _why("The actor a and all its descendants have failed:\\n  the process this actor was running on failed: Killed(sig=9)")
    'its process ended (SIGKILL)'
    >>> _why("the process this actor was running on exited with non-zero code 3")
    'its process ended (code 3)'
    """
    if found := re.search(r"Killed\(sig=(\d+)\)", report):
        return f"its process ended ({signal.Signals(int(found[1])).name})"
    if found := re.search(r"exited with non-zero code (-?\d+)", report):
        return f"its process ended (code {found[1]})"
    if "exited cleanly" in report:
        return "its process ended (code 0)"
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else "no reason is known"
