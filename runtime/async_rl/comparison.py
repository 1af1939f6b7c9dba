"""Comparison of alternating (sync) and concurrent (async) training: both phases in one table, ratios and conclusions.

Rates are over the seconds after the first work of a generator: the time to start processes is reported separately.
Neither phase is favoured: conclusions follow from the numbers, and from confidence intervals where there is chance in them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen

from ..text.evaluation import EvaluationResult, figure_table
from ..text.report import Result, table_of
from .scheduler.timeline import TRAINER, Shift

Evaluation = Mapping[str, EvaluationResult]  # by how tokens are chosen: "sampled", "greedy"
LESS, MORE, NEITHER = "less", "more", ""  # the better direction of a figure
AGES = 8  # ages below it have a row of their own
ALIKE = 1.1  # mean sample lengths count as equal when their ratio is between 1 / ALIKE and ALIKE


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
        return sum(age * json_number for age, json_number in enumerate(self.ages)) / max(1, sum(self.ages))

    def largest_age(self) -> int:
        """Return the largest age of the samples trained on, in updates; 0 without samples."""
        return max((age for age, json_number in enumerate(self.ages) if json_number), default=0)

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


def phase_rows(phases: Sequence[PhaseTotals]) -> tuple[Figure, ...]:
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


def json_number(value: float) -> float | str:
    """Return a number as a JSON value: NaN and infinities as text.

    >>> json_number(0.5), json_number(math.nan)
    (0.5, 'nan')
    """
    return value if math.isfinite(value) else repr(value)


def show_number(value: float, digits: int) -> str:
    """Return a number as the table shows it.

    >>> show_number(12800.0, 0), show_number(math.nan, 3)
    ('12,800', '-')
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"


@frozen
class Difference:
    """The difference of two shares, with its 95 % interval."""

    value: float
    low: float
    high: float

    def verdict(self) -> str:
        """Return "more" or "less", or "" where the interval contains 0.

        >>> Difference(0.2, 0.05, 0.33).verdict(), Difference(0.1, -0.1, 0.3).verdict()
        ('more', '')
        """
        return MORE if self.low > 0 else LESS if self.high < 0 else NEITHER

    def line(self) -> str:
        """Return the difference and its interval as text."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def accuracy_difference(one: EvaluationResult, other: EvaluationResult) -> Difference:
    """Return the difference in accuracy of two policies, from the score intervals of both, as if their tasks had differed.

    d - sqrt((p1 - l1)^2 + (u2 - p2)^2)  to  d + sqrt((u1 - p1)^2 + (p2 - l2)^2),   d = p1 - p2

    On the same tasks the true interval is narrower. Source: Newcombe 1998, Statistics in Medicine 17, method 10, whose
    example this is:

    >>> from ..text.evaluation import ACCURACY, HIGH, LOW, wilson
    >>> def share(right, tasks):
    ...     low, high = wilson(right, tasks)
    ...     figures = {ACCURACY: right / tasks, LOW: low, HIGH: high}
    ...     return EvaluationResult(attempts=tasks, reward=0.0, turns=1.0, tokens=1.0, figures=figures, modes={})
    >>> accuracy_difference(share(56, 70), share(48, 80)).line()
    '+0.200 [+0.052, +0.334]'
    """
    value = one.accuracy - other.accuracy
    low = math.hypot(one.accuracy - one.accuracy_low, other.accuracy_high - other.accuracy)
    high = math.hypot(one.accuracy_high - one.accuracy, other.accuracy - other.accuracy_low)
    return Difference(value, value - low, value + high)


@frozen
class Comparison:
    """Phases side by side, and the evaluation of the policy before both."""

    phases: tuple[PhaseTotals, ...]  # one or two; the second is compared with the first
    before: Evaluation  # {} where the task has an evaluation of its own, and so is `after` of phases
    own: Mapping[str, Result] = field(factory=dict)  # results of the task's own evaluation, by the names of its columns

    def ratios(self) -> dict[str, float]:
        """Return the second phase's figures divided by the first's, where both have one; {} with a single phase."""
        if len(self.phases) < 2:
            return {}
        first, second = self.phases
        found = {
            one.name.strip(): ratio(one.of(second), one.of(first)) for one in phase_rows(self.phases) if one.compared
        }
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def differences(self) -> dict[str, Difference]:
        """Return the differences of sampled accuracies: each phase minus before, and the second phase minus the first.

        Empty where the task has no accuracy.
        """
        if self.own or math.isnan(self.before["sampled"].accuracy):
            return {}
        own = {one.name: one.after["sampled"] for one in self.phases}
        found = {
            f"{name} less before": accuracy_difference(after, self.before["sampled"]) for name, after in own.items()
        }
        if len(self.phases) == 2:
            first, second = own
            found[f"{second} less {first}"] = accuracy_difference(own[second], own[first])
        return found

    def described(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        rows, standings = phase_rows(self.phases), {"before": self.before, **{p.name: p.after for p in self.phases}}
        return {
            "figures": {p.name: {one.name.strip(): json_number(one.of(p)) for one in rows} for p in self.phases},
            "ratios": self.ratios(),
            "accuracy": {name: asdict(one) for name, one in self.differences().items()},
            "ages": {p.name: list(p.ages) for p in self.phases},
            "actors": {
                p.name: {one.actor: {**one.kinds, "idle": one.idle, "share": one.utilisation()} for one in p.shifts}
                for p in self.phases
            },
            "standings": {name.removeprefix("after "): one.described() for name, one in self.own.items()}
            or {name: {how: one.described() for how, one in held.items()} for name, held in standings.items()},
            "verdicts": list(verdicts(self)),
        }

    def text(self) -> str:
        """Return the tables and the conclusions as text."""
        heading = "sampling and learning: " + " beside ".join(one.name for one in self.phases)
        said = "\n".join(verdicts(self))
        stood = table_of(self.own) if self.own else self._standings()
        return f"{heading}\n{self._rows()}\n\non held-out tasks\n{stood}\n\n{said}"

    def _standings(self) -> str:
        found = {"before": self.before, **{f"after {p.name}": p.after for p in self.phases}}
        sampled = {name: one["sampled"] for name, one in found.items()}
        return figure_table({**sampled, **{f"{name}, greedy": one["greedy"] for name, one in found.items()}})

    def _rows(self) -> str:
        pair = len(self.phases) == 2
        names = [one.name for one in self.phases]
        head = "".join(f"{name:>12}" for name in names) + (f"{f'{names[1]}/{names[0]}':>13}  better" if pair else "")
        lines = [" " * 32 + head]
        for one in phase_rows(self.phases):
            values = [one.of(p) for p in self.phases]
            cells = "".join(f"{show_number(value, one.digits):>12}" for value in values)
            lines.append(f"{one.name:32}{cells}{self._last(one, values) if pair else ''}".rstrip())
        return "\n".join(lines)

    def _last(self, one: Figure, values: Sequence[float]) -> str:
        share = ratio(values[1], values[0]) if one.compared else math.nan
        cell = f"{share:.3f}" if math.isfinite(share) else ""
        return f"{cell:>13}  {better(one, values[0], values[1], [p.name for p in self.phases])}"


def verdicts(held: Comparison) -> tuple[str, ...]:
    """Return the conclusions, a line each: about speed, and about accuracy as far as the number of tasks allows."""
    found = []
    if len(held.phases) == 2:
        first, second = held.phases
        found += [f"speed, {second.name} by {first.name}: {said}" for said in _speeds(held.ratios())]
    if differences := held.differences():
        tasks = held.before["sampled"].tasks
        words = {MORE: "better", LESS: "worse", NEITHER: f"no difference that {tasks} tasks show"}
        found += [f"accuracy, {name}: {one.line()}, {words[one.verdict()]}" for name, one in differences.items()]
    return tuple(found)


def _speeds(ratios: Mapping[str, float]) -> Iterator[str]:
    """Compare speed per update and per token: an update on longer samples is more work."""
    if "seconds an update" in ratios:
        share = ratios["seconds an update"]
        yield f"{share:.3f} of the seconds for an update, {1 / share if share else math.inf:.2f} times as many updates a second"
    if "tokens learned from a second" in ratios:
        yield f"{ratios['tokens learned from a second']:.2f} times as many tokens learned from a second"
    longer = ratios.get("tokens of a sample", 1.0)
    if not 1 / ALIKE <= longer <= ALIKE:
        yield f"samples of {longer:.2f} times the tokens, so that seconds for an update are not those of the same work"
