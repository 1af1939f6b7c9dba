"""Runs of `purestep train` that are killed, stopped, robbed of their disk, folder or memory; then they go on, and are the same.

Each case is a run of seconds, of PPO, of proving, of zorplex in turns or with generators, in a folder of its own. What befalls
it, and when, follows from the seed. Afterwards the run goes on to its end, and has to be that of a run which nobody disturbed:
files, newest checkpoint with every tensor and the machine's state, rows of metrics, but for columns of times and pictures of
speeds. With generators, where timing decides which samples are learned from: the warm start so, every sample learned from
once, no update missing, the event log replayed bit for bit. Where a session cannot go on it has to say so in one line. Ten
seconds after the last there may be no process of it, no shared memory, no temporary file.

As root it works in a mount namespace of its own, in which small disks are mounted; sessions then have none of root's
privileges. Prints a table, writes results/faults.json; with --only, --fault or --kills, results/faults_small.json. Linux
only. Ends with 1 where anything is not as asked.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import evidence
from .parts.faults_cases import FAULTS, Whole, mount, performed, reason, whole
from .parts.faults_outside import MEMORY, RECIPES, Place

KILLS = 20
NAMESPACE = "PURESTEP_FAULTS_NAMESPACE"  # set in the environment once there is one
HEAD = f"{'recipe':9}{'fault':24}{'struck':>7}{'went on':>8}{'refused':>8}{'wrong':>6}{'seconds':>9}"
Row = dict[str, Any]


def in_namespace() -> bool:
    """Return whether the process has a mount namespace of its own; as root without one, start over in a new one."""
    if os.geteuid() == 0 and NAMESPACE not in os.environ:
        words = ("unshare", "--mount", sys.executable, "-m", "benchmarks.faults", *sys.argv[1:])
        os.execvpe(words[0], words, {**os.environ, NAMESPACE: "1"})
    if NAMESPACE in os.environ and MEMORY.is_dir():
        mount("-t", "tmpfs", "tmpfs", str(MEMORY))  # so that what others leave there is not taken for ours
    return NAMESPACE in os.environ


def of_recipe(place: Place, recipe: str, faults: Sequence[str], namespace: bool) -> list[Row]:
    """All that befalls a recipe, one case after the other."""
    try:
        undisturbed: Whole = whole(place, recipe)
    except RuntimeError as error:
        print(error, flush=True)
        raise
    rows = []
    for fault in faults:
        if why := reason(recipe, fault, namespace):
            rows.append({"recipe": recipe, "fault": fault, "skipped": why})
            continue
        for number in range(FAULTS[fault][1]):
            row = performed(place, recipe, fault, number, undisturbed)
            rows.append(row)
            for wrong in row["wrong"]:
                print(f"{recipe}, {fault} {number}: {wrong}", flush=True)
        print(line(summed(rows, recipe, fault)), flush=True)
    return rows


def summed(rows: Sequence[Row], recipe: str, fault: str) -> Row:
    """The cases of a fault in one row."""
    own = [row for row in rows if (row["recipe"], row["fault"]) == (recipe, fault) and "skipped" not in row]
    names = ("hits", "gone_on", "refused", "sessions", "seconds")
    return {
        "recipe": recipe,
        "fault": fault,
        **{name: round(sum(row[name] for row in own), 1) for name in names},
        "wrong": sum(len(row["wrong"]) for row in own),
    }


def line(row: Row) -> str:
    """A row of the table."""
    counts = f"{row['hits']:7}{row['gone_on']:8}{row['refused']:8}{row['wrong']:6}"
    return f"{row['recipe']:9}{row['fault']:24}{counts}{row['seconds']:9.1f}"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES), help="recipes (default: all)")
    parser.add_argument("--fault", nargs="+", choices=FAULTS, default=list(FAULTS), help="(default: all)")
    parser.add_argument(
        "--kills", type=int, default=KILLS, help=f"moments of SIGKILL for each recipe (default: {KILLS})"
    )
    parser.add_argument("--side-by-side", type=int, default=2, help="recipes (default: 2)")
    return parser.parse_args(words)


def main() -> int:
    """Runs the cases; 0 where all is as asked."""
    given, namespace, began = parse(), in_namespace(), time.perf_counter()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so would the runs
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as path, ThreadPoolExecutor(given.side_by_side) as pool:
        place = Place(Path(path), given.seed, given.kills)
        (place.path / "logs").mkdir()
        asked = [pool.submit(of_recipe, place, recipe, given.fault, namespace) for recipe in given.only]
        rows = [row for one in asked for row in one.result()]
    figures = told(rows, given.seed)
    all_of_it = given.kills == KILLS and given.only == list(RECIPES) and given.fault == list(FAULTS)
    evidence.write("faults" if all_of_it else "faults_small", seconds=time.perf_counter() - began, figures=figures)
    print("kept" if figures["kept"] else "FAILED")
    return 0 if figures["kept"] else 1


def told(rows: Sequence[Row], seed: int) -> Mapping[str, Any]:
    """The figures."""
    pairs = dict.fromkeys((row["recipe"], row["fault"]) for row in rows if "skipped" not in row)
    table = [summed(rows, *pair) for pair in pairs]
    return {
        "kept": not any(row["wrong"] for row in table),
        "seed": seed,
        "compared": {recipe: RECIPES[recipe].equality for recipe, _ in pairs},
        "table": table,
        "skipped": [row for row in rows if "skipped" in row],
        "cases": [row for row in rows if "skipped" not in row],
    }


if __name__ == "__main__":
    sys.exit(main())
