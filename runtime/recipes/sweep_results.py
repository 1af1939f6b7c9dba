"""Results of a sweep: of each member, and of each setting over its seeds. Imports no torch."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from attrs import asdict, frozen

from .sweep_settings import Point

Curve = tuple[
    tuple[float, float], ...
]  # (environment steps, mean return of the episodes finished since the last point)


@frozen
class Trial:
    """The result of one member at the end of a rung."""

    point: Point
    seed: int
    score: float  # mean return of the evaluation; -inf for a member whose numbers were not finite
    curve: Curve
    rung: int = 1  # of successive halving, from 1


def trial_row(trial: Trial) -> dict[str, Any]:
    """Return a result as a JSON value; the inverse of `trial_of`.

    >>> trial_of(trial_row(Trial({"clip": 0.1}, 0, -math.inf, ((4.0, 1.0),))))
    Trial(point={'clip': 0.1}, seed=0, score=-inf, curve=((4.0, 1.0),), rung=1)
    """
    return {**asdict(trial), "score": trial.score if math.isfinite(trial.score) else None}


def trial_of(row: Mapping[str, Any]) -> Trial:
    """Return the result that a JSON value holds."""
    score = -math.inf if row["score"] is None else row["score"]
    return Trial(row["point"], row["seed"], score, tuple((x, y) for x, y in row["curve"]), row["rung"])


def mean_score(scores: Sequence[float]) -> float:
    """Return the mean over the seeds, -inf where a seed's numbers were not finite.

    >>> mean_score((1.0, 3.0)), mean_score((1.0, -math.inf))
    (2.0, -inf)
    """
    return fmean(scores) if all(map(math.isfinite, scores)) else -math.inf


@frozen
class Ranked:
    """A setting with the results of its seeds in the last rung that it reached."""

    point: Point
    scores: tuple[float, ...]
    curves: tuple[Curve, ...]
    rung: int = 1

    def mean(self) -> float:
        """Return the mean score, -inf where a seed's numbers were not finite."""
        return mean_score(self.scores)


def rank_settings(found: Sequence[Trial]) -> list[Ranked]:
    """Return the settings, those of the last rung first, and of a rung the one with the best mean over its seeds.

    >>> rows = [Trial({"clip": clip}, seed, score, ()) for clip, seed, score in ((0.1, 0, 3.0), (0.1, 1, 5.0), (0.2, 0, 9.0))]
    >>> [(one.point["clip"], one.mean()) for one in rank_settings(rows)]
    [(0.2, 9.0), (0.1, 4.0)]
    >>> [(one.point["clip"], one.rung) for one in rank_settings([*rows, Trial({"clip": 0.1}, 0, 2.0, (), 2)])]
    [(0.1, 2), (0.2, 1)]
    """
    groups: dict[tuple[tuple[str, float], ...], list[Trial]] = {}
    for trial in found:
        groups.setdefault(tuple(trial.point.items()), []).append(trial)
    rows = [_ranked(point, several) for point, several in groups.items()]
    return sorted(rows, key=lambda one: (-one.rung, -one.mean()))


def _ranked(point: tuple[tuple[str, float], ...], several: Sequence[Trial]) -> Ranked:
    rung = max(one.rung for one in several)
    last = [one for one in several if one.rung == rung]
    return Ranked(dict(point), tuple(one.score for one in last), tuple(one.curve for one in last), rung)
