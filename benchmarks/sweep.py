"""A sweep of learning rates and seeds of PPO on CartPole from a fresh process to its results, beside rejax's vmap.

Both sides train the same members (4 x 128, 4 epochs x 4 minibatches, networks of 64 x 64) on one thread with empty caches, and
evaluate each at the end: `purestep sweep ppo` greedily, in parts of one program, with table and pictures; rejax by sampled
episodes, all members in one program. Seconds are those of the clock from the start of each process, imports included. They take
turns. Prints a table and writes results/sweep.json.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import evidence
from .parts import sides
from .parts.sides import Report

LOWEST, HIGHEST = 1e-4, 1e-2
PURESTEP = (sys.executable, "-m", "purestep.runtime.cli.main", "sweep", "ppo", "--env", "cartpole", "--no-anneal")
NUMBERS = ("--gamma", "0.99", "--gae-lambda", "0.95", "--value-coefficient", "0.5", "--episodes", "16")


def purestep(given: argparse.Namespace) -> Report:
    """The sweep as a user starts it. Raises: CalledProcessError where it fails."""
    with tempfile.TemporaryDirectory() as home:
        run = Path(home, "run")
        words = (
            *(*PURESTEP, *NUMBERS, "--learning-rate", f"log:{LOWEST}:{HIGHEST}:{given.rates}"),
            *("--seeds", given.seeds, "--steps", given.steps, "--members", given.members, "--run", run),
        )
        own = {"XDG_CACHE_HOME": home, "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor", "OMP_NUM_THREADS": "1"}
        start = time.perf_counter()
        called = subprocess.run(
            list(map(str, words)), env={**os.environ, **own}, check=True, capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
        rows = [json.loads(line) for line in (run / "sweep.jsonl").read_text().splitlines()]
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(json.dumps(row["point"]), []).append(row["score"] or 0.0)
    best = max(statistics.mean(each) for each in scores.values())
    compilations = (called.stdout + called.stderr).count("compiling the ")
    return {"seconds": seconds, "members": len(rows), "programs compiled": compilations, "best mean return": best}


def rejax(given: argparse.Namespace) -> Report:
    """The same members as one vmap. Raises: SideError."""
    options = {name: getattr(given, name) for name in ("rates", "seeds", "steps")}
    start = time.perf_counter()
    report = sides.run(sides.PPO["rejax"], {**options, "lowest": LOWEST, "highest": HIGHEST})
    parts = {f"{name} seconds": report[f"{name}_seconds"] for name in ("import", "compile", "run")}
    members = given.rates * given.seeds
    best = report["final_return"]
    return {"seconds": time.perf_counter() - start, "members": members, **parts, "best mean return": best}


def main() -> None:
    """Prints a row for each side and repetition."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--rates", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50_000, help="of each member")
    parser.add_argument("--members", type=int, default=64, help="of purestep, at once")
    parser.add_argument("--repetitions", type=int, default=2)
    given, start = parser.parse_args(), time.perf_counter()
    before = os.getloadavg()
    found: dict[str, list[Report]] = {"purestep": [], "rejax": []}
    for _ in range(given.repetitions):
        for name, side in (("purestep", purestep), ("rejax", rejax)):
            found[name].append(side(given))
            print(f"{name:10}", *(f"{key} {value:.1f}" for key, value in found[name][-1].items()), sep="  ", flush=True)
    ratios = [peer["seconds"] / own["seconds"] for own, peer in zip(found["purestep"], found["rejax"], strict=True)]
    print(f"seconds of rejax over those of purestep: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    figures = {
        "machine": {**machine, "load before": before, "load after": os.getloadavg()},
        "given": vars(given),
        **found,
        "rejax / purestep": [round(ratio, 3) for ratio in ratios],
    }
    evidence.write("sweep", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()
