"""Faults that used to be silent: for each the tests that hold it and, where a law does, the mutants that the law kills.

Writes benchmarks/results/silence.json; exit code 1 where a test failed or was not found, or a mutant lives.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from purestep.properties.framework.matrix import FAMILIES, ORIGINAL, faults, matrix

from . import evidence
from .machines.engine_contracts import PASSED, Case, run

OURS = "tests.laws.families:families"  # laws of our own machinery


@frozen
class Item:
    """A fault, the tests that would fail if it came back, and the suite of laws about it."""

    tests: tuple[str, ...]  # file::test, without parameters; or a file
    suite: str = ""
    law: str = ""  # of the suite, where only one is about it


ITEMS: Mapping[str, Item] = {
    "memory goes on past an episode's end": Item(("test_rollout", "test_evaluate"), "memory_laws"),
    "a stale compiled form is loaded": Item(("test_sealed",), "identity_laws"),
    "undeclared metrics, schedules as numbers, flat and other parts, wrong dtypes": Item(("test_mistakes",)),
    "dropout trains": Item(("test_networks", "test_causal_lm")),
    "dtypes that a step changes": Item(("test_validate",)),
    "a reward that is no number": Item(("test_diverged",)),
    "the compiler's raw text": Item(("test_untraceable",)),
    "no backend": Item(("test_sealed::test_backend_none_calls_the_function_itself",)),
    "verify calls what it finds": Item(
        (
            "test_properties_api::test_the_command_calls_nothing_but_what_it_is_told_to_call",
            "test_properties_api::test_the_command_calls_what_it_is_told_to_call",
        )
    ),
    "moments and weights below float32": Item(("test_precision",), "precision_laws"),
    "generators are filled one after the other": Item(("test_scheduler",), "scheduler_laws", "generators_share_alike"),
    "an exception of a world ends the run": Item(("test_failing_environments",)),
}


def found(name: str, cases: list[Case]) -> Counter[str]:
    """Count the cases of a test, or of a file, by how they ended."""
    file, _, test = name.partition("::")
    return Counter(end for where, case, end, _ in cases if where == file and test in ("", case.partition("[")[0]))


def mutants(item: Item) -> dict[str, bool]:
    """Return by name whether the item's law kills each mutant; a fault of its suite's matrix counts as one that lives."""
    told: dict[str, bool] = {}
    tables = [table for source in (FAMILIES, OURS) for table in matrix((item.suite,), jobs=2, source=source)]
    for table in tables:
        for row in table.rows:
            if row.edit != ORIGINAL and (not item.law or item.law in row.owners):
                told[f"{table.suite}: {row.edit}"] = bool(row.killers) and set(row.owners) <= set(row.killers)
        told |= dict.fromkeys(faults((table,)), False)
    return told


def main() -> int:
    """Runs tests and mutants; 0 where each item is held."""
    argparse.ArgumentParser(prog="python -m benchmarks.silence", description=__doc__).parse_args()
    began = time.perf_counter()
    files = sorted({test.partition("::")[0] for item in ITEMS.values() for test in item.tests})
    cases = run([path for file in files for path in (evidence.ROOT / "tests").rglob(f"{file}.py")])
    rows: dict[str, Any] = {}
    wrong = []
    for name, item in ITEMS.items():
        tests = {test: dict(found(test, cases)) for test in item.tests}
        killed = mutants(item) if item.suite else {}
        held = all(tests.values()) and not any(set(ends) - {PASSED, "skipped"} for ends in tests.values())
        held = held and all(killed.values()) and bool(killed) == bool(item.suite)
        rows[name] = {"tests": tests, "mutants": killed, "held": held}
        wrong += [] if held else [name]
        print(
            f"{'held  ' if held else 'BROKEN'} {name}: {tests}, {sum(killed.values())} of {len(killed)} mutants killed"
        )
    evidence.write("silence", seconds=time.perf_counter() - began, figures={"broken": wrong, "items": rows})
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
