"""What several seeds of asynchronous training say together, beside as many in turns: means, intervals, a verdict.

A part of `async_zorplex`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from .async_outside import Row

SEEDS, KILLED = ("0", "1", "2"), "killed"  # the parts there are
PHASES = ("sync", "async")
MARGIN = 0.05  # of accuracy: what is further below than that is worse
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}  # 97.5 %


@frozen
class Mean:
    """A mean of independent values with its 95 % interval by Student's t, which one value does not have."""

    each: tuple[float, ...]
    mean: float
    low: float
    high: float

    def described(self) -> dict[str, Any]:
        """It as JSON has words for."""
        bounds = {"low": self.low, "high": self.high} if len(self.each) > 1 else {}
        rounded = {name: round(value, 4) for name, value in {"mean": self.mean, **bounds}.items()}
        return {"each": [round(value, 4) for value in self.each], **rounded}

    def line(self) -> str:
        """It in a few words.

        >>> mean_of([0.5, 0.6, 0.7]).line(), mean_of([0.5]).line()
        ('+0.600 [+0.352, +0.848]', '+0.500 of one seed')
        """
        tail = f"[{self.low:+.3f}, {self.high:+.3f}]" if len(self.each) > 1 else "of one seed"
        return f"{self.mean:+.3f} {tail}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean and m -+ t sqrt(s^2 / n), with s^2 the variance by n - 1."""
    number = len(values)
    mean = math.fsum(values) / number
    if number == 1:
        return Mean(tuple(values), mean, -math.inf, math.inf)
    variance = math.fsum((value - mean) ** 2 for value in values) / (number - 1)
    half = STUDENT[number - 1] * math.sqrt(variance / number)
    return Mean(tuple(values), mean, mean - half, mean + half)


def beside(difference: Mean) -> str:
    """What the difference of two improvements, at once less in turns, says.

    >>> beside(mean_of([0.01, -0.01, 0.0])), beside(mean_of([-0.2, -0.21, -0.22])), beside(mean_of([0.2, -0.2, 0.0]))
    ('no worse than in turns by more than 0.05', 'worse than in turns', 'undecided')
    """
    if difference.high < 0.0:
        return "worse than in turns"
    if difference.low > 0.0:
        return "better than in turns"
    return f"no worse than in turns by more than {MARGIN:g}" if difference.low >= -MARGIN else "undecided"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Accuracy over seeds, what training added, the verdict on the difference, and the ratios of the comparison tables."""
    taken = {name: [row[name]["accuracy"] for row in rows] for name in ("before", *PHASES)}
    added = {
        f"added {name}": [after - before for after, before in zip(taken[name], taken["before"], strict=True)]
        for name in PHASES
    }
    apart = mean_of([one - other for one, other in zip(added["added async"], added["added sync"], strict=True)])
    told = {name: mean_of(values) for name, values in (taken | added).items()}
    ratios = [row["comparison"]["ratios"] for row in rows]
    return {
        "seeds": len(rows),
        **{name: mean.described() for name, mean in told.items()},
        "async less sync": apart.described(),
        "async improves": told["added async"].low > 0.0,
        "async is": beside(apart),
        "seconds, the most": max(row["seconds"] for row in rows),
        "async / sync": {
            name: mean_of([row[name] for row in ratios]).described()
            for name in ratios[0]
            if all(name in row for row in ratios)
        },
    }


def merged(old: Mapping[str, Any], name: str, part: Row) -> dict[str, Any]:
    """The figures of a results file with one part put in or replaced, and what all its seeds say together."""
    found = {**old.get("parts", {}), name: part}
    parts = {name: found[name] for name in (*SEEDS, KILLED) if name in found}
    seeds = [parts[name] for name in SEEDS if name in parts]
    return {**({"summary": summary(seeds)} if seeds else {}), "parts": parts}


def refuted(told: Mapping[str, Any]) -> bool:
    """Whether all three seeds together say that training at once does not do what training in turns does.

    >>> refuted({"seeds": 3, "async improves": True, "async is": "worse than in turns"}), refuted({"seeds": 1})
    (True, False)
    """
    whole = told.get("seeds") == len(SEEDS)
    return whole and not (told["async improves"] and told["async is"] != "worse than in turns")
