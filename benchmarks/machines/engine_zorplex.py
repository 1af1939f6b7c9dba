"""`purestep train zorplex --mode async` by each engine: `monarch` and `ray` on two hosts that are killed and come again.

`processes` trains on this machine alone. With the others the second host is killed after a third of the updates with all that
runs on it; it is started again, and once the run has taken it in again the first host is killed, so that all generators work on
the one that was replaced, and is started again too. Samples begun with weights of a later version come from replaced hosts: the
run has to end on updates that learn from nothing else. What was learned from is gone through, and final evaluations are
compared, over tasks and over seeds. --only takes one engine and --seed one seed (0 by default), which are put into
results/engine_zorplex.json beside those that are there, each with its commit; the picture is engine_zorplex.png. Other words go
to `purestep train`, and results to engine_zorplex_small. Ends with 1 where anything is not as asked.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import define

from purestep.runtime.async_rl.checkpoint import TIMELINE, TOTALS
from purestep.runtime.effects import folder
from purestep.runtime.effects.cluster import ENGINES
from purestep.runtime.effects.reporting.metrics import read_metrics

from .. import evidence
from ..parts import async_outside
from ..parts.async_outside import Process, Row
from ..parts.async_verdicts import SEEDS
from ..parts.engine_hosts import Host, hosts
from ..parts.engine_verdicts import compared, faults, replaced_alone, said, unlike
from ..parts.engine_zorplex_picture import picture

STEPS, AWAY = 100, 5.0  # updates; seconds for which a killed host is not there
PHASE = "async"


@define
class Watched:
    """A run, and what it has printed so far."""

    name: str
    process: Process
    phase: Path
    read: int = 0

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Waits for it, and prints what the run says meanwhile. Raises: RuntimeError where the run ends before."""

        def looked() -> bool:
            self.tell()
            return ready()

        if not self.process.until(looked):
            raise RuntimeError(f"the run of {self.name} was over before {what}")

    def tell(self) -> None:
        """Prints the lines that are new."""
        text = self.process.log.read_text()
        whole = text.rfind("\n") + 1
        for line in text[self.read : whole].splitlines():
            print(f"{self.name}: {line}", flush=True)
        self.read = max(self.read, whole)

    def ended(self) -> None:
        """Waits for its end, and prints what it says. Raises: RuntimeError where it failed."""

        def looked() -> bool:
            self.tell()
            return False

        self.process.until(looked)
        self.tell()

    @property
    def updates(self) -> int:
        """Made so far."""
        return async_outside.length(self.phase)

    def told(self, line: str) -> int:
        """How often it has said so."""
        return self.process.log.read_text().count(line)

    def replaced(self, host: Host, after: int) -> Row:
        """Kills a host after so many updates and starts it again; back when the run has taken it in. Raises: RuntimeError."""
        self.until(lambda: self.updates >= after, f"{after} updates")
        back = f"host {host.address} is there again"
        times, killed, began = self.told(back), host.kill(), time.perf_counter()
        updates = self.updates
        print(f"{self.name}: host {host.address} killed after {updates} updates: {killed} processes", flush=True)
        self.until(lambda: self.updates > updates + 2, "three further updates")  # what waited is enough for two
        pause = time.perf_counter() - began
        time.sleep(AWAY)
        host.start()
        self.until(lambda: self.told(back) > times, "it had its host again")
        return {
            "host": host.space or "process",
            "after updates": updates,
            "processes killed": killed,
            "seconds to the third update after it": round(pause, 1),
            "seconds until it was back": round(time.perf_counter() - began, 1),
            "back after updates": self.updates,
        }


def trained(engine: str, seed: str, place: Path, words: Sequence[str]) -> Row:
    """A run of an engine, with its figures."""
    run, log = place / engine, place / f"{engine}.log"
    steps = int(words[words.index("--steps") + 1]) if "--steps" in words else STEPS
    own = ("--mode", "async", "--no-compare", "--steps", str(STEPS), "--seed", seed, "--run", str(run), *words)
    if engine == "processes":
        process = Process(("train", "zorplex", *own), log)
        try:
            Watched(f"{engine}, seed {seed}", process, run / PHASE).ended()
        finally:
            process.kill()
        return {"seconds": round(time.perf_counter() - process.began, 1), "left": 0, **figures(run, log)}
    with hosts(engine, 2, place) as there:
        addresses = ",".join(host.address for host in there)
        at = ("--engine", engine, "--hosts", addresses, "--trust-network")
        process = Process(("train", "zorplex", *own, *at), log)
        watched = Watched(f"{engine}, seed {seed}", process, run / PHASE)
        try:
            second = watched.replaced(there[1], steps // 3)
            first = watched.replaced(there[0], watched.updates + steps // 6)
            watched.ended()
        finally:
            process.kill()
        seconds, left = time.perf_counter() - process.began, sum(host.left() for host in there)
    later = replaced_alone(async_outside.ledger(run / PHASE), first["after updates"])
    return {
        "seconds": round(seconds, 1),
        "hosts killed and replaced": [second, first],
        "last updates that learned from replaced hosts alone": later,
        "left": left,
        **figures(run, log),
    }


def figures(run: Path, log: Path) -> Row:
    """What a run that has ended left in its folder."""
    totals = json.loads((run / PHASE / TOTALS).read_text())
    through = async_outside.gone_through(run, PHASE)
    through.pop("counts")
    actors = {row["actor"] for row in async_outside.rows_of((run / PHASE / TIMELINE).read_text())}
    return {
        "before": json.loads((run / "before.json").read_text())["sampled"],
        "after": json.loads((run / PHASE / folder.EVALUATION).read_text())["after"]["sampled"],
        "weights": next(
            (line for line in log.read_text().splitlines() if line.startswith("weights go by")), "shared memory"
        ),
        "generators lost": totals["lost_generators"],
        "generators seen": len(actors - {"trainer"}),
        "seconds of training": round(totals["seconds"], 1),
        "seconds at each update": [round(row["seconds"], 1) for row in read_metrics(run / PHASE / folder.METRICS)],
        "wrong": through.pop("wrong"),
        "gone through": through,
    }


def performed(engine: str, seed: str, words: Sequence[str]) -> dict[str, Any]:
    """Runs a seed of an engine and puts it into the file of results and the picture; gives all figures there."""
    name, began = "engine_zorplex_small" if words else "engine_zorplex", time.perf_counter()
    path = evidence.RESULTS / f"{name}.json"
    with tempfile.TemporaryDirectory() as place:
        row = trained(engine, seed, Path(place), words)
    wrong, seconds = faults(row), time.perf_counter() - began
    engines = json.loads(path.read_text())["figures"]["engines"] if path.exists() else {}
    engines.setdefault(engine, {})[seed] = {**evidence.origin(name, seconds), "violations": wrong, **row}
    engines = {
        one: {name: engines[one][name] for name in SEEDS if name in engines[one]} for one in ENGINES if one in engines
    }
    pairs = compared(engines)
    found = {"engines": engines, "final accuracy": pairs, "violations": unlike(pairs)}
    evidence.write(name, seconds=seconds, figures=found)
    picture(engines, path.with_suffix(".png"))
    verdict = f"NOT as asked: {'; '.join(wrong)}" if wrong else "as asked"
    print(f"{engine}, seed {seed}: {verdict}, {seconds:.0f} s", flush=True)
    return found


def main() -> int:
    """Runs the engines in turn, seed by seed; 0 where all are as asked and none ends better than another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.engine_zorplex", description=__doc__)
    parser.add_argument("--only", choices=tuple(ENGINES), help="one engine (default: all of them)")
    parser.add_argument("--seed", choices=SEEDS, default="0", help="one seed (default: 0)")
    given, words = parser.parse_known_args()
    found: dict[str, Any] = {}
    seeds, chosen = (given.seed,), (given.only,) if given.only else tuple(ENGINES)
    for seed in seeds:
        for engine in chosen:
            found = performed(engine, seed, words)
    for name, row in found["final accuracy"].items():
        print(f"{name}: {said(row)}")
    print("\n".join(found["violations"]) or "no engine ends better than another beyond chance")
    wrong = any(found["engines"][engine][seed]["violations"] for engine in chosen for seed in seeds)
    return int(bool(found["violations"] or wrong))


if __name__ == "__main__":
    sys.exit(main())
