"""Each algorithm of `purestep train zorplex --algorithm` with its shipped settings: held-out accuracy before and after.

Two seeds of each, one after the other, as a user would train them. Writes results/zorplex_algorithms.json after each run, so
that what was measured stays where a later run fails; with `--only`, the rows of all others stay as they are there. Each row has
the commit that it was measured at. Ends with 1 where one improved by less than the target.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from purestep.runtime.text.config import CHANGES

from . import evidence
from .zorplex_learns import trained

LEAST = 0.3  # improvement of sampled accuracy


def improvement(row: dict[str, Any]) -> float:
    """By how much sampled accuracy on held-out tasks has risen."""
    return float(row["after"]["sampled"]["accuracy"] - row["before"]["sampled"]["accuracy"])


def line(algorithm: str, rows: dict[str, Any]) -> str:
    """An algorithm in one line."""
    seeds = ", ".join(
        f"{row['before']['sampled']['accuracy']:.3f} -> {row['after']['sampled']['accuracy']:.3f} ({row['seconds']:.0f} s)"
        for row in rows.values()
    )
    return f"{algorithm:10} {seeds}"


def kept(without: list[str]) -> dict[str, dict[str, Any]]:
    """The rows that were measured before, but for these algorithms."""
    path = evidence.RESULTS / "zorplex_algorithms.json"
    rows = json.loads(path.read_text())["figures"]["algorithms"] if path.exists() else {}
    return {name: row for name, row in rows.items() if name not in without}


def main() -> int:
    """Runs every algorithm; 0 when each improved enough on each seed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zorplex_algorithms", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CHANGES), default=list(CHANGES), help="(default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="(default: 0 1)")
    given, words = parser.parse_known_args()
    begin, load = time.perf_counter(), [round(x, 2) for x in os.getloadavg()]
    table, enough, commit = kept(given.only), dict[str, bool](), evidence.git("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory() as place:
        for algorithm in given.only:
            table[algorithm] = {}
            for seed in given.seeds:
                run = Path(place) / f"{algorithm}-{seed}"
                row = trained(run, seed, ["--algorithm", algorithm, *words])
                table[algorithm][str(seed)] = {**row, "improvement": round(improvement(row), 4), "commit": commit}
                print(line(algorithm, table[algorithm]), flush=True)
                enough = {name: min(r["improvement"] for r in rows.values()) >= LEAST for name, rows in table.items()}
                figures = {
                    "wanted": LEAST,
                    "reached": sum(enough.values()),
                    "cores": os.cpu_count(),
                    "load_before": load,
                    "algorithms": table,
                }
                evidence.write("zorplex_algorithms", seconds=time.perf_counter() - begin, figures=figures)
    for algorithm, rows in table.items():
        print(line(algorithm, rows))
    return 0 if all(enough.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
