"""What is asked of a run whose hosts were killed, and whether the engines end alike: the verdicts of `engine_zorplex`."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from attrs import evolve

from purestep.runtime.asynchronous.comparing import difference
from purestep.runtime.language.evaluate import Standing, standing

from .async_outside import Row

HOSTS = 2
LOST, SEEN = 2, 4  # generators: one on each host at least, and those in their places


def faults(row: Row) -> list[str]:
    """Where it did not learn, or did not lose its generators twice and go on, or what it learned from is not in order."""
    before, after, lost = row["before"]["accuracy_high"], row["after"]["accuracy_low"], row["generators lost"]
    killed = [one["processes killed"] for one in row["hosts killed and replaced"]]
    hosts, later = len(killed), row["last updates that learned from replaced hosts alone"]
    found: tuple[tuple[object, str], ...] = (
        (after <= before, f"no better: at least {after:.3f} afterwards, at most {before:.3f} before"),
        (lost < LOST, f"{lost} generators lost, at least {LOST} were on the hosts"),
        (row["generators seen"] < SEEN, f"{row['generators seen']} generators seen, wanted at least {SEEN}"),
        (hosts != HOSTS, f"{hosts} hosts killed and replaced, wanted {HOSTS}"),
        (min(killed, default=2) < 2, f"{killed} processes killed on the hosts, wanted a host and a generator on each"),
        (later < 1, "the last update learned from samples that may be of hosts before they were replaced"),
        (row["left"], f"{row['left']} processes were left on the hosts"),
        (row["wrong"], f"what was learned from: {row['wrong'][:3]}"),
    )
    return [said for fault, said in found if fault]


def replaced_alone(rows: Sequence[Row], updates: int) -> int:
    """How many of the last updates learned only from samples that were begun after so many updates, and one.

    When the second host is gone there is no host that was not replaced; one more version may have been on its way.

    >>> rows = [{"samples": [[0, 0, 0, 9, head, 4, 7], [0, 1, 0, 9, 4, 4, 7]]} for head in (1, 4, 3, 4)]
    >>> replaced_alone(rows, 2), replaced_alone(rows, 1), replaced_alone(rows, 3)
    (1, 3, 0)
    """
    found = 0
    for row in reversed(rows):
        if any(head <= updates + 1 for *_, head, _, _ in row["samples"]):
            break
        found += 1
    return found


def compared(engines: Mapping[str, Row]) -> dict[str, Row]:
    """Final accuracies held against each other, two by two, with 95 % intervals."""
    found = {}
    for one, other in combinations(engines, 2):
        told = difference(_standing(engines[one]["after"]), _standing(engines[other]["after"]))
        found[f"{one} less {other}"] = {"difference": told.value, "low": told.low, "high": told.high}
    return found


def unlike(pairs: Mapping[str, Row]) -> list[str]:
    """The pairs that differ beyond chance, in words."""
    return [
        f"{name} is {row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}], and not 0"
        for name, row in pairs.items()
        if not row["low"] <= 0.0 <= row["high"]
    ]


def _standing(row: Row) -> Standing:
    shares = {name: row[name] for name in ("attempts", "accuracy", "accuracy_low", "accuracy_high")}
    return evolve(standing(()), **shares)
