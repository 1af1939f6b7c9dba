"""A bounded queue of samples between the threads of a process: `queue_rules` decides, this waits and stores the samples.

It belongs to the trainer's process. Samples of other processes come through the pipes of `workers`, and the thread that
receives them puts them in here.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from attrs import evolve, frozen

from ...core.errors import StructureError, message
from .queue_rules import (
    ACCEPTED,
    Advance,
    Close,
    Event,
    Put,
    PutAnswer,
    QueuedSample,
    QueueState,
    Take,
    TakeAnswer,
    Withdraw,
    line,
    step,
)

LONGEST = 3600.0  # seconds of one wait; the platform limits the time-out of a lock


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
    return restored(Snapshot(line(capacity, max_lag=max_lag), {}))


def restored(snapshot: Snapshot) -> Queue:
    """Return the queue as it was when the snapshot was taken; callers that waited then must call again.

    Raises: StructureError for a snapshot without its samples.

    >>> samples = queue(2)
    >>> samples.put("a", 0, 0.0)
    'accepted'
    >>> restored(samples.snapshot()).take(1, 0.0)
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

    return Queue(
        put,
        take,
        keeper.advance,
        lambda: _ignore(keeper.tell(Close())),
        keeper.state,
        keeper.snapshot,
    )


def _ignore(value: object) -> None:
    """Ignore a result, for calls that return nothing."""


class _Keeper:
    """The state, the samples with their entries, and a mailbox for the answer to each waiting caller."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.lock = threading.Lock()
        self.line = snapshot.line
        self.samples = {entry.ticket: (entry, snapshot.samples[entry.ticket]) for entry in self.line.entries}
        self.boxes: dict[int, SimpleQueue[Any]] = {}
        self.answers: dict[int, Any] = {}  # answers in mailboxes, kept until their caller has received them
        self.late: tuple[Any, ...] = ()  # samples that were too old when they came back; `advance` returns them
        self.tickets = itertools.count(1 + max(self.samples, default=-1))

    def tell(self, event: Event) -> tuple[Any, ...]:
        """Process an event and deliver the answers; return the samples that expired."""
        with self.lock:
            return self._tell(event)

    def _tell(self, event: Event) -> tuple[Any, ...]:
        self.line, answers = step(self.line, event)
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
                self.boxes[ticket] = SimpleQueue()
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
