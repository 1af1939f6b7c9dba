"""Matrix of laws and mistakes: every mutant checked against every law of its suite.

python -m purestep.properties.framework.matrix [--jobs 2] [--night] [--suite estimator_laws] [--out results.json]
python -m purestep.properties.framework.matrix --families tests.laws.families:families    # of laws that are not shipped
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from .families import Family
from .law import Mutant
from .profiles import Profile, named_profile
from .report import BROKEN, PASSED, SKIPPED, VACUOUS
from .run import absent, run
from .target import load_target

MARKS = {BROKEN: "KILL", PASSED: ".", VACUOUS: "vacuous", SKIPPED: "skipped"}
ORIGINAL = "(the original)"
FAMILIES = f"{Family.__module__}:families"  # of this package
Place = tuple[
    str, int, int, str
]  # source of the families, index of the family, index of the mutant (-1: the original), profile


@frozen
class Row:
    """Outcome of one subject for each law of its suite."""

    edit: str
    owners: tuple[str, ...]  # the laws whose own mutant it is
    outcomes: dict[str, str]

    @property
    def killers(self) -> tuple[str, ...]:
        """The laws that the subject breaks."""
        return tuple(law for law, outcome in self.outcomes.items() if outcome == BROKEN)


@frozen
class Table:
    """One suite's part of the matrix; the first row is the correct subject."""

    suite: str
    rows: tuple[Row, ...]
    seconds: float

    def markdown(self) -> str:
        """Return the table as markdown: a row for each mistake, a column for each law, a law's own mutant in bold."""
        laws = list(self.rows[0].outcomes)
        head = [f"### {self.suite}", "", f"| edit | {' | '.join(laws)} |", f"|---|{'---|' * len(laws)}"]
        return "\n".join([*head, *(self._row(row, laws) for row in self.rows)])

    def _row(self, row: Row, laws: Sequence[str]) -> str:
        cells = [MARKS[row.outcomes[law]] for law in laws]
        cells = [f"**{c}**" if law in row.owners else c for law, c in zip(laws, cells, strict=True)]
        return f"| {row.edit} | {' | '.join(cells)} |"


def row(family: Family, mutant: Mutant | None, profile: Profile) -> Row:
    """Return the outcomes of one mutant, or of the original, for all laws of the family's suite."""
    outcomes = {}
    for law in family.suite:
        # A new subject for each law, so that state kept by a mutant does not carry over to the next law.
        subject = mutant.make(family.subject) if mutant else family.subject
        outcomes[law.name] = run(law, subject, profile=profile, shrink=False).outcome
    owners = tuple(law.name for law in family.suite if mutant and law.mutant.edit == mutant.edit)
    return Row(mutant.edit if mutant else ORIGINAL, owners, outcomes)


def laws_here(family: Family, profile: Profile) -> Family:
    """Return the family with only the laws that the profile and this machine can run."""
    away = {law.name for law in family.suite if absent(law, family.subject, profile)}
    return evolve(family, suite=family.suite - away)


@cache
def families_of(source: str) -> tuple[Family, ...]:
    """Return the families that the function `package.module:function` returns. Raises: StructureError.

    They are made once in a process, since every row of the matrix is found in them.
    """
    found: tuple[Family, ...] = load_target(source)()
    return found


@cache
def _family(source: str, number: int, profile: str) -> Family:
    return laws_here(families_of(source)[number], named_profile(profile))


def _task(place: Place) -> tuple[Row, float]:
    """Return one row and its seconds; names and indices identify it, so that another process can compute it."""
    source, number, edit, name = place
    start, family = time.perf_counter(), _family(source, number, name)
    mutant = None if edit < 0 else family.mutants[edit]
    return row(family, mutant, named_profile(name)), time.perf_counter() - start


def matrix(
    suites: Container[str] = (), *, night: bool = False, jobs: int = 1, source: str = FAMILIES
) -> Iterator[Table]:
    """Yield the table of each suite named, or of all; slow families only if named or with `night`. `jobs` are processes.

    `source` is the function that returns the families, as `package.module:function`.
    """
    tasks: list[list[Place]] = []
    families = families_of(source)
    for i, family in enumerate(families):
        if (family.suite.name in suites) if suites else (night or not family.night):
            profile = "night" if family.night else "quick"
            count = len(_family(source, i, profile).mutants)
            tasks.append([(source, i, j, profile) for j in range(-1, count)])
    with _workers(jobs) as work:
        waiting = [work(_task, places) for places in tasks]
        for places, rows in zip(tasks, waiting, strict=True):
            done = list(rows)
            name = families[places[0][1]].suite.name
            yield Table(name, tuple(entry for entry, _ in done), sum(seconds for _, seconds in done))


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterable[tuple[Row, float]]]]:
    if jobs == 1:
        yield map
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield pool.map


def faults(tables: Iterable[Table]) -> list[str]:
    """Return a matrix's faults: a broken original, a mutant that no law kills, one that its own law spares, one all kill."""
    found = []
    for part in tables:
        for entry in part.rows:
            where = f"{part.suite}: {entry.edit}"
            wrong = [law for law, outcome in entry.outcomes.items() if outcome != PASSED]
            if entry.edit == ORIGINAL:
                found += [f"{where}: does not pass {wrong}"] if wrong else []
                continue
            spared = [law for law in entry.owners if law not in entry.killers]
            if spared:
                found.append(f"{where}: spared by the law it belongs to, {spared}")
            if not entry.killers:
                found.append(f"{where}: killed by no law")
            if len(entry.outcomes) > 2 and len(entry.killers) == len(entry.outcomes):
                found.append(f"{where}: killed by every law, too coarse to tell them apart")
    return found


def matrix_values(tables: Sequence[Table]) -> dict[str, Any]:
    """Return the matrix as JSON values."""
    mutants = [entry for part in tables for entry in part.rows if entry.edit != ORIGINAL]
    return {
        "suites": len({part.suite for part in tables}),
        "laws": sum(len(part.rows[0].outcomes) for part in tables),
        "mutants": len(mutants),
        "killed": sum(bool(entry.killers) for entry in mutants),
        "faults": faults(tables),
        "tables": {
            part.suite: {
                "seconds": round(part.seconds, 1),
                "rows": [{"edit": r.edit, "own_laws": r.owners, "outcomes": r.outcomes} for r in part.rows],
            }
            for part in tables
        },
    }


def commit() -> str:
    """Return the checkout's commit, "unknown" outside of one; a "+" at the end means uncommitted changes."""
    folder = Path(__file__).parent

    def ask(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        name, changes = ask("rev-parse", "HEAD"), ask("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + ("+" if changes else "")


def write_figures(
    path: Path, module: str, arguments: Sequence[str] | None, seconds: float, result: dict[str, Any]
) -> None:
    """Write the figures of a command of this package, with its commit, arguments and seconds, as JSON."""
    words = ["python", "-m", f"purestep.properties.framework.{module}"]
    command = " ".join([*words, *(sys.argv[1:] if arguments is None else arguments)])
    written = {"commit": commit(), "command": command, "seconds": round(seconds, 1), "figures": result}
    path.write_text(json.dumps(written, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the matrix as markdown; return 1 if it has faults."""
    parser = argparse.ArgumentParser(prog="python -m purestep.properties.framework.matrix", description=main.__doc__)
    parser.add_argument("--families", default=FAMILIES, help="module:function")
    parser.add_argument("--suite", action="append", help="only this suite; may be given more than once")
    parser.add_argument("--night", action="store_true", help="the slow families as well")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="a JSON file for commit, command, seconds and figures")
    options = parser.parse_args(arguments)
    start, tables = time.perf_counter(), []
    for part in matrix(options.suite or (), night=options.night, jobs=options.jobs, source=options.families):
        tables.append(part)
        print(part.markdown(), end="\n\n", flush=True)
    seconds, wrong = time.perf_counter() - start, faults(tables)
    result = matrix_values(tables)
    counts = ", ".join(f"{result[name]} {name}" for name in ("suites", "laws", "mutants", "killed"))
    print(f"{counts}, {seconds:.0f} s")
    print("\n".join(wrong) or "every law kills its own mutant and spares the original")
    if options.out:
        write_figures(options.out, "matrix", arguments, seconds, result)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
