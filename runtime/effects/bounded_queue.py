"""A bounded queue of samples between the threads of a process: rules as a pure state machine, and calls that wait.

It belongs to the trainer's process. Samples of other processes come through the pipes of `workers`, and the thread that
receives them puts them in here.

`queue_step(line, event) -> (line, answers)` are the rules. The line holds tickets, numbers that stand for samples; callers are
numbers too. Each caller is answered at most once, and a caller that can be served does not wait.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty
from queue import Queue as Letters
from typing import Any

from attrs import evolve, frozen

from ...core.errors import ChoiceError, StructureError, message

LONGEST = 3600.0  # seconds of one wait; the platform limits the time-out of a lock
ACCEPTED, FULL, OLD, CLOSED = "accepted", "full", "old", "closed"  # outcomes of a Put


@frozen
class QueuedSample:
    """A sample: its ticket, and the version of the weights that made it, the oldest one if there are several.

    Tickets increase in the order in which samples are put in.
    """

    ticket: int
    version: int


@frozen(kw_only=True)
class QueueState:
    """The state: samples that can be taken, and waiting callers, both first in, first out."""

    capacity: int
    max_lag: int | tuple[()] = ()  # how many versions behind `version` a sample may be; () for no bound
    version: int = 0  # of the callers that take
    entries: tuple[QueuedSample, ...] = ()
    putting: tuple[tuple[int, QueuedSample], ...] = ()  # (caller, its sample)
    taking: tuple[tuple[int, int], ...] = ()  # (caller, number of samples it wants)
    closed: bool = False
    accepted: int = 0  # = taken + expired + length of `entries`
    taken: int = 0
    expired: int = 0  # accepted, and too old before they were taken
    refused: int = 0


@frozen
class Put:
    """Event: a caller offers a sample."""

    caller: int
    entry: QueuedSample


@frozen
class Take:
    """Event: a caller wants so many samples at once."""

    caller: int
    count: int


@frozen
class Withdraw:
    """Event: a caller's time is out, or it is gone; `back` are samples that were assigned to it and not delivered."""

    caller: int
    back: tuple[QueuedSample, ...] = ()


@frozen
class Advance:
    """Event: the callers that take are at this version now."""

    version: int


@frozen
class Close:
    """Event: no more samples are accepted; the rest can be taken, in smaller numbers if need be."""


@frozen
class PutAnswer:
    """Answer to a Put."""

    caller: int
    outcome: str


@frozen
class TakeAnswer:
    """Answer to a Take: as many samples as requested, or fewer when the queue has closed, or none when time was out."""

    caller: int
    tickets: tuple[int, ...]


@frozen
class Expired:
    """Answer: samples that were accepted and now are too old to be taken."""

    tickets: tuple[int, ...]


Event = Put | Take | Withdraw | Advance | Close
Answer = PutAnswer | TakeAnswer | Expired


def empty_queue(capacity: int, *, max_lag: int | tuple[()] = ()) -> QueueState:
    """Return an empty line. Raises: ChoiceError.

    >>> empty_queue(2).entries
    ()
    """
    if capacity < 1:
        raise ChoiceError(message("queue: capacity", got=capacity, wanted="at least 1", remedy="make some room"))
    if isinstance(max_lag, int) and max_lag < 0:
        remedy = "0 takes what the present version made, () whatever there is"
        raise ChoiceError(message("queue: max_lag", got=max_lag, wanted="at least 0", remedy=remedy))
    return QueueState(capacity=capacity, max_lag=max_lag)


def queue_step(state: QueueState, event: Event) -> tuple[QueueState, tuple[Answer, ...]]:
    """Return the next state and the answers, in the order in which they are due.

    A full queue makes a Put wait; a sample that is too old when its turn comes is refused. Takes are served in order, each
    completely. Samples that come back get their old place, even if the queue is full; those that are too old by now expire.
    Raises: ChoiceError for a Take of less than one, or of more than the capacity: it could never be served.

    >>> state, _ = queue_step(empty_queue(2), Take(1, 2))
    >>> state, answers = queue_step(state, Put(2, QueuedSample(7, 0)))
    >>> answers
    (PutAnswer(caller=2, outcome='accepted'),)
    >>> queue_step(state, Put(3, QueuedSample(8, 0)))[1]
    (PutAnswer(caller=3, outcome='accepted'), TakeAnswer(caller=1, tickets=(7, 8)))
    """
    answers: tuple[Answer, ...] = ()
    if isinstance(event, Put):
        state = evolve(state, putting=(*state.putting, (event.caller, event.entry)))
    elif isinstance(event, Take):
        _refuse_count(state, event.count)
        state = evolve(state, taking=(*state.taking, (event.caller, event.count)))
    elif isinstance(event, Withdraw):
        state, answers = _left(state, event.caller)
        state, gone = _back(state, event.back)
        answers = (*answers, *gone)
    elif isinstance(event, Advance):
        state, answers = _expired(evolve(state, version=max(state.version, event.version)))
    else:
        state = evolve(state, closed=True)
    state, more = _settled(state)
    return state, (*answers, *more)


def _refuse_count(state: QueueState, count: int) -> None:
    if not 1 <= count <= state.capacity:
        wanted, remedy = f"1 to the capacity {state.capacity}", "more would never be there at once"
        raise ChoiceError(message("queue: count to take", got=count, wanted=wanted, remedy=remedy))


def _left(state: QueueState, caller: int) -> tuple[QueueState, tuple[Answer, ...]]:
    answers: tuple[Answer, ...] = ()
    if any(who == caller for who, _ in state.putting):
        answers = (PutAnswer(caller, FULL),)
        putting = tuple(one for one in state.putting if one[0] != caller)
        state = evolve(state, putting=putting, refused=state.refused + 1)
    if any(who == caller for who, _ in state.taking):
        answers = (*answers, TakeAnswer(caller, ()))
        state = evolve(state, taking=tuple(one for one in state.taking if one[0] != caller))
    return state, answers


def _back(state: QueueState, back: tuple[QueuedSample, ...]) -> tuple[QueueState, tuple[Answer, ...]]:
    entries = tuple(sorted((*state.entries, *back), key=lambda entry: entry.ticket))
    return _expired(evolve(state, entries=entries, taken=state.taken - len(back))) if back else (state, ())


def too_old(state: QueueState, entry: QueuedSample) -> bool:
    """Return whether a sample is more than `max_lag` versions behind the callers that take.

    >>> too_old(QueueState(capacity=1, max_lag=1, version=2), QueuedSample(0, 0))
    True
    """
    return isinstance(state.max_lag, int) and state.version - entry.version > state.max_lag


def _expired(state: QueueState) -> tuple[QueueState, tuple[Answer, ...]]:
    gone = tuple(entry.ticket for entry in state.entries if too_old(state, entry))
    kept = tuple(entry for entry in state.entries if not too_old(state, entry))
    return evolve(state, entries=kept, expired=state.expired + len(gone)), (Expired(gone),) if gone else ()


def _settled(state: QueueState) -> tuple[QueueState, tuple[Answer, ...]]:
    """Serve waiting callers, until none can be served."""
    answers: list[Answer] = []
    while True:
        if state.taking and (state.closed or len(state.entries) >= state.taking[0][1]):
            (caller, count), *others = state.taking
            now = state.entries[:count]
            answers.append(TakeAnswer(caller, tuple(entry.ticket for entry in now)))
            taken = state.taken + len(now)
            state = evolve(state, taking=tuple(others), entries=state.entries[count:], taken=taken)
        elif state.putting and (outcome := _outcome(state, state.putting[0][1])):
            (caller, entry), *rest = state.putting
            answers.append(PutAnswer(caller, outcome))
            state = evolve(state, putting=tuple(rest))
            if outcome == ACCEPTED:
                state = evolve(state, entries=(*state.entries, entry), accepted=state.accepted + 1)
            else:
                state = evolve(state, refused=state.refused + 1)
        else:
            return state, tuple(answers)


def _outcome(state: QueueState, entry: QueuedSample) -> str:
    """Return the outcome for a sample whose turn it is; "" while it has to wait."""
    if state.closed:
        return CLOSED
    if too_old(state, entry):
        return OLD
    return ACCEPTED if len(state.entries) < state.capacity else ""


@frozen
class Snapshot:
    """The whole content of a queue: its state, without waiting callers, and its samples by ticket."""

    line: QueueState
    samples: Mapping[int, Any]


@frozen
class Queue:
    """The calls. Any thread may make them; none waits longer than its seconds, which may be infinite.

    An interrupted call leaves nothing behind: samples that a `take` received go back to their places, and the sample of a `put`
    is in the queue only if it was accepted.
    """

    put: Callable[
        [Any, int, float], str
    ]  # (sample, version, seconds) -> "accepted", or why not: "full", "old", "closed"
    take: Callable[
        [int, float], tuple[Any, ...]
    ]  # (count, seconds) -> count samples, fewer once closed, none after the time-out
    advance: Callable[[int], tuple[Any, ...]]  # (version) -> the samples that are now too old, which are removed
    close: Callable[[], None]
    state: Callable[[], QueueState]  # its numbers, without waiting callers
    snapshot: Callable[[], Snapshot]


def queue(capacity: int, *, max_lag: int | tuple[()] = ()) -> Queue:
    """Return an empty queue for at most `capacity` samples, none more than `max_lag` versions behind `advance`.

    First in, first out. A full queue makes callers wait, each in turn, and answers "full" when their seconds are over;
    accepted samples are never lost, except for those that `advance` returns. Raises: ChoiceError.

    >>> samples = queue(2, max_lag=1)
    >>> samples.put("a", 0, 0.0), samples.put("b", 1, 0.0), samples.put("c", 1, 0.0)
    ('accepted', 'accepted', 'full')
    >>> samples.advance(2), samples.take(1, 0.0), samples.take(1, 0.0)
    (('a',), ('b',), ())
    """
    return restore_queue(Snapshot(empty_queue(capacity, max_lag=max_lag), {}))


def restore_queue(snapshot: Snapshot) -> Queue:
    """Return the queue as it was when the snapshot was taken; callers that waited then must call again.

    Raises: StructureError for a snapshot without its samples.

    >>> samples = queue(2)
    >>> samples.put("a", 0, 0.0)
    'accepted'
    >>> restore_queue(samples.snapshot()).take(1, 0.0)
    ('a',)
    """
    tickets = {entry.ticket for entry in snapshot.line.entries}
    if tickets != snapshot.samples.keys():
        got, wanted = sorted(snapshot.samples), sorted(tickets)
        remedy = "save both parts of a snapshot together"
        raise StructureError(message("restored: tickets of the samples", got=got, wanted=wanted, remedy=remedy))
    keeper = _Keeper(snapshot)

    def put(sample: Any, version: int, seconds: float) -> str:
        outcome: str = keeper.ask(lambda ticket: Put(ticket, QueuedSample(ticket, version)), seconds, (sample,))
        return outcome

    def take(count: int, seconds: float) -> tuple[Any, ...]:
        given: tuple[tuple[QueuedSample, Any], ...] = keeper.ask(lambda caller: Take(caller, count), seconds)
        return tuple(sample for _, sample in given)

    def close() -> None:
        keeper.tell(Close())

    return Queue(put, take, keeper.advance, close, keeper.state, keeper.snapshot)


class _Keeper:
    """The state, the samples with their entries, and a mailbox for the answer to each waiting caller."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.lock = threading.Lock()
        self.line = snapshot.line
        self.samples = {entry.ticket: (entry, snapshot.samples[entry.ticket]) for entry in self.line.entries}
        self.boxes: dict[int, Letters[Any]] = {}
        self.answers: dict[int, Any] = {}  # answers in mailboxes, kept until their caller has received them
        self.late: tuple[Any, ...] = ()  # samples that were too old when they came back; `advance` returns them
        self.tickets = itertools.count(1 + max(self.samples, default=-1))

    def tell(self, event: Event) -> tuple[Any, ...]:
        """Process an event and deliver the answers; return the samples that expired."""
        with self.lock:
            return self._tell(event)

    def _tell(self, event: Event) -> tuple[Any, ...]:
        self.line, answers = queue_step(self.line, event)
        gone: tuple[Any, ...] = ()
        for answer in answers:
            if isinstance(answer, PutAnswer):
                self._answer(answer.caller, answer.outcome)
            elif isinstance(answer, TakeAnswer):
                self._answer(answer.caller, tuple(self.samples.pop(ticket) for ticket in answer.tickets))
            else:
                gone = tuple(self.samples.pop(ticket)[1] for ticket in answer.tickets)
        return gone

    def _answer(self, caller: int, answer: Any) -> None:
        self.answers[caller] = answer
        self.boxes[caller].put(answer)

    def advance(self, version: int) -> tuple[Any, ...]:
        """Process a new version; return all samples that expired."""
        with self.lock:
            gone, self.late = (*self.late, *self._tell(Advance(version))), ()
            return gone

    def ask(self, event: Callable[[int], Event], seconds: float, sample: tuple[Any, ...] = ()) -> Any:
        """Process an event in the name of a new caller, and wait for the answer."""
        ticket, answer = -1, None
        try:
            with self.lock:  # tickets rise in the order of the events
                ticket = next(self.tickets)  # of the sample, if there is one, and of the caller
                asked = event(ticket)
                self.boxes[ticket] = Letters()
                if isinstance(asked, Put):
                    self.samples[ticket] = (asked.entry, *sample)
                self._tell(asked)
            answer = self._heard(ticket, seconds)
            with self.lock:
                self._forget(ticket)
            return answer
        except BaseException:  # Ctrl-C too: the answer would be lost
            self._withdraw(ticket, answer)
            raise

    def _heard(self, ticket: int, seconds: float) -> Any:
        """Return the answer to a caller, who leaves when the seconds are over."""
        box, until = self.boxes[ticket], time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(Empty):
                return box.get(timeout=min(left, LONGEST))
        self.tell(Withdraw(ticket))
        return box.get_nowait()

    def _withdraw(self, ticket: int, answer: Any) -> None:
        """Remove a caller: it no longer waits, and the samples it received go back to their places."""
        with self.lock:
            found = self.answers.setdefault(ticket, answer)
            back = {entry.ticket: (entry, sample) for entry, sample in (found if isinstance(found, tuple) else ())}
            self.samples.update(back)
            gone = self._tell(Withdraw(ticket, tuple(entry for entry, _ in back.values())))
            self.late = (*self.late, *gone)
            self._forget(ticket)

    def _forget(self, ticket: int) -> None:
        self.boxes.pop(ticket, None)
        if self.answers.pop(ticket, None) != ACCEPTED:
            self.samples.pop(ticket, None)

    def state(self) -> QueueState:
        """Return the line without waiting callers."""
        with self.lock:
            return evolve(self.line, putting=(), taking=())

    def snapshot(self) -> Snapshot:
        """Return the line without waiting callers, and its samples."""
        with self.lock:
            kept = evolve(self.line, putting=(), taking=())
            return Snapshot(kept, {entry.ticket: self.samples[entry.ticket][1] for entry in kept.entries})
