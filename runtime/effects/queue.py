"""A bounded queue of samples between the threads of a process: `queue_rules` decides, this waits and keeps the samples.

It belongs to the process that learns. Samples of other processes come through the pipes of `workers`, and whoever receives
them puts them in here.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from attrs import evolve, frozen

from ...core.errors import StructureError, message
from .queue_rules import Advance, Answered, Close, Entry, Event, Expired, Given, Leave, Line, Put, Take, line, step


@frozen
class Snapshot:
    """All that a queue holds: its state, with nobody waiting, and its samples by ticket."""

    line: Line
    samples: Mapping[int, Any]


@frozen
class Queue:
    """The calls. Any thread may make them; none waits longer than its seconds."""

    put: Callable[
        [Any, int, float], str
    ]  # (sample, version, seconds) -> "accepted", or why not: "full", "old", "closed"
    take: Callable[
        [int, float], tuple[Any, ...]
    ]  # (count, seconds) -> count samples, fewer once closed, none out of time
    advance: Callable[[int], tuple[Any, ...]]  # (version) -> the samples that are too old now, and gone
    close: Callable[[], None]
    state: Callable[[], Line]  # its numbers; whoever waits is not in it
    snapshot: Callable[[], Snapshot]


def queue(capacity: int, *, max_lag: int | tuple[()] = ()) -> Queue:
    """An empty queue for at most `capacity` samples, none more than `max_lag` versions behind `advance`.

    First in, first out. A full queue lets callers wait, each in turn, and answers "full" when their seconds are over;
    nothing that was accepted is lost but what `advance` gives back. Raises: ChoiceError.

    >>> samples = queue(2, max_lag=1)
    >>> samples.put("a", 0, 0.0), samples.put("b", 1, 0.0), samples.put("c", 1, 0.0)
    ('accepted', 'accepted', 'full')
    >>> samples.advance(2), samples.take(1, 0.0), samples.take(1, 0.0)
    (('a',), ('b',), ())
    """
    return restored(Snapshot(line(capacity, max_lag=max_lag), {}))


def restored(snapshot: Snapshot) -> Queue:
    """The queue as it was when the snapshot was taken; those who waited have to come again.

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
        outcome: str = keeper.ask(lambda caller, ticket: Put(caller, Entry(ticket, version)), seconds, (sample,))
        return outcome

    def take(count: int, seconds: float) -> tuple[Any, ...]:
        given: tuple[Any, ...] = keeper.ask(lambda caller, _: Take(caller, count), seconds)
        return given

    return Queue(
        put,
        take,
        lambda version: keeper.tell(Advance(version)),
        lambda: _ignore(keeper.tell(Close())),
        keeper.state,
        keeper.snapshot,
    )


def _ignore(value: object) -> None:
    """For calls that give nothing."""


class _Keeper:
    """The state, the samples, and a box for the answer to each caller who waits."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.lock = threading.Lock()
        self.line = snapshot.line
        self.samples = dict(snapshot.samples)
        self.boxes: dict[int, SimpleQueue[Any]] = {}
        self.tickets = itertools.count(1 + max(self.samples, default=-1))

    def tell(self, event: Event) -> tuple[Any, ...]:
        """Feeds an event; hands out the answers, and gives back what expired."""
        with self.lock:
            return self._tell(event)

    def _tell(self, event: Event) -> tuple[Any, ...]:
        self.line, answers = step(self.line, event)
        gone: tuple[Any, ...] = ()
        for answer in answers:
            if isinstance(answer, Answered):
                self.boxes[answer.caller].put(answer.outcome)
            elif isinstance(answer, Given):
                self.boxes[answer.caller].put(tuple(self.samples.pop(ticket) for ticket in answer.tickets))
            elif isinstance(answer, Expired):
                gone = tuple(self.samples.pop(ticket) for ticket in answer.tickets)
        return gone

    def ask(self, event: Callable[[int, int], Event], seconds: float, sample: tuple[Any, ...] = ()) -> Any:
        """Feeds an event in the name of a new caller and waits for the answer."""
        box: SimpleQueue[Any] = SimpleQueue()
        with self.lock:
            ticket = next(self.tickets)  # of the sample, if there is one, and of the caller
            self.boxes[ticket] = box
            self.samples.update(dict.fromkeys([ticket] if sample else [], *sample))
            try:
                self._tell(event(ticket, ticket))
            except BaseException:
                del self.boxes[ticket]
                raise
        try:
            answer = box.get(timeout=seconds) if seconds > 0 else box.get_nowait()
        except Empty:
            self.tell(Leave(ticket))
            answer = box.get_nowait()
        with self.lock:
            del self.boxes[ticket]
            if sample and answer != "accepted":
                del self.samples[ticket]
        return answer

    def state(self) -> Line:
        """The line without those who wait."""
        with self.lock:
            return evolve(self.line, putting=(), taking=())

    def snapshot(self) -> Snapshot:
        """The line without those who wait, and its samples."""
        with self.lock:
            kept = evolve(self.line, putting=(), taking=())
            return Snapshot(kept, {entry.ticket: self.samples[entry.ticket] for entry in kept.entries})
