"""What several seeds of asynchronous training say together, beside as many in turns: means, intervals, a verdict.

A part of `async_zorplex`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .async_outside import Row
from .intervals import Mean, mean_of

SEEDS, KILLED = ("0", "1", "2"), "killed"  # the parts there are
PHASES = ("sync", "async")
MARGIN = 0.05  # of accuracy: what is further below than that is worse


def described(values: Sequence[float]) -> dict[str, Any]:
    """Return values and their mean with its interval, as JSON has words for.

    >>> described([0.5])
    {'each': [0.5], 'mean': 0.5}
    """
    return {"each": [round(value, 4) for value in values], **mean_of(values).described(4)}


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
    apart = [one - other for one, other in zip(added["added async"], added["added sync"], strict=True)]
    ratios = [row["comparison"]["ratios"] for row in rows]
    return {
        "seeds": len(rows),
        **{name: described(values) for name, values in (taken | added).items()},
        "async less sync": described(apart),
        "async improves": mean_of(added["added async"]).low > 0.0,
        "async is": beside(mean_of(apart)),
        "seconds, the most": max(row["seconds"] for row in rows),
        "async / sync": {
            name: described([row[name] for row in ratios]) for name in ratios[0] if all(name in row for row in ratios)
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
