"""What the figures are held against: ratios of a comparison, and the floors and aims set for them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from .sides import Report


@frozen
class Target:
    """The least that is acceptable and what is hoped for; for seconds the less the better."""

    floor: float
    aim: float
    more_is_better: bool = True


@frozen
class Verdict:
    """A figure beside its target."""

    what: str
    value: float
    unit: str
    target: Target
    verdict: str  # "aim reached", "floor reached" or "short"

    def line(self) -> str:
        """It in one line."""
        target = f"floor {self.target.floor:g}, aim {self.target.aim:g}"
        return f"{self.what:64} {self.value:8.2f} {self.unit:2} ({target}: {self.verdict})"


SLOW = {"stable-baselines3": Target(15.0, 25.0), "torchrl": Target(4.0, 7.0)}
# steps/s, ours divided by theirs: workload or population -> side -> target
AGAINST: Mapping[str, Mapping[str, Target]] = {
    "4x128": {"rejax": Target(1.0, 1.5), "purejaxrl": Target(1.0, 1.5), **SLOW},
    "64x128": {"rejax": Target(1.0, 2.0), "purejaxrl": Target(1.0, 2.0), **SLOW},
    "1024x32": {"rejax": Target(1.0, 2.0), "purejaxrl": Target(1.0, 2.0), **SLOW},
    **{f"{seeds} seeds of 4x128": {"rejax": Target(1.0, 1.2)} for seeds in (1, 8, 32)},
}
FIRST_UPDATE = {"cold": Target(15.0, 10.0, more_is_better=False), "warm": Target(3.0, 2.0, more_is_better=False)}


def judged(what: str, value: float, target: Target, unit: str = "") -> Verdict:
    """The verdict on a figure.

    >>> judged("speed", 0.8, Target(0.7, 1.0)).verdict, judged("seconds", 16.0, FIRST_UPDATE["cold"]).verdict
    ('floor reached', 'short')
    """
    sign = 1.0 if target.more_is_better else -1.0
    if sign * value >= sign * target.aim:
        verdict = "aim reached"
    else:
        verdict = "floor reached" if sign * value >= sign * target.floor else "short"
    return Verdict(what, value, unit, target, verdict)


def rate(report: Report, seconds: str) -> float:
    """Steps for each second of "run_seconds" or "cpu_seconds"."""
    return float(report["steps"] / report[seconds])


def ratio(ours: Sequence[Report], theirs: Sequence[Report], seconds: str) -> float:
    """The median, over repetitions, of our rate divided by theirs in the same repetition.

    A side with fewer repetitions is compared with as many of ours.

    >>> one, two = {"steps": 8, "run_seconds": 1.0}, {"steps": 8, "run_seconds": 4.0}
    >>> ratio([one, one, one], [two, two], "run_seconds")
    4.0
    """
    pairs = zip(ours, theirs, strict=False)
    return statistics.median(rate(a, seconds) / rate(b, seconds) for a, b in pairs)


def medians(reports: Sequence[Report]) -> dict[str, float]:
    """The median over repetitions of every number that all reports have, and of steps for each processor second.

    >>> medians([{"steps": 2, "cpu_seconds": 1.0}, {"steps": 4, "cpu_seconds": 1.0}])["steps_per_cpu_second"]
    3.0
    """
    rows: list[dict[str, Any]] = [{**report, "steps_per_cpu_second": rate(report, "cpu_seconds")} for report in reports]
    names = [name for name, value in rows[0].items() if isinstance(value, int | float)]
    return {name: statistics.median(row[name] for row in rows) for name in names if all(name in row for row in rows)}


def verdicts(workload: str, reports: Mapping[str, Sequence[Report]]) -> list[Verdict]:
    """Ours against each peer that ran, by wall clock and by processor time, and the time to the first update."""
    ours, found = reports.get("purestep", ()), []
    for side, target in AGAINST.get(workload, {}).items():
        if ours and reports.get(side):
            for seconds, measure in (("run_seconds", "wall clock"), ("cpu_seconds", "processor time")):
                what = f"{workload}: steps/s against {side}, {measure}"
                found.append(judged(what, ratio(ours, reports[side], seconds), target, "x"))
    if ours:
        numbers = medians(ours)
        for kind, name in (("cold", "first_update_seconds"), ("warm", "warm_first_update_seconds")):
            if name in numbers:
                what = f"{workload}: time to first update, {kind}"
                found.append(judged(what, numbers[name], FIRST_UPDATE[kind], "s"))
    return found


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a results file holds it."""
    return asdict(verdict)
