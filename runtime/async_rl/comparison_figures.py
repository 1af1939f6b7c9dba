"""Figures of a training phase, comparable with those of another phase.

Rates are over the seconds after the first work of a generator: the time to start processes is reported separately.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from ..text.evaluation import EvaluationResult
from .scheduler.timeline import TRAINER, Shift

Evaluation = Mapping[str, EvaluationResult]  # by how tokens are chosen: "sampled", "greedy"
LESS, MORE, NEITHER = "less", "more", ""  # the better direction of a figure
AGES = 8  # ages below it have a row of their own


@frozen(kw_only=True)
class PhaseTotals:
    """Totals of one phase of a run."""

    name: str  # its folder: sync or async
    generators: int
    staleness: int  # largest allowed age of a sample, in updates, when it is trained on
    updates: int
    sessions: int
    seconds: float  # over all sessions
    start: float  # of these, the seconds before the first work of a generator
    submitted: int  # samples
    accepted: int
    rejected: int
    filtered: int
    consumed: int
    tokens_sampled: int
    tokens_used: int  # of samples trained on
    tokens_wasted: int  # of samples cancelled or left out
    ages: tuple[int, ...]  # number of samples trained on, by age in updates, from 0
    shifts: tuple[Shift, ...]  # of each actor
    waited: float  # seconds per update in which the trainer waited for samples, on average
    updated: float  # seconds per update in which it trained
    anchored: float  # seconds per update for proximal log-probs
    lost_generators: int
    tool_failures: int
    after: Evaluation  # of its final weights, on held-out tasks

    def working(self) -> float:
        """Return the seconds after the start."""
        return self.seconds - self.start

    def mean_age(self) -> float:
        """Return the mean age of the samples trained on, in updates; 0 without samples."""
        return sum(age * number for age, number in enumerate(self.ages)) / max(1, sum(self.ages))

    def largest_age(self) -> int:
        """Return the largest age of the samples trained on, in updates; 0 without samples."""
        return max((age for age, number in enumerate(self.ages) if number), default=0)

    def trainer_at_work(self) -> float:
        """Return the share of the working seconds in which the trainer was busy."""
        return sum((one.utilisation() for one in self.shifts if one.actor == TRAINER), 0.0)

    def generators_at_work(self) -> float:
        """Return the same share of a generator, averaged over the number of generators."""
        return sum(one.utilisation() for one in self.shifts if one.actor != TRAINER) / max(1, self.generators)


@frozen
class Figure:
    """A row of the table."""

    name: str
    of: Callable[[PhaseTotals], float]
    digits: int = 0
    better: str = NEITHER
    compared: bool = True  # whether a ratio means something


def ratio(one: float, other: float) -> float:
    """Return one / other; NaN where `other` is 0.

    >>> ratio(3.0, 2.0), ratio(1.0, 0.0)
    (1.5, nan)
    """
    return one / other if other else math.nan


def figures(phases: Sequence[PhaseTotals]) -> tuple[Figure, ...]:
    """Return the rows of the table of phases: speed, utilisation, sample ages and discarded work."""
    oldest = min(AGES, max(one.largest_age() for one in phases))
    return (
        Figure("generators", lambda p: p.generators, compared=False),
        Figure("age allowed, updates", lambda p: p.staleness, compared=False),
        Figure("updates", lambda p: p.updates, compared=False),
        Figure("samples learned from", lambda p: p.consumed, compared=False),
        Figure("wall seconds", lambda p: p.seconds, 1, LESS),
        Figure("  before generators began", lambda p: p.start, 1, compared=False),
        Figure("seconds an update", lambda p: ratio(p.working(), p.updates), 3, LESS),
        Figure("  waited for samples", lambda p: p.waited, 3),
        Figure("  learned", lambda p: p.updated, 3),
        Figure("  proximal log-probs", lambda p: p.anchored, 3, compared=False),
        Figure("samples learned from a second", lambda p: ratio(p.consumed, p.working()), 2, MORE),
        Figure("samples made a second", lambda p: ratio(p.accepted, p.working()), 2, MORE),
        Figure("tokens learned from a second", lambda p: ratio(p.tokens_used, p.working()), 1, MORE),
        Figure("tokens sampled a second", lambda p: ratio(p.tokens_sampled, p.working()), 1, MORE),
        Figure("tokens of a sample", lambda p: ratio(p.tokens_used, p.consumed), 1),
        Figure("trainer at work, share", lambda p: p.trainer_at_work(), 3, MORE),
        Figure("generators at work, share", lambda p: p.generators_at_work(), 3, MORE),
        Figure("age, mean updates", lambda p: p.mean_age(), 3, LESS, compared=False),
        Figure("age, most", lambda p: p.largest_age(), 0, LESS, compared=False),
        *(_of_age(age) for age in range(oldest + 1)),
        Figure("tokens wasted", lambda p: p.tokens_wasted, 0, LESS, compared=False),
        Figure("  share of those sampled", lambda p: _share(p.tokens_wasted, p.tokens_sampled), 3, compared=False),
        Figure("tokens not used at the end", _left, 0, compared=False),
        Figure("samples left out, filtered", lambda p: p.filtered, compared=False),
        Figure("samples given up, rejected", lambda p: p.rejected, compared=False),
        Figure("generators lost", lambda p: p.lost_generators, compared=False),
        Figure("calls of tools that failed", lambda p: p.tool_failures, compared=False),
    )


def _of_age(age: int) -> Figure:
    def share(phase: PhaseTotals) -> float:
        own = phase.ages[age:] if age == AGES else phase.ages[age : age + 1]
        return _share(sum(own), sum(phase.ages))

    return Figure(f"  share of age {age}{' and more' if age == AGES else ''}", share, 3, compared=False)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _left(phase: PhaseTotals) -> float:
    return phase.tokens_sampled - phase.tokens_used - phase.tokens_wasted


def better(figure: Figure, first: float, second: float, names: Sequence[str]) -> str:
    """Return the name of the phase whose figure is better; "" where neither is or no direction is better.

    >>> better(Figure("wall seconds", lambda phase: phase.seconds, 1, LESS), 20.0, 30.0, ["sync", "async"])
    'sync'
    """
    if not figure.better or first == second or math.isnan(first) or math.isnan(second):
        return ""
    return names[int((second < first) == (figure.better == LESS))]


def number(value: float) -> float | str:
    """Return a number as a JSON value: NaN and infinities as text.

    >>> number(0.5), number(math.nan)
    (0.5, 'nan')
    """
    return value if math.isfinite(value) else repr(value)


def shown(value: float, digits: int) -> str:
    """Return a number as the table shows it.

    >>> shown(12800.0, 0), shown(math.nan, 3)
    ('12,800', '-')
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
