"""Members on one host of Monarch, each an actor in a process of its own: started, called, heard and ended.

Each member has a mesh of one process, so that one that is lost spoils no other's. The node tells at once when a process has
ended; why it has, Monarch tells within its polls, which are waited for. To end a member the node kills it: Monarch's own way
takes seconds where the member is busy, and a call to what it has stopped may hang.
"""

import re
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....core.errors import message
from . import processes_member
from .interface import STOPPED, EngineError
from .monarch_home import Home
from .processes_here import ENDED, SAID, Place, Tell
from .processes_member import answered, described
from .processes_rules import Seat

PROGRAM = Path(processes_member.__file__).read_text()
REASON = 1.5  # seconds for Monarch to say why a process has ended
LONGEST = 200  # letters of that
FORGET = 1.0  # seconds for Monarch to take note of who has ended
Order = Callable[[dict[str, int]], None]


class _Member:
    """One member, as far as it has come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid, self.ended, self.told = 0, False, False
        self.procs: Any = None
        self.actor: Any = None


class Crew:
    """The members on one host."""

    def __init__(self, home: Home, at: str, order: Order, tell: Tell, path: list[str], timeout: float) -> None:
        self.home, self.order, self.tell = home, order, tell
        self.path = path  # for imports there
        self.lock, self.closed = threading.Lock(), False
        self.members: dict[Seat, _Member] = {}
        self.seats: dict[int, Seat] = {}
        self.waits: set[futures.Future[None]] = set()
        self.host = home.actor.attach_to_workers(ca="trust_all_connections", workers=[at])
        try:
            self.host.initialized.get(timeout=timeout)
        except Exception as error:
            got = f"not to be had at {at} ({described(error) if str(error) else f'timed out after {timeout:.1f} s'})"
            remedy = "see that both machines reach each other at any port"
            raise EngineError(message("a host of Monarch", got=got, wanted="attached", remedy=remedy)) from error

    def place(self, close: Callable[[], None]) -> Place:
        """These members as a cluster sees them; `close` ends their host."""
        return Place(self.start, self.send, self.end, lambda: self.close(close))

    def start(self, seat: Seat) -> None:
        """Has a member started."""
        one = _Member(self.home.named(lambda report: self.died(seat, _why(report))))
        self.members[seat] = one
        try:
            one.procs = self.host.spawn_procs(name=one.name)
            one.actor = one.procs.spawn(one.name, self.home.member, self.path, PROGRAM)
            self.wait(self.begin(seat, one, one.actor.pid.call_one()))
        except Exception as error:
            self.died(seat, f"not begun ({described(error)[:LONGEST]})")

    async def begin(self, seat: Seat, one: _Member, future: Any) -> None:
        """Waits until a member has a process, and has that watched."""
        try:
            pid = await future
        except Exception as error:
            self.died(seat, f"not begun ({described(error)[:LONGEST]})")
            return
        with self.lock:
            one.pid, late = pid, one.ended
            self.seats[pid] = seat
        self.order({"watch": pid})
        if late:
            self.order({"kill": pid})

    def send(self, seat: Seat, letter: bytes) -> None:
        """Has a call made."""
        one = self.members.get(seat)
        if one is None:
            return
        try:
            future = one.actor.perform.call_one(letter)
        except Exception as error:
            self.doubt(seat, f"its actor cannot be called ({described(error)[:LONGEST]})")
        else:
            self.wait(self.hear(seat, letter[: processes_member.HEAD.size], future))

    async def hear(self, seat: Seat, head: bytes, future: Any) -> None:
        """Waits for an answer."""
        try:
            said = await future
        except self.home.errors as error:
            self.doubt(seat, f"its actor has failed ({_why(str(error))})")
        except Exception as error:
            call, _ = processes_member.HEAD.unpack(head)
            self.tell(SAID, seat, answered(call, False, described(error)))
        else:
            self.tell(SAID, seat, said)

    def left(self, pid: int) -> None:
        """A process is no more."""
        with self.lock:
            seat = self.seats.pop(pid, None)
            one = self.members.get(seat) if seat else None
        if seat and one:
            if one.ended:
                self.died(seat, STOPPED)
            else:
                self.doubt(seat, "its process ended")

    def doubt(self, seat: Seat, why: str) -> None:
        """A member is no more, and soon it may be known why."""
        timer = threading.Timer(REASON, self.died, (seat, why))
        timer.daemon = True
        timer.start()

    def died(self, seat: Seat, why: str) -> None:
        """Tells of a death, once; a process that lives, though Monarch took it for dead, is killed."""
        with self.lock:
            one = self.members.pop(seat, None)
        if one is None:
            return
        self.home.forget(one.name)
        if one.pid:
            self.order({"kill": one.pid})
        self.tell(ENDED, seat, why.encode())
        if one.procs is not None and not self.closed:
            self.wait(_forgotten(one.procs.stop()))

    def end(self, seat: Seat) -> None:
        """Has a member killed, with what it has started."""
        with self.lock:
            one = self.members.get(seat)
            if one is None:
                return
            one.ended = True
        if one.pid:
            self.order({"kill": one.pid})

    def close(self, close: Callable[[], None]) -> None:
        """Ends all, with the host."""
        self.closed = True
        if not self.members:  # else the host is lost, and who is gone answers never
            futures.wait([*self.waits], FORGET)
        close()
        for seat in [*self.members]:
            self.died(seat, STOPPED)
        for wait in [*self.waits]:
            wait.cancel()

    def wait(self, awaited: Coroutine[Any, Any, None]) -> None:
        """Has it waited for as long as the host is there."""
        wait = self.home.wait(awaited)
        self.waits.add(wait)
        wait.add_done_callback(self.waits.discard)


async def _forgotten(stop: Any) -> None:
    """Lets Monarch know that nobody needs the process any more."""
    with suppress(Exception):
        await stop


def _why(report: str) -> str:
    """What Monarch says of a death, in a few words.

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
