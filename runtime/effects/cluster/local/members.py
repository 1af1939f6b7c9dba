"""Members as processes of this machine: starting, messages in both directions and end. POSIX only.

A `HostAccess` starts and reaches members on this machine or on a host in the network; both kinds report in the same format. Its
functions never block.
"""

import pickle
import threading
from collections.abc import Callable
from typing import Any

from attrs import frozen

from ...workers.process import DIED, UNREADABLE, Child, run_body
from ...workers.program import NOTE
from . import member_program
from .rules import Seat

BODY = pickle.dumps((member_program.serve, ()))
SAID, ENDED = 1, 2  # reports on a member: a message that it sent; its end, and why
Tell = Callable[[int, Seat, bytes], None]  # (SAID or ENDED, seat, the message or why); called in threads of the place


@frozen
class HostAccess:
    """The functions that start, reach and end members on one host."""

    start: Callable[[Seat], None]  # an error is reported as ENDED
    send: Callable[[Seat, bytes], None]  # does nothing for a member that is gone
    end: Callable[[Seat], None]  # kills it with all that it has started
    close: Callable[[], None]  # kills all and frees the place


def here(tell: Tell) -> HostAccess:
    """Return a place for processes of this machine, each in a session of its own and with this process's path for imports.

    A member whose parent is killed ends within seconds.
    """
    members = _LocalMembers(tell)
    return HostAccess(members.start, members.send, members.end, members.close)


class _LocalMembers:
    """The running processes."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.lock = tell, threading.Lock()
        self.children: dict[Seat, Child] = {}

    def start(self, seat: Seat) -> None:
        name = "member-{}.{}".format(*seat)
        with self.lock:
            try:
                self.children[seat] = run_body(BODY, lambda words: self.hear(seat, *words), name=name)
                return
            except OSError as error:
                why = f"its process cannot be started ({error.strerror})"
        self.tell(ENDED, seat, why.encode())

    def hear(self, seat: Seat, word: str, *rest: Any) -> None:
        if word in (NOTE, UNREADABLE):  # the cluster treats b"" as an unreadable answer
            self.tell(SAID, seat, rest[0] if isinstance(rest[0], bytes) else b"")
        elif word == DIED:
            with self.lock:
                child = self.children.pop(seat)
            child.process.end()
            self.tell(ENDED, seat, rest[0].encode())

    def send(self, seat: Seat, letter: bytes) -> None:
        child = self.children.get(seat)
        if child is not None:
            child.work(0, letter)

    def end(self, seat: Seat) -> None:
        child = self.children.get(seat)
        if child is not None:
            child.process.kill()

    def close(self) -> None:
        with self.lock:
            children = [*self.children.values()]
        for child in children:
            child.process.kill()


def read_answer(message: bytes) -> tuple[int, bool, Any]:
    """Return the call's number, True if it has a value, and the value or the error.

    >>> read_answer(member_program.answer_message(3, True, "yes"))
    (3, True, 'yes')
    >>> read_answer(member_program.HEAD.pack(3, True) + b"no pickle")[:2]
    (3, False)
    """
    call, made = member_program.HEAD.unpack_from(message)
    try:
        return call, made, pickle.loads(message[member_program.HEAD.size :])
    except Exception as error:
        return call, False, f"what it gave cannot be read ({member_program.describe_failure(error)})"
