"""What is asked of a run whose hosts were killed, and whether the engines end alike: the verdicts of `engine_zorplex`."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from purestep.runtime.async_rl.comparison import accuracy_difference
from purestep.runtime.text.evaluation import ACCURACY, HIGH, LOW, EvaluationResult, wilson

from .async_outside import Row
from .async_verdicts import described

HOSTS = 2
LOST, SEEN = 2, 4  # generators: one on each host at least, and those in their places


def faults(row: Row) -> list[str]:
    """Where it did not learn, or did not lose its generators twice and go on, or what it learned from is not in order."""
    before, after = row["before"]["accuracy_high"], row["after"]["accuracy_low"]
    if "hosts killed and replaced" not in row:  # the engine of this machine alone
        on_hosts: tuple[tuple[object, str], ...] = ()
    else:
        on_hosts = _faults_of_hosts(row)
    found: tuple[tuple[object, str], ...] = (
        (after <= before, f"no better: at least {after:.3f} afterwards, at most {before:.3f} before"),
        *on_hosts,
        (row["left"], f"{row['left']} processes were left on the hosts"),
        (row["wrong"], f"what was learned from: {row['wrong'][:3]}"),
    )
    return [said for fault, said in found if fault]


def _faults_of_hosts(row: Row) -> tuple[tuple[object, str], ...]:
    killed = [one["processes killed"] for one in row["hosts killed and replaced"]]
    hosts, later, lost = len(killed), row["last updates that learned from replaced hosts alone"], row["generators lost"]
    return (
        (lost < LOST, f"{lost} generators lost, at least {LOST} were on the hosts"),
        (row["generators seen"] < SEEN, f"{row['generators seen']} generators seen, wanted at least {SEEN}"),
        (hosts != HOSTS, f"{hosts} hosts killed and replaced, wanted {HOSTS}"),
        (min(killed, default=2) < 2, f"{killed} processes killed on the hosts, wanted a host and a generator on each"),
        (later < 1, "the last update learned from samples that may be of hosts before they were replaced"),
    )


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


def compared(engines: Mapping[str, Mapping[str, Row]]) -> dict[str, Row]:
    """Final accuracies held against each other, two by two, on the seeds that both have trained.

    Over tasks, all of these seeds together, with a 95 % interval by score; over seeds, pairwise, with one by Student's t.
    """
    found = {}
    for one, other in combinations(engines, 2):
        seeds = [seed for seed in engines[one] if seed in engines[other]]
        if not seeds:
            continue
        mine, theirs = ([engines[name][seed]["after"] for seed in seeds] for name in (one, other))
        tasks = accuracy_difference(_together(mine), _together(theirs))
        apart = [left["accuracy"] - right["accuracy"] for left, right in zip(mine, theirs, strict=True)]
        found[f"{one} less {other}"] = {
            "over tasks": {"difference": tasks.value, "low": tasks.low, "high": tasks.high},
            "over seeds": described(apart),
        }
    return found


def unlike(pairs: Mapping[str, Row]) -> list[str]:
    """The pairs that differ beyond chance, in words: over seeds, or over tasks where there is one seed."""
    return [f"{name} is {said(row)}, and not 0" for name, row in pairs.items() if not _low(row) <= 0.0 <= _high(row)]


def said(row: Row) -> str:
    """A pair's difference in a few words.

    >>> tasks = {"difference": 0.01, "low": -0.02, "high": 0.04}
    >>> said({"over tasks": tasks, "over seeds": {"each": [0.01], "mean": 0.01}})
    '+0.010 [-0.020, +0.040] over tasks'
    >>> said({"over tasks": tasks, "over seeds": described([0.0, 0.01, 0.02])})
    '+0.010 [-0.020, +0.040] over tasks, [-0.015, +0.035] over 3 seeds'
    """
    tasks, seeds = row["over tasks"], row["over seeds"]
    line = f"{tasks['difference']:+.3f} [{tasks['low']:+.3f}, {tasks['high']:+.3f}] over tasks"
    several = len(seeds["each"]) > 1
    return f"{line}, [{seeds['low']:+.3f}, {seeds['high']:+.3f}] over {len(seeds['each'])} seeds" if several else line


def _low(row: Row) -> float:
    return float(row["over seeds"].get("low", row["over tasks"]["low"]))


def _high(row: Row) -> float:
    return float(row["over seeds"].get("high", row["over tasks"]["high"]))


def _together(rows: Sequence[Row]) -> EvaluationResult:
    """How several evaluations stand as one."""
    attempts = sum(row["attempts"] for row in rows)
    right = sum(round(row["accuracy"] * row["attempts"]) for row in rows)
    low, high = wilson(right, attempts)
    figures = {ACCURACY: right / attempts, LOW: low, HIGH: high}
    return EvaluationResult(attempts=attempts, reward=0.0, turns=0.0, tokens=0.0, figures=figures, modes={})
