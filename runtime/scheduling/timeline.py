"""Who did what, and when, as numbers: spans of seconds, the seconds in which somebody was at work, and their share of a time.

An actor may do two things at once (a trainer that trains while a checkpoint is written): such seconds count once where it
is asked how long it was at work, and for each of its kinds of work where it is asked for that kind.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from ...core.errors import ChoiceError, message

TRAINER, TRAIN = "trainer", "train"
KINDS = ("generate", TRAIN, "sync", "recompute", "publish", "save", "evaluate")
Interval = tuple[float, float]  # seconds, from and to


@frozen
class Span:
    """An actor did one thing, of one version, for some seconds."""

    actor: str
    kind: str
    begin: float  # seconds since the phase began
    end: float
    version: int  # of the weights it was done with, or to


@frozen
class Shift:
    """How an actor spent a stretch of time."""

    actor: str
    busy: float  # seconds in which it did something
    idle: float  # seconds in which it did nothing
    kinds: dict[str, float]  # seconds in which it did something of that kind

    def utilisation(self) -> float:
        """The share of the time in which it did something; 0 of no time.

        >>> Shift("trainer", 3.0, 1.0, {"train": 3.0}).utilisation()
        0.75
        """
        return self.busy / (self.busy + self.idle) if self.busy + self.idle else 0.0


def spans_of(rows: Iterable[dict[str, Any]]) -> tuple[Span, ...]:
    """The spans that rows of a timeline tell of.

    >>> spans_of([{"actor": "trainer", "kind": "train", "begin": 0.0, "end": 1.5, "version": 0}])
    (Span(actor='trainer', kind='train', begin=0.0, end=1.5, version=0),)
    """
    return tuple(Span(row["actor"], row["kind"], row["begin"], row["end"], row["version"]) for row in rows)


def actors(spans: Iterable[Span]) -> tuple[str, ...]:
    """Those who did something: the trainer first, then generators by their numbers.

    >>> actors([Span(name, "sync", 0.0, 1.0, 0) for name in ("generator 10", "trainer", "generator 2")])
    ('trainer', 'generator 2', 'generator 10')
    """

    def place(name: str) -> tuple[bool, str, int, str]:
        word, _, number = name.rpartition(" ")
        return (name != TRAINER, word, int(number), "") if number.isdigit() else (name != TRAINER, "", -1, name)

    return tuple(sorted({one.actor for one in spans}, key=place))


def union(intervals: Iterable[Interval], *, gap: float = 0.0) -> tuple[Interval, ...]:
    """The seconds that lie in any of the intervals, as intervals in order that do not touch.

    Those with at most `gap` seconds between them become one. An interval that ends before it begins is left out.

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
    """The seconds of intervals that have none in common.

    >>> length([(0.0, 2.0), (3.0, 5.0)])
    4.0
    """
    return sum((end - begin for begin, end in intervals), 0.0)


def merged(spans: Iterable[Span], *, gap: float = 0.0) -> tuple[Span, ...]:
    """Spans of one actor, kind and version that touch, or have at most `gap` seconds between them, as one; by their begin.

    With gap 0 the seconds in which an actor does something of a kind are those of the spans.

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


def cut(spans: Iterable[Span], begin: float, end: float) -> tuple[Span, ...]:
    """The parts of spans that lie in a stretch of time.

    >>> cut([Span("a", "train", 0.0, 2.0, 0), Span("a", "train", 3.0, 4.0, 1)], 1.0, 2.5)
    (Span(actor='a', kind='train', begin=1.0, end=2.0, version=0),)
    """
    return tuple(
        Span(one.actor, one.kind, max(begin, one.begin), min(end, one.end), one.version)
        for one in spans
        if one.begin < end and one.end > begin
    )


def shifts(spans: Sequence[Span], begin: float, end: float) -> tuple[Shift, ...]:
    """How each actor spent the time from `begin` to `end`; what lies outside of it does not count.

    busy = |union of its spans|,   idle = end - begin - busy

    Raises: ChoiceError where the time ends before it begins.

    >>> shifts([Span("a", "train", 0.0, 2.0, 0), Span("a", "save", 1.0, 3.0, 0)], 0.0, 4.0)
    (Shift(actor='a', busy=3.0, idle=1.0, kinds={'train': 2.0, 'save': 2.0}),)
    """
    if end < begin:
        remedy = "exchange them"
        raise ChoiceError(message("shifts: end", got=end, wanted=f"at least begin, {begin}", remedy=remedy))
    within, found = cut(spans, begin, end), list[Shift]()
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
    """From the beginning of an update in the middle to the end of the last of so many; () where none was made.

    >>> middle([Span("trainer", "train", float(n), n + 0.5, n) for n in range(5)], 2)
    (1.0, 2.5)
    """
    trained = sorted((one.begin, one.end) for one in spans if (one.actor, one.kind) == (TRAINER, TRAIN))
    if not trained:
        return ()
    first = max(0, (len(trained) - updates) // 2)
    chosen = trained[first : first + updates]
    return chosen[0][0], chosen[-1][1]
