"""Pending calls, and the mesh through which they are made."""

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from .....core.errors import message
from ..interface import Answer, EngineError, Mesh, Waiting, sliced, timely
from . import member_program
from .rules import Seat


class Pending:
    """A call, and its members' answers so far. `settle` is called by one thread at a time."""

    def __init__(self, number: int, members: tuple[int, ...], letter: bytes, makes: bool) -> None:
        self.members, self.letter = members, member_program.HEAD.pack(number, makes) + letter
        self.answers: dict[int, Answer] = {}
        self.done = threading.Event()

    def settle(self, member: int, answer: Answer) -> bool:
        """Store a member's answer; return whether it was the last one."""
        self.answers[member] = answer
        if len(self.answers) == len(self.members):
            self.done.set()
        return self.done.is_set()

    def wait(self, deadline: float, look: Callable[[float], None]) -> tuple[Answer, ...]:
        """Return all answers; at the deadline `look(now)` must settle the late ones."""
        if not self.done.wait(max(0.0, deadline - time.monotonic())):
            look(max(deadline, time.monotonic()))
            self.done.wait()
        return tuple(self.answers[member] for member in self.members)


class Caller(Protocol):
    """The functions of a cluster that a mesh needs."""

    def asked(self, mesh: int, members: tuple[int, ...], letter: bytes, makes: bool, seconds: float, /) -> Waiting:
        """Start a call."""
        ...

    def end(self, seats: tuple[Seat, ...], timeout: float, /) -> None:
        """Kill members."""
        ...


def mesh_of(caller: Caller, number: int, members: tuple[int, ...], hosts: tuple[str, ...]) -> Mesh:
    """Return the mesh of these members, on these hosts."""

    def ask(method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> Waiting:
        timely(f"call of {method}", timeout)
        return caller.asked(number, members, packed(f"call of {method}", method, arguments), False, timeout)

    def call(method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> tuple[Answer, ...]:
        return ask(method, arguments, timeout=timeout)()

    def part(wanted: tuple[int, ...]) -> Mesh:
        return mesh_of(caller, number, wanted, tuple(hosts[at] for at in sliced(members, wanted)))

    def stop(*, timeout: float) -> None:
        caller.end(tuple((number, member) for member in members), timeout)

    return Mesh(number=number, members=members, hosts=hosts, call=call, ask=ask, slice=part, stop=stop)


def packed(where: str, first: Any, arguments: tuple[Any, ...]) -> bytes:
    """Return a call's bytes. Raises: EngineError for values that cannot be pickled, or are too large.

    >>> pickle.loads(packed("call of add", "add", (5,)))
    ('add', (5,))
    """
    wanted = "names of a module, and values that pickle knows"
    try:
        letter = pickle.dumps((first, arguments))
    except Exception as error:
        got, remedy = f"not to be sent ({member_program.described(error)})", "move it to a module, send plain values"
        raise EngineError(message(where, got=got, wanted=wanted, remedy=remedy)) from error
    if len(letter) > member_program.LARGEST:
        got, remedy = f"{len(letter)} bytes long", "send large values through effects.transfer"
        raise EngineError(message(where, got=got, wanted=f"at most {member_program.LARGEST}", remedy=remedy))
    return letter
