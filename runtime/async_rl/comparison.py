"""Comparison of alternating (sync) and concurrent (async) training: both phases in one table, ratios and conclusions.

Neither phase is favoured: conclusions follow from the numbers, and from confidence intervals where there is chance in them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen

from ..text.evaluation import EvaluationResult, table
from ..text.report import Result, table_of
from .comparison_figures import (
    LESS,
    MORE,
    NEITHER,
    Evaluation,
    Figure,
    PhaseTotals,
    better,
    figures,
    number,
    ratio,
    shown,
)

ALIKE = 1.1  # mean sample lengths count as equal when their ratio is between 1 / ALIKE and ALIKE


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


def difference(one: EvaluationResult, other: EvaluationResult) -> Difference:
    """Return the difference in accuracy of two policies, from the score intervals of both, as if their tasks had differed.

    d - sqrt((p1 - l1)^2 + (u2 - p2)^2)  to  d + sqrt((u1 - p1)^2 + (p2 - l2)^2),   d = p1 - p2

    On the same tasks the true interval is narrower. Source: Newcombe 1998, Statistics in Medicine 17, method 10, whose
    example this is:

    >>> from ..text.evaluation import ACCURACY, HIGH, LOW, wilson
    >>> def share(right, tasks):
    ...     low, high = wilson(right, tasks)
    ...     figures = {ACCURACY: right / tasks, LOW: low, HIGH: high}
    ...     return EvaluationResult(attempts=tasks, reward=0.0, turns=1.0, tokens=1.0, figures=figures, modes={})
    >>> difference(share(56, 70), share(48, 80)).line()
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
        found = {one.name.strip(): ratio(one.of(second), one.of(first)) for one in figures(self.phases) if one.compared}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def differences(self) -> dict[str, Difference]:
        """Return the differences of sampled accuracies: each phase minus before, and the second phase minus the first.

        Empty where the task has no accuracy.
        """
        if self.own or math.isnan(self.before["sampled"].accuracy):
            return {}
        own = {one.name: one.after["sampled"] for one in self.phases}
        found = {f"{name} less before": difference(after, self.before["sampled"]) for name, after in own.items()}
        if len(self.phases) == 2:
            first, second = own
            found[f"{second} less {first}"] = difference(own[second], own[first])
        return found

    def described(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        rows = figures(self.phases)
        return {
            "figures": {p.name: {one.name.strip(): number(one.of(p)) for one in rows} for p in self.phases},
            "ratios": self.ratios(),
            "accuracy": {name: asdict(one) for name, one in self.differences().items()},
            "ages": {p.name: list(p.ages) for p in self.phases},
            "actors": {
                p.name: {one.actor: {**one.kinds, "idle": one.idle, "share": one.utilisation()} for one in p.shifts}
                for p in self.phases
            },
            "standings": {
                **{name.removeprefix("after "): one.described() for name, one in self.own.items()},
                **({} if self.own else self._described()),
            },
            "verdicts": list(verdicts(self)),
        }

    def _described(self) -> dict[str, Any]:
        return {
            "before": {how: one.described() for how, one in self.before.items()},
            **{p.name: {how: one.described() for how, one in p.after.items()} for p in self.phases},
        }

    def text(self) -> str:
        """Return the tables and the conclusions as text."""
        heading = "sampling and learning: " + " beside ".join(one.name for one in self.phases)
        said = "\n".join(verdicts(self))
        stood = table_of(self.own) if self.own else self._standings()
        return f"{heading}\n{self._rows()}\n\non held-out tasks\n{stood}\n\n{said}"

    def _standings(self) -> str:
        columns = {"before": self.before["sampled"], **{f"after {p.name}": p.after["sampled"] for p in self.phases}}
        return table({**columns, **{f"{name}, greedy": one["greedy"] for name, one in self._evaluations().items()}})

    def _evaluations(self) -> dict[str, Evaluation]:
        return {"before": self.before, **{f"after {p.name}": p.after for p in self.phases}}

    def _rows(self) -> str:
        pair = len(self.phases) == 2
        names = [one.name for one in self.phases]
        head = "".join(f"{name:>12}" for name in names) + (f"{f'{names[1]}/{names[0]}':>13}  better" if pair else "")
        lines = [" " * 32 + head]
        for one in figures(self.phases):
            values = [one.of(p) for p in self.phases]
            cells = "".join(f"{shown(value, one.digits):>12}" for value in values)
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
        tasks = held.before["sampled"].attempts
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
