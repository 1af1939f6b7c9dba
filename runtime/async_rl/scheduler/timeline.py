"""Timelines of actors: spans of work in seconds, busy time, and utilisation.

An actor may do two things at once (a trainer that trains while a checkpoint is written): such seconds count once in its busy
time, and once for each of its kinds of work.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, message

TRAINER, TRAIN = "trainer", "train"
KINDS = ("generate", TRAIN, "sync", "recompute", "publish", "save", "evaluate")
Interval = tuple[float, float]  # seconds, from and to


@frozen
class Span:
    """One piece of an actor's work, with one version of the weights."""

    actor: str
    kind: str
    begin: float  # seconds since the phase began
    end: float
    version: int  # of the weights that it used or produced


@frozen
class Shift:
    """Busy and idle time of an actor."""

    actor: str
    busy: float  # seconds with any work
    idle: float  # seconds without work
    kinds: dict[str, float]  # seconds with work of each kind

    def utilisation(self) -> float:
        """Return the busy share of the time; 0 for no time.

        >>> Shift("trainer", 3.0, 1.0, {"train": 3.0}).utilisation()
        0.75
        """
        return self.busy / (self.busy + self.idle) if self.busy + self.idle else 0.0


def spans_of(rows: Iterable[dict[str, Any]]) -> tuple[Span, ...]:
    """Return the spans in rows of a timeline.

    >>> spans_of([{"actor": "trainer", "kind": "train", "begin": 0.0, "end": 1.5, "version": 0}])
    (Span(actor='trainer', kind='train', begin=0.0, end=1.5, version=0),)
    """
    return tuple(Span(row["actor"], row["kind"], row["begin"], row["end"], row["version"]) for row in rows)


def actors(spans: Iterable[Span]) -> tuple[str, ...]:
    """Return the names of the actors: the trainer first, then generators by their numbers.

    >>> actors([Span(name, "sync", 0.0, 1.0, 0) for name in ("generator 10", "trainer", "generator 2")])
    ('trainer', 'generator 2', 'generator 10')
    """

    def place(name: str) -> tuple[bool, str, int, str]:
        word, _, number = name.rpartition(" ")
        return (name != TRAINER, word, int(number), "") if number.isdigit() else (name != TRAINER, "", -1, name)

    return tuple(sorted({one.actor for one in spans}, key=place))


def union(intervals: Iterable[Interval], *, gap: float = 0.0) -> tuple[Interval, ...]:
    """Return the union of intervals, as disjoint intervals in order.

    Those with at most `gap` seconds between them are merged. An interval that ends before it begins is left out.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0), (4.0, 5.0)])
    ((0.0, 2.0), (3.0, 5.0))
    """
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if end < begin:
            continue
        if found and begin - found[-1][1] <= gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return tuple(found)


def length(intervals: Iterable[Interval]) -> float:
    """Return the total seconds of disjoint intervals.

    >>> length([(0.0, 2.0), (3.0, 5.0)])
    4.0
    """
    return sum((end - begin for begin, end in intervals), 0.0)


def merged(spans: Iterable[Span], *, gap: float = 0.0) -> tuple[Span, ...]:
    """Return spans sorted by begin; those of one actor, kind and version with at most `gap` seconds between them are merged.

    With gap 0 the seconds of an actor's work of a kind are unchanged.

    >>> merged([Span("a", "generate", 0.0, 1.0, 0), Span("a", "generate", 1.0, 2.0, 0), Span("a", "generate", 2.0, 3.0, 1)])[0]
    Span(actor='a', kind='generate', begin=0.0, end=2.0, version=0)
    """
    kinds: dict[tuple[str, str, int], list[Interval]] = {}
    for one in spans:
        kinds.setdefault((one.actor, one.kind, one.version), []).append((one.begin, one.end))
    found = [
        Span(actor, kind, begin, end, version)
        for (actor, kind, version), intervals in kinds.items()
        for begin, end in union(intervals, gap=gap)
    ]
    return tuple(sorted(found, key=lambda one: (one.begin, one.end, one.actor, one.kind, one.version)))


def spans_between(spans: Iterable[Span], begin: float, end: float) -> tuple[Span, ...]:
    """Return the parts of spans between two times.

    >>> spans_between([Span("a", "train", 0.0, 2.0, 0), Span("a", "train", 3.0, 4.0, 1)], 1.0, 2.5)
    (Span(actor='a', kind='train', begin=1.0, end=2.0, version=0),)
    """
    return tuple(
        Span(one.actor, one.kind, max(begin, one.begin), min(end, one.end), one.version)
        for one in spans
        if one.begin < end and one.end > begin
    )


def shifts(spans: Sequence[Span], begin: float, end: float) -> tuple[Shift, ...]:
    """Return the busy and idle time of each actor from `begin` to `end`; spans outside of it do not count.

    busy = |union of its spans|,   idle = end - begin - busy

    Raises: ChoiceError where the time ends before it begins.

    >>> shifts([Span("a", "train", 0.0, 2.0, 0), Span("a", "save", 1.0, 3.0, 0)], 0.0, 4.0)
    (Shift(actor='a', busy=3.0, idle=1.0, kinds={'train': 2.0, 'save': 2.0}),)
    """
    if end < begin:
        remedy = "exchange them"
        raise ChoiceError(message("shifts: end", got=end, wanted=f"at least begin, {begin}", remedy=remedy))
    within, found = spans_between(spans, begin, end), list[Shift]()
    for actor in actors(spans):
        own = [one for one in within if one.actor == actor]
        busy = min(end - begin, length(union((one.begin, one.end) for one in own)))
        kinds = {
            kind: length(union((one.begin, one.end) for one in own if one.kind == kind))
            for kind in dict.fromkeys(one.kind for one in own)
        }
        found.append(Shift(actor, busy, end - begin - busy, kinds))
    return tuple(found)


def middle(spans: Iterable[Span], updates: int) -> Interval | tuple[()]:
    """Return the interval of `updates` consecutive updates in the middle of a run; () where there is no update.

    >>> middle([Span("trainer", "train", float(n), n + 0.5, n) for n in range(5)], 2)
    (1.0, 2.5)
    """
    trained = sorted((one.begin, one.end) for one in spans if (one.actor, one.kind) == (TRAINER, TRAIN))
    if not trained:
        return ()
    first = max(0, (len(trained) - updates) // 2)
    chosen = trained[first : first + updates]
    return chosen[0][0], chosen[-1][1]
