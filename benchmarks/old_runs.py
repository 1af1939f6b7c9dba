"""Recorded runs of every schema, and of commits before there were schemas, opened by today's code.

Each is evaluated, viewed, plotted, resumed to its end and evaluated again. A run is recorded as one that was stopped: where
it has a schema, is not asynchronous, and was recorded on a machine of the same bits, its last state must have those of the run
that never stopped.

Writes benchmarks/results/old_runs.json; exit code 1 where a command fails or bits differ.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.recorded_runs.record import ABSENT, RUNS
from tests.support.recorded import names, opened

from . import evidence


def main() -> int:
    """Opens all runs, a line each; 0 where all are opened."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.old_runs", description=__doc__)
    parser.add_argument("--only", default="", help="runs whose name has this text")
    chosen = [name for name in names() if parser.parse_args().only in name]
    began, rows = time.perf_counter(), dict[str, Any]()
    for name in chosen:
        since = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found = opened(name, Path(folder) / "run")
        ours = name.startswith("schema_")
        fine = found.fine() and "Traceback" not in found.said and (found.same is not False or not ours)
        rows[name] = {"codes": found.codes, "bits of a run never stopped": found.same, "opened": fine}
        bits = {True: "same bits as never stopped", False: "other bits", None: "of another machine, or asynchronous"}[
            found.same
        ]
        print(f"{'opened' if fine else 'BROKEN'} {name}: {bits}, {time.perf_counter() - since:.0f} s", flush=True)
    wanted = {f"{kind}/{name}" for kind in kinds() for name in RUNS if name not in ABSENT.get(kind, ())}
    broken = [name for name, row in rows.items() if not row["opened"]]
    figures = {
        "runs": len(rows),
        "kinds": kinds(),
        "opened": len(rows) - len(broken),
        "broken": broken,
        "same bits": sum(row["bits of a run never stopped"] is True for row in rows.values()),
        "not recorded": sorted(wanted - {*names()}),
        "each": rows,
    }
    evidence.write("old_runs", seconds=time.perf_counter() - began, figures=figures)
    return int(bool(broken))


def kinds() -> list[str]:
    """The schemas and commits of which there are runs."""
    return sorted({name.partition("/")[0] for name in names()})


if __name__ == "__main__":
    sys.exit(main())
