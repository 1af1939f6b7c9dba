"""`purestep train zorplex --mode async` with its generators on two hosts, by each engine: hosts are killed and come again.

Each engine trains the same seed. After a third of the updates the second host is killed with all that runs on it; it is
started again, and once the run has taken it in again the first host is killed, so that all generators work on the one that was
replaced, and is started again too. Then what was learned from is gone through, and final evaluations are held against each
other. --only takes one engine, which is put into results/engine_zorplex.json beside those that are there, each with its commit.
Other words go to `purestep train`, and results to engine_zorplex_small.json. Ends with 1 where anything is not as asked.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from attrs import evolve

from purestep.runtime.asynchronous.comparing import difference
from purestep.runtime.asynchronous.keeping import TIMELINE, TOTALS
from purestep.runtime.effects.engine import ENGINES
from purestep.runtime.language.evaluate import Standing, standing

from . import async_outside as outside
from . import evidence
from .async_outside import Process, Row
from .engine_hosts import Host, hosts

STEPS, AWAY = 100, 5.0  # updates; seconds for which a killed host is not there
PHASE = "async"


def replaced(process: Process, phase: Path, host: Host, after: int) -> Row:
    """Kills a host after so many updates and starts it again; back when the run has taken it in. Raises: RuntimeError."""
    process.until(lambda: outside.length(phase) >= after)
    updates, killed = outside.length(phase), host.kill()
    began = time.perf_counter()
    process.until(lambda: outside.length(phase) > updates + 1)
    pause = time.perf_counter() - began
    time.sleep(AWAY)
    host.start()
    back = f"host {host.address} is there again"
    times = process.log.read_text().count(back)
    if not process.until(lambda: process.log.read_text().count(back) > times):
        raise RuntimeError("the run was over before it had its host again")
    return {
        "host": host.space or "process",
        "after updates": updates,
        "processes killed": killed,
        "seconds to the second update after it": round(pause, 1),
        "seconds until it was back": round(time.perf_counter() - began, 1),
    }


def trained(engine: str, place: Path, words: Sequence[str]) -> Row:
    """A run of an engine."""
    run, log = place / engine, place / f"{engine}.log"
    steps = int(words[words.index("--steps") + 1]) if "--steps" in words else STEPS
    with hosts(engine, 2, place) as there:
        addresses = ",".join(host.address for host in there)
        own = ("--mode", "async", "--no-compare", "--steps", str(STEPS), "--run", str(run))
        at = ("--engine", engine, "--hosts", addresses, "--key", str(there[0].key))
        process = Process(("train", "zorplex", *own, *at, *words), log)
        second = replaced(process, run / PHASE, there[1], steps // 3)
        first = replaced(process, run / PHASE, there[0], outside.length(run / PHASE) + steps // 6)
        process.succeeded()
        seconds = time.perf_counter() - process.began
    print(log.read_text(), end="", flush=True)
    totals = json.loads((run / PHASE / TOTALS).read_text())
    through = outside.gone_through(run, PHASE)
    through.pop("counts")
    actors = {row["actor"] for row in outside.rows_of((run / PHASE / TIMELINE).read_text())}
    return {
        "seconds": round(seconds, 1),
        "before": json.loads((run / "before.json").read_text())["sampled"],
        "after": json.loads((run / PHASE / "evaluation.json").read_text())["after"]["sampled"],
        "weights": next(line for line in log.read_text().splitlines() if line.startswith("weights go by")),
        "hosts killed and replaced": [second, first],
        "generators lost": totals["lost_generators"],
        "generators seen": len(actors - {"trainer"}),
        "seconds of training": totals["seconds"],
        "wrong": through.pop("wrong"),
        "gone through": through,
    }


def as_asked(row: Row) -> bool:
    """Whether it learned, lost its generators twice and went on, and what was learned from is in order."""
    better = row["after"]["accuracy_low"] > row["before"]["accuracy_high"]
    return bool(better and row["generators lost"] >= 2 and row["generators seen"] >= 4 and not row["wrong"])


def compared(engines: Mapping[str, Row]) -> dict[str, Row]:
    """Final accuracies held against each other, two by two, with 95 % intervals."""
    found = {}
    for one, other in combinations(engines, 2):
        here, there = (_standing(engines[name]["after"]) for name in (one, other))
        told = difference(here, there)
        found[f"{one} less {other}"] = {"difference": told.value, "low": told.low, "high": told.high}
    return found


def _standing(row: Row) -> Standing:
    shares = {name: row[name] for name in ("attempts", "accuracy", "accuracy_low", "accuracy_high")}
    return evolve(standing(()), **shares)


def performed(engine: str, words: Sequence[str]) -> dict[str, Any]:
    """Runs an engine and puts it into the file of results; gives all figures there."""
    name, began = "engine_zorplex_small" if words else "engine_zorplex", time.perf_counter()
    path = evidence.RESULTS / f"{name}.json"
    with tempfile.TemporaryDirectory() as place:
        row = trained(engine, Path(place), words)
    row["as asked"] = as_asked(row)
    seconds = time.perf_counter() - began
    old = json.loads(path.read_text())["figures"]["engines"] if path.exists() else {}
    engines = {**old, engine: {**evidence.origin(name, seconds), **row}}
    engines = {each: engines[each] for each in ENGINES if each in engines}
    figures = {"engines": engines, "final accuracy": compared(engines)}
    evidence.write(name, seconds=seconds, figures=figures)
    said = "as asked" if row["as asked"] else f"NOT as asked: {row['wrong'] or 'see its figures'}"
    print(f"{engine}: {said}, {seconds:.0f} s; written: {path.relative_to(evidence.ROOT)}", flush=True)
    return figures


def main() -> int:
    """Runs the engines one after the other; 0 where all are as asked and none ends better than another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_zorplex", description=__doc__)
    parser.add_argument("--only", choices=tuple(ENGINES), help="one engine (default: all of them)")
    given, words = parser.parse_known_args()
    figures: dict[str, Any] = {}
    chosen = (given.only,) if given.only else tuple(ENGINES)
    for engine in chosen:
        figures = performed(engine, words)
    for name, row in figures["final accuracy"].items():
        print(f"{name}: {row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]")
    same = all(row["low"] <= 0.0 <= row["high"] for row in figures["final accuracy"].values())
    return 0 if same and all(figures["engines"][engine]["as asked"] for engine in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
