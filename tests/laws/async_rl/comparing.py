"""Laws of a comparison of phases: ratios are quotients, the better phase follows from the numbers, noise is not a difference.

The subject is a `Comparing`: functions of `runtime.async_rl.comparison`.
"""

import math
from collections.abc import Callable, Sequence

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.async_rl import comparison
from purestep.runtime.async_rl.comparison import LESS, MORE, Comparison, Difference, Figure, PhaseTotals
from purestep.runtime.async_rl.scheduler.timeline import TRAINER, Shift
from purestep.runtime.text.evaluation import ACCURACY, HIGH, LOW, EvaluationResult, wilson

SOURCE = "runtime.async_rl.comparison: ratios computed, never asserted"


@frozen
class Comparing:
    """The subject: the functions that compare two phases."""

    ratios: Callable[[Comparison], dict[str, float]]
    better: Callable[[Figure, float, float, Sequence[str]], str]
    difference: Callable[[EvaluationResult, EvaluationResult], Difference]


def own_comparing() -> Comparing:
    """Return the library's own functions."""
    return Comparing(Comparison.ratios, comparison.better, comparison.accuracy_difference)


def share(right: int, tasks: int) -> EvaluationResult:
    """A standing of so many right answers."""
    low, high = wilson(right, tasks)
    figures = {ACCURACY: right / tasks, LOW: low, HIGH: high}
    return EvaluationResult(attempts=tasks, reward=0.0, turns=1.0, tokens=1.0, figures=figures, modes={})


@st.composite
def phases(draw: DrawFn, name: str) -> PhaseTotals:
    """A phase with any numbers."""
    updates, busy = draw(st.integers(1, 40)), draw(st.integers(0, 16))
    tokens, wasted = draw(st.integers(1, 4000)), draw(st.integers(0, 500))
    tasks = draw(st.sampled_from((4, 64, 256)))
    held = {how: share(draw(st.integers(0, tasks)), tasks) for how in ("sampled", "greedy")}
    return PhaseTotals(
        name=name,
        generators=draw(st.integers(1, 4)),
        staleness=1,
        updates=updates,
        sessions=1,
        seconds=float(draw(st.integers(8, 64))),
        start=4.0,
        submitted=8 * updates,
        accepted=8 * updates,
        rejected=0,
        filtered=0,
        consumed=8 * updates,
        tokens_sampled=tokens + wasted,
        tokens_used=tokens,
        tokens_wasted=wasted,
        ages=tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))),
        shifts=(Shift(TRAINER, float(busy), 16.0 - busy, {"train": float(busy)}),),
        waited=1.0,
        updated=1.0,
        anchored=0.0,
        lost_generators=0,
        tool_failures=0,
        after=held,
    )


def comparing_laws() -> Suite:
    """The laws of a `Comparing`."""
    return Suite("comparing_laws", (_ratios(), _better(), _difference(), _chance()))


_law = law_constructor(st.nothing, SOURCE, most=300)


def _ratios() -> Law:
    def check(subject: Comparing, pair: tuple[PhaseTotals, PhaseTotals], seen: Seen) -> None:
        first, second = pair
        before = first.after
        found, back = (
            subject.ratios(Comparison((first, second), before)),
            subject.ratios(Comparison((second, first), before)),
        )
        for name, value in found.items():
            seen("a ratio below 1", value < 1)
            seen("a ratio above 1", value > 1)
            rows = {one.name.strip(): one for one in comparison.phase_rows(pair)}
            one, other = rows[name].of(second), rows[name].of(first)
            require(math.isclose(value * other, one, rel_tol=1e-9), f"{name}: {value} is not {one} / {other}")
            inverse = back.get(name, math.nan)
            require(not value or math.isclose(value * inverse, 1.0), f"{name}: {value}, the other way round {inverse}")
        require("wall seconds" in found and "seconds an update" in found, "no ratio of speeds")
        same("ratios of one phase", subject.ratios(Comparison((first,), before)), {})

    claim = "A ratio is the second phase's figure by the first one's, and the other way round its inverse."
    pair = st.tuples(phases("sync"), phases("async"))
    mutant = Mutant("says how many times as fast it is", _speedup)
    return _law("ratios_are_quotients", claim, mutant, check, "a ratio below 1", "a ratio above 1", inputs=pair)


def _speedup(subject: Comparing) -> Comparing:
    def ratios(held: Comparison) -> dict[str, float]:
        found = subject.ratios(held)
        return {name: 1 / value if "seconds" in name and value else value for name, value in found.items()}

    return evolve(subject, ratios=ratios)


def _better() -> Law:
    def check(subject: Comparing, drawn: tuple[int, int, str], seen: Seen) -> None:
        first, second, kind = drawn
        row = Figure("a figure", lambda phase: 0.0, better=kind)
        found = subject.better(row, first, second, ("sync", "async"))
        turned = subject.better(row, second, first, ("async", "sync"))
        same("what is better, the other way round", turned, found)
        winner = min if kind == LESS else max
        wanted = {first: "sync", second: "async"}[winner(first, second)] if kind and first != second else ""
        seen("async is better", wanted == "async")
        seen("sync is better", wanted == "sync")
        same("what is better", found, wanted)

    claim = (
        "What is better is the smaller or the larger number, whoever it is of; equal numbers and mere counts have none."
    )
    inputs = st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from((LESS, MORE, "")))
    mutant = Mutant("says that async is better", lambda one: evolve(one, better=lambda *given, **named: "async"))
    return _law("nobody_is_favoured", claim, mutant, check, "async is better", "sync is better", inputs=inputs)


Shares = tuple[int, int, int]  # right answers of one and of the other, and the tasks


def _shares() -> st.SearchStrategy[Shares]:
    return st.sampled_from((16, 100, 256)).flatmap(
        lambda tasks: st.tuples(st.integers(0, tasks), st.integers(0, tasks), st.just(tasks))
    )


def _difference() -> Law:
    def check(subject: Comparing, drawn: Shares, seen: Seen) -> None:
        right, other, tasks = drawn
        one, two = share(right, tasks), share(other, tasks)
        found, back = subject.difference(one, two), subject.difference(two, one)
        seen("a difference", right != other)
        require(
            math.isclose(found.value, (right - other) / tasks, abs_tol=1e-12), f"{right} less {other}: {found.value}"
        )
        require(-1 <= found.low <= found.value <= found.high <= 1, f"the interval of {found.value} is not around it")
        mirrored = (math.isclose(found.low, -back.high), math.isclose(found.high, -back.low))
        require(all(mirrored), f"{found}, the other way round {back}")

    claim = "A difference lies in its interval, within -1 and 1, and is turned round with what it is of."
    mutant = Mutant("subtracts bound from bound", _bounds)
    return _law("differences_have_intervals", claim, mutant, check, "a difference", inputs=_shares())


def _bounds(subject: Comparing) -> Comparing:
    def difference(one: EvaluationResult, other: EvaluationResult) -> Difference:
        low, high = one.accuracy_low - other.accuracy_low, one.accuracy_high - other.accuracy_high
        return Difference(one.accuracy - other.accuracy, low, high)

    return evolve(subject, difference=difference)


def _chance() -> Law:
    def check(subject: Comparing, drawn: Shares, seen: Seen) -> None:
        right, other, tasks = drawn
        one, two = share(right, tasks), share(other, tasks)
        said = subject.difference(one, two).verdict()
        apart = one.accuracy_low > two.accuracy_high or two.accuracy_low > one.accuracy_high
        near = (
            one.accuracy_low <= two.accuracy <= one.accuracy_high
            and two.accuracy_low <= one.accuracy <= two.accuracy_high
        )
        seen("a difference that is none", near and right != other)
        seen("a difference that is one", apart)
        if apart:
            same("what is said of intervals that are apart", said, MORE if right > other else LESS)
        if near:
            same("what is said of shares within each other's intervals", said, "")

    claim = "Intervals that are apart make a difference; shares within each other's intervals make none."
    mutant = Mutant("takes every difference for one", _certain)
    return _law(
        "chance_is_no_difference",
        claim,
        mutant,
        check,
        "a difference that is none",
        "a difference that is one",
        inputs=_shares(),
        share=0.01,
    )


def _certain(subject: Comparing) -> Comparing:
    def difference(one: EvaluationResult, other: EvaluationResult) -> Difference:
        value = subject.difference(one, other).value
        return Difference(value, value, value)

    return evolve(subject, difference=difference)
