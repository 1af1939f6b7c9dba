"""PPO with a memory: seconds to compile, steps a second beside PureJaxRL's `ppo_rnn.py`, and what ten seeds reach.

Environments (parts/memory_worlds.py): CartPole and Pendulum without velocities, and a bit that is recalled after 64 steps.
Compilation is cold, its caches in a new folder. Both sides of the speed have 4 environments, 128 steps, layers of 128 and one
thread on the whole CartPole. PureJaxRL is no package; give a folder with its repository (see benchmarks/ppo_cartpole.py):

    python -m benchmarks.recurrent --purejaxrl .peers/purejaxrl

Writes results/recurrent.json and .png.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts import sides
from .parts.memory_worlds import SOLVED
from .parts.sides import Side

OURS, PEER = Side("", "parts.purestep_recurrent"), Side("rejax", "purejaxrl_ppo")
CELLS, HORIZONS, SEEDS = ("gru", "lstm"), (32, 128), 10
FLOOR, AIM = 20.0, 12.0  # seconds to compile
RUNS: Mapping[str, Mapping[str, int]] = {  # of ten seeds
    "cartpole": {"envs": 16, "horizon": 64, "steps": 500_000},
    "pendulum": {"envs": 16, "horizon": 64, "steps": 600_000},
    "recall": {"envs": 16, "horizon": 128, "steps": 600_000},
}


def compiled() -> dict[str, Any]:
    """Seconds to compile, and to the end of the first call from the start of the process, by cell and horizon."""
    found = {}
    for cell in CELLS:
        for horizon in HORIZONS:
            report = sides.run(
                OURS, {"world": "cartpole", "cell": cell, "horizon": horizon, "envs": 16, "steps": 40_000}
            )
            found[f"{cell}, {horizon}"] = {key: report[key] for key in ("compile_seconds", "first_call_seconds")}
            print(
                f"{cell}, horizon {horizon}: compiled in {report['compile_seconds']:.1f} s (floor {FLOOR:.0f}, aim "
                f"{AIM:.0f}), first call after {report['first_call_seconds']:.1f} s; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return found


def speed(checkout: str, repetitions: int) -> dict[str, Any]:
    """Steps a second of both sides, medians of runs in turn."""
    words = {"envs": 4, "horizon": 128, "steps": 200_000}
    own: list[float] = []
    theirs: list[float] = []
    for _ in range(repetitions):
        ours = sides.run(OURS, {"world": "whole_cartpole", "plain": 1, **words})
        own.append(ours["steps_per_second"])
        theirs.append(sides.run(PEER, {"checkout": checkout, "memory": 1, **words})["steps_per_second"])
    found = {"purestep": statistics.median(own), "purejaxrl": statistics.median(theirs)}
    found["ratio"] = found["purestep"] / found["purejaxrl"]
    print(
        f"steps/s {found['purestep']:,.0f}, PureJaxRL {found['purejaxrl']:,.0f}: {found['ratio']:.2f} (floor 1)",
        flush=True,
    )
    return found


def learned(world: str, cell: str) -> dict[str, Any]:
    """Mean greedy returns of ten seeds on an environment."""
    report = sides.run(OURS, {"world": world, "cell": cell, "seeds": SEEDS, "size": 64, **RUNS[world]})
    returns = report["returns"]
    solved = sum(value >= SOLVED[world] for value in returns)
    print(
        f"{world}, {cell}: {solved} of {SEEDS} at {SOLVED[world]:g}; {', '.join(f'{x:.0f}' for x in returns)}",
        flush=True,
    )
    return {"returns": returns, "solved": solved, "steps_per_second": report["steps_per_second"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recurrent", description=__doc__)
    parser.add_argument("--purejaxrl", metavar="FOLDER", help="PureJaxRL's repository, to run it too")
    parser.add_argument("--repetitions", type=int, default=2, help="runs of each side for the speed")
    arguments = parser.parse_args()
    began = time.perf_counter()
    figures: dict[str, Any] = {"load": os.getloadavg(), "compiled": compiled()}
    if arguments.purejaxrl:
        figures["speed"] = speed(arguments.purejaxrl, arguments.repetitions)
    figures["returns"] = {f"{world}, {cell}": learned(world, cell) for world in RUNS for cell in CELLS}
    figures["not solved by all"] = [name for name, row in figures["returns"].items() if row["solved"] < SEEDS]
    print(f"not solved by all seeds: {', '.join(figures['not solved by all']) or 'none'}")
    path = evidence.write("recurrent", seconds=time.perf_counter() - began, figures=figures)
    groups = {name: {"compile": row["compile_seconds"]} for name, row in figures["compiled"].items()}
    bars(groups, path.with_suffix(".png"), title="PPO with a memory", unit="seconds to compile, cold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
