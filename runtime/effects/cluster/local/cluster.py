"""A cluster of members: its state, the connections to its hosts (`HostAccess`) and its pending calls, for every engine.

`rules` decides; this performs. Hosts report messages and deaths to `handle_report`; an engine reports lost hosts to `lost`.
"""

import pickle
import struct
import threading
import time
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from .....core.errors import ChoiceError, message
from ..interface import (
    Actor,
    Answer,
    Done,
    EngineError,
    MemberLost,
    Mesh,
    Unanswered,
    Waiting,
    host_of_each,
    sliced,
    timely,
)
from . import member_program, rules
from .members import SAID, HostAccess, read_answer
from .rules import Seat

GRACE = 10.0  # seconds in which members that are ended must be gone


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


class State:
    """The ledger (pure state), the places, and the pending calls."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.ledger = rules.ClusterState()
        self.places: dict[str, HostAccess] = {}
        self.there: dict[Seat, str] = {}  # the hosts of processes that may still run
        self.pending: dict[int, Pending] = {}
        self.failures: Queue[MemberLost] = Queue()
        self.meshes = self.calls = 0  # numbers of meshes and calls so far
        self.closed = False

    # --- events ---

    def tell(self, event: rules.Event, answer: Answer | None = None) -> None:
        """Process an event and perform the resulting actions; `answer` is delivered if the event is an answer that counts."""
        with self.changed:
            self.ledger, actions = rules.cluster_step(self.ledger, event)
            for action in actions:
                if isinstance(action, rules.SendCall):
                    self.places[action.host].send(action.seat, self.pending[action.call].letter)
                elif isinstance(action, rules.DeliverAnswer) and answer is not None:
                    self.settle(action.call, action.seat, answer)
                elif isinstance(action, rules.FailCall):
                    self.settle(action.call, action.seat, action.answer)
                elif isinstance(action, rules.ReportLoss):
                    self.failures.put(action.failure)
                elif isinstance(action, rules.KillMember) and action.host in self.places:
                    self.places[action.host].end(action.seat)
            self.changed.notify_all()

    def settle(self, call: int, seat: Seat, answer: Answer) -> None:
        """Store a member's answer to a call; forget the call after the last one."""
        if self.pending[call].settle(seat[1], answer):
            del self.pending[call]

    def handle_report(self, word: int, seat: Seat, said: bytes) -> None:
        """Handle a message or the end of a member, as reported by a place."""
        if word == SAID:
            try:
                call, made, value = read_answer(said)
            except struct.error:
                self.tell(rules.MemberEnded(seat, "garbage: its pipe gave what is no answer"))
                return
            self.tell(rules.CallAnswered(seat, call), Done(value) if made else Unanswered(str(value), False))
            return
        with self.changed:
            self.there.pop(seat, None)
            self.tell(rules.MemberEnded(seat, said.decode(errors="replace")))

    def lost(self, host: str, place: list[HostAccess], why: str) -> None:
        """Handle the loss of a host, if its place is still this one."""
        with self.changed:
            if place and self.places.get(host) is place[0]:
                del self.places[host]
                self.there = {seat: where for seat, where in self.there.items() if where != host}
                self.tell(rules.HostLost(host, f"its host is lost ({why})"))

    # --- hosts ---

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that can be used now."""
        return self.ledger.hosts

    def take_in(self, host: str, place: HostAccess) -> None:
        """Add a host, on which members may be started. Raises: EngineError if it is known, or the cluster was stopped."""
        with self.changed:
            try:
                self.refuse_known("add_host", host)
            except EngineError:
                place.close()
                raise
            self.places[host] = place
            self.tell(rules.HostAdded(host))

    def refuse_known(self, where: str, host: str) -> None:
        """Raise EngineError if the host is there already, or the cluster was stopped."""
        self.refuse_closed(where)
        if host in self.places:
            got, remedy = "taken in already", "name each host once"
            raise EngineError(message(f"host {host}", got=got, wanted="a further one", remedy=remedy))

    def refuse_closed(self, where: str) -> None:
        """Raise EngineError if the cluster was stopped."""
        if self.closed:
            raise EngineError(message(f"{where}: the cluster", got="stopped", wanted="open", remedy="open another one"))

    # --- members ---

    def spawn(
        self,
        actor: Actor,
        arguments: tuple[Any, ...] = (),
        /,
        *,
        size: int,
        hosts: tuple[str, ...] = (),
        timeout: float,
    ) -> Mesh:
        """Start members: see `Spawn`."""
        until = time.monotonic() + timely("spawn", timeout)
        letter = packed(f"spawn: {actor.__qualname__}", actor, arguments)
        with self.changed:
            self.refuse_closed("spawn")
            for host in hosts:
                if host not in self.ledger.hosts:
                    remedy = "add it, or name another one"
                    raise ChoiceError(message(f"spawn: host {host}", got="not there", wanted="there", remedy=remedy))
            where = host_of_each(size, hosts or self.ledger.hosts)
            number, self.meshes = self.meshes, self.meshes + 1
            seats = tuple((number, member) for member in range(size))
            self.there.update(zip(seats, where, strict=True))
            self.tell(rules.MeshStarted(number, where))
            places = [self.places[host] for host in where]
        try:
            for seat, place in zip(seats, places, strict=True):
                place.start(seat)
            answers = self.asked(number, tuple(range(size)), letter, True, max(0.001, until - time.monotonic()))()
            self.refuse_unbegun(number, where, answers)
        except BaseException:
            for seat, place in zip(seats, places, strict=True):
                place.end(seat)  # in case it was started after another thread had stopped it
            self.end(seats, GRACE)
            raise
        return self.mesh(number, tuple(range(size)), where)

    def mesh(self, number: int, members: tuple[int, ...], hosts: tuple[str, ...]) -> Mesh:
        """Return the mesh of these members, on these hosts."""

        def ask(method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> Waiting:
            timely(f"call of {method}", timeout)
            return self.asked(number, members, packed(f"call of {method}", method, arguments), False, timeout)

        def call(method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> tuple[Answer, ...]:
            return ask(method, arguments, timeout=timeout)()

        def part(wanted: tuple[int, ...]) -> Mesh:
            return self.mesh(number, wanted, tuple(hosts[at] for at in sliced(members, wanted)))

        def stop(*, timeout: float) -> None:
            self.end(tuple((number, member) for member in members), timeout)

        return Mesh(number=number, members=members, hosts=hosts, call=call, ask=ask, slice=part, stop=stop)

    def refuse_unbegun(self, number: int, where: tuple[str, ...], answers: tuple[Answer, ...]) -> None:
        """Report the mesh's deaths from now on. Raises: EngineError if a member is not ready."""
        with self.changed:
            if not rules.is_complete(self.ledger, number, len(where)):
                answers = tuple(one if isinstance(one, Unanswered) else Unanswered("gone", True) for one in answers)
            for member, answer in enumerate(answers):
                if isinstance(answer, Unanswered):
                    remedy = "see why, where its actor is made and set up alone"
                    got, wanted = f"not begun ({answer.why})", "ready in time"
                    place = f"spawn: member {member} on {where[member]}"
                    raise EngineError(message(place, got=got, wanted=wanted, remedy=remedy))
            self.tell(rules.MeshReady(number))

    def asked(self, mesh: int, members: tuple[int, ...], letter: bytes, makes: bool, seconds: float) -> Waiting:
        """Start a call; return the function that waits for its answers."""
        now = time.monotonic()
        with self.changed:
            self.calls += 1
            pending = self.pending[self.calls] = Pending(self.calls, members, letter, makes)
            self.tell(rules.CallStarted(self.calls, mesh, members, seconds, now))
        return lambda: pending.wait(now + seconds, lambda moment: self.tell(rules.Clock(moment)))

    def end(self, seats: tuple[Seat, ...], timeout: float) -> None:
        """Kill members. Raises: EngineError if some still run when time is out."""
        until = time.monotonic() + timely("stop", timeout)
        with self.changed:
            self.tell(rules.MembersStopped(seats))
            while left := [seat for seat in seats if seat in self.there]:
                if not self.changed.wait(until - time.monotonic()) and time.monotonic() >= until:
                    got = ", ".join(f"member {seat[1]} of mesh {seat[0]} on {self.there[seat]}" for seat in left[:4])
                    remedy = "see what keeps them: their hosts, or calls into the kernel"
                    raise EngineError(message("stop: still there", got=got, wanted="nobody", remedy=remedy))

    def failure(self, seconds: float) -> MemberLost | tuple[()]:
        """Return the next failure, or () if none comes in that time."""
        try:
            return self.failures.get(timeout=seconds) if seconds > 0 else self.failures.get_nowait()
        except Empty:
            return ()

    def stop(self, *, timeout: float) -> None:
        """Stop the cluster: see `Stop`."""
        timely("stop", timeout)
        with self.changed:
            self.closed = True
            seats = tuple(self.there)
        try:
            self.end(seats, timeout)
        finally:
            with self.changed:
                places, self.places = [*self.places.values()], {}
                self.ledger = rules.ClusterState()
            for place in places:
                place.close()


def packed(where: str, first: Any, arguments: tuple[Any, ...]) -> bytes:
    """Return a call's bytes. Raises: EngineError for values that cannot be pickled, or are too large.

    >>> pickle.loads(packed("call of add", "add", (5,)))
    ('add', (5,))
    """
    wanted = "names of a module, and values that pickle knows"
    try:
        letter = pickle.dumps((first, arguments))
    except Exception as error:
        got, remedy = (
            f"not to be sent ({member_program.describe_failure(error)})",
            "move it to a module, send plain values",
        )
        raise EngineError(message(where, got=got, wanted=wanted, remedy=remedy)) from error
    if len(letter) > member_program.LARGEST:
        got, remedy = f"{len(letter)} bytes long", "send large values through effects.transfer"
        raise EngineError(message(where, got=got, wanted=f"at most {member_program.LARGEST}", remedy=remedy))
    return letter
