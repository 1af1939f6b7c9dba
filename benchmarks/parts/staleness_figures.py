"""What the cells of `staleness` say together: means with intervals, claims with verdicts, a table.

The claims are about two scores of a seed: the return of its last policy, and the mean return along its run, the policy before
the first update left out. Differences are between equal seeds. That losses are equal holds where the 95 % interval of each
difference has 0 inside, an order holds by its means; on which side of 0 an interval lies is told beside it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from .intervals import Mean, mean_of
from .staleness_parts import LONGEST, METHODS, PASS, SAMPLING, UPDATE, Cell

STALENESS = (0, 1, 4, 8)
POINTS = 25  # of a curve in the results file
STALE = (4, 8)  # where the decoupled loss is to be no worse
NAMES = {
    "ppo": "plain PPO",
    "recomputed": "decoupled, recomputed",
    "interpolated": "decoupled, log-linear",
}
SCORES = ("final", "along")

Scores = Mapping[tuple[str, int], Sequence[float]]  # by method and staleness, of each seed


@frozen
class Verdict:
    """What became of a claim."""

    claim: str
    holds: bool
    differences: Mapping[str, Mean]

    def line(self) -> str:
        """It in one line.

        >>> Verdict("one is less", False, {"at 4": mean_of([2.0, 2.0])}).line()
        'one is less: no (at 4: 2.0 [2.0, 2.0], above 0)'
        """
        about = "; ".join(f"{name}: {value.text()}, {value.side()}" for name, value in self.differences.items())
        return f"{self.claim}: {'yes' if self.holds else 'no'} ({about})"


def apart(one: Sequence[float], other: Sequence[float]) -> Mean:
    """The difference of equal seeds, one less other."""
    return mean_of([a - b for a, b in zip(one, other, strict=True)])


def equal_at_0(scores: Scores) -> Verdict:
    """Without staleness the methods are the same: it holds where no interval leaves 0 out."""
    found = {
        NAMES[name]: apart(scores[name, 0], scores["ppo", 0])
        for name in METHODS[1:]
        if {(name, 0), ("ppo", 0)} <= scores.keys()
    }
    holds = every(found, lambda value: -math.inf < value.low <= 0.0 <= value.high)
    return Verdict("at staleness 0 the decoupled losses are plain PPO", holds, found)


def no_worse(scores: Scores, method: str) -> Verdict:
    """At staleness 4 and 8 a decoupled loss is at least as good as plain PPO."""
    ages = [age for age in STALE if (method, age) in scores and ("ppo", age) in scores]
    found = {f"at {age}": apart(scores[method, age], scores["ppo", age]) for age in ages}
    claim = f"at staleness 4 and 8 {NAMES[method]} is at least as good as plain PPO"
    return Verdict(claim, every(found, lambda value: value.mean >= 0.0), found)


def falls(scores: Scores, method: str) -> Verdict:
    """The return falls with staleness, from each age to the next."""
    ages = [age for age in STALENESS if (method, age) in scores]
    steps = itertools.pairwise(ages)
    found = {f"{young} to {old}": apart(scores[method, old], scores[method, young]) for young, old in steps}
    claim = f"the return of {NAMES[method]} falls with staleness"
    return Verdict(claim, every(found, lambda value: value.mean < 0.0), found)


def every(found: Mapping[str, Mean], is_so: Callable[[Mean], bool]) -> bool:
    """Whether all differences are so, of which there must be one.

    >>> every({}, lambda value: True)
    False
    """
    return bool(found) and all(is_so(value) for value in found.values())


def verdicts(scores: Scores) -> list[Verdict]:
    """The claims about which these cells say something."""
    decoupled = METHODS[1:]
    all_ = [
        equal_at_0(scores),
        *(no_worse(scores, name) for name in decoupled),
        *(falls(scores, name) for name in METHODS),
    ]
    return [verdict for verdict in all_ if verdict.differences]


def ordering(told: Sequence[Verdict]) -> str:
    """Whether the expected ordering appears, in words.

    >>> ordering([])
    'these cells say nothing about the expected ordering'
    """
    if not told:
        return "these cells say nothing about the expected ordering"
    broken = [verdict.claim for verdict in told if not verdict.holds]
    if not broken:
        return "the expected ordering appears"
    return "the expected ordering does not appear in full; what does not hold: " + "; ".join(broken)


def scores_of(cells: Iterable[Cell], score: str) -> dict[tuple[str, int], list[float]]:
    """Of each cell's seeds: the "final" return, or the mean "along" the run."""
    pick = final if score == "final" else along
    return {(cell.method, cell.staleness): pick(cell) for cell in cells}


def final(cell: Cell) -> list[float]:
    """The return of each seed's last policy."""
    return list(map(float, cell.returns[-1]))


def along(cell: Cell) -> list[float]:
    """The mean return of each seed's policies, the first left out."""
    return list(map(float, cell.returns[1:].mean(0)))


def described(cells: Sequence[Cell], steps: int) -> dict[str, Any]:
    """The cells and the verdicts as the results file holds them; `steps` are in the worlds, of each update and seed."""
    rows = {f"{cell.method}-{cell.staleness}": row(cell, steps) for cell in cells}
    judged = {score: verdicts(scores_of(cells, score)) for score in SCORES}
    words = {
        score: {"ordering": ordering(told), "claims": [claim(verdict) for verdict in told]}
        for score, told in judged.items()
    }
    return {"verdicts": words, "final returns": at_the_top(cells), "cells": rows}


def claim(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON has words for."""
    differences = {name: {**value.described(3), "side": value.side()} for name, value in verdict.differences.items()}
    return {"claim": verdict.claim, "holds": verdict.holds, "differences": differences}


def row(cell: Cell, steps: int) -> dict[str, Any]:
    """A cell."""
    kept = decimated(len(cell.updates))
    curve = [mean_of(cell.returns[place].tolist()) for place in kept]
    return {
        "final": mean_of(final(cell)).described(3),
        "along": mean_of(along(cell)).described(3),
        "final of each seed": [round(value, 2) for value in final(cell)],
        "seconds": {part: round(value, 3) for part, value in cell.seconds.items()},
        "milliseconds of a call, median": {part: round(1e3 * value, 3) for part, value in cell.median.items()},
        "update": {name: round(value, 5) for name, value in cell.figures.items()},
        "curve": {
            "steps": [cell.updates[place] * steps for place in kept],
            "mean": [round(point.mean, 2) for point in curve],
            **{
                side: [round(getattr(p, side), 2) for p in curve]
                for side in ("low", "high")
                if cell.returns.shape[1] > 1
            },
        },
    }


def decimated(points: int) -> list[int]:
    """Places of about POINTS points of a curve, evenly spread, the first and the last among them.

    >>> decimated(3), decimated(99)[:3], decimated(99)[-1], len(decimated(99))
    ([0, 1, 2], [0, 4, 8], 98, 26)
    """
    every = max(1, round(points / POINTS))
    return sorted({*range(0, points, every), points - 1})


def at_the_top(cells: Sequence[Cell]) -> str:
    """How many cells end where no return is higher, so that the final return tells nothing of them apart."""
    top = sum(all(value == LONGEST for value in final(cell)) for cell in cells)
    return f"all seeds end with the highest return there is, {LONGEST}, in {top} of {len(cells)} cells"


def table(cells: Sequence[Cell]) -> str:
    """A line for each cell; milliseconds are the median of a call, for all seeds."""
    parts = (SAMPLING, PASS, UPDATE)
    columns = "  ".join(f"{part + ' ms':>16}" for part in parts)
    lines = [f"{'':24}{'staleness':>10}{'final return':>24}{'mean along the run':>24}  {columns}  {'seconds':>8}"]
    for cell in cells:
        last, mean = mean_of(final(cell)), mean_of(along(cell))
        spent = "  ".join(f"{1e3 * cell.median[part]:16.2f}" if part in cell.median else f"{'-':>16}" for part in parts)
        whole = sum(value for part, value in cell.seconds.items() if part != PASS)
        lines.append(
            f"{NAMES[cell.method]:24}{cell.staleness:10}{last.text():>24}{mean.text():>24}  {spent}  {whole:8.1f}"
        )
    return "\n".join(lines)
