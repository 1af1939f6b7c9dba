"""DQN, PQN, IQN, TD3 and SAC beside rejax, with rejax's own settings: steps a second, and returns of ten seeds.

Each case runs in turn: one seed, then ten at once (a `population` here, `vmap` there), each a compiled program in a process of
its own with one thread; returns are those of the greedy policy at the end, here 100 episodes a seed. rejax scales observations
where its settings say so; purestep does not with a buffer. Stable-Baselines3 runs once where a case has settings for it, in
one environment. `--buffers` also runs DQN with buffers of 10^4, 10^5 and 10^6 rows. Writes results/off_policy.json and .png.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts import sides
from .parts.off_policy_cases import CASES, NAMES
from .parts.sides import Report, Side

OURS, REJAX = Side("", "parts.purestep_off_policy"), Side("rejax", "rejax_off_policy")
SB3 = Side("stable-baselines3", "stable_baselines3_off_policy")
SEEDS, FLOOR, AIM = 10, 1.0, 1.5
SB3_STEPS = 10_000
BUFFERS = (10_000, 100_000, 1_000_000)


def peer(name: str, seeds: int) -> Report:
    """The report of rejax on a case."""
    case = CASES[name]
    settings = {"learning_rate": case.rate, **case.rejax}
    words = {"algorithm": case.algorithm, "env": NAMES[case.env], "settings": json.dumps(settings)}
    return sides.run(REJAX, {**words, "steps": case.steps, "seeds": seeds, "threads": 1})


def baseline(name: str) -> Report:
    """The report of Stable-Baselines3 on a case."""
    case = CASES[name]
    words = {"algorithm": case.algorithm, "env": NAMES[case.env], "settings": json.dumps(dict(case.stable_baselines3))}
    return sides.run(SB3, {**words, "steps": SB3_STEPS, "rate": case.rate, "threads": 1})


def summary(values: list[float]) -> dict[str, float]:
    """Mean and standard error.

    >>> summary([1.0, 3.0])
    {'mean': 2.0, 'error': 1.0}
    """
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "error": error}


def compared(name: str, repetitions: int) -> dict[str, Any]:
    """The figures of a case; each side's speed is the median of its runs."""
    found: dict[str, Any] = {}
    for seeds, times in ((1, repetitions), (SEEDS, 1)):
        runs: Mapping[str, list[Report]] = {"purestep": [], "rejax": []}
        for _ in range(times):
            runs["purestep"].append(sides.run(OURS, {"case": name, "seeds": seeds, "threads": 1}))
            runs["rejax"].append(peer(name, seeds))
        row: dict[str, Any] = {
            side: {
                "steps_per_second": statistics.median(one["steps_per_second"] for one in of_side),
                "compile_seconds": of_side[0]["compile_seconds"],
                "return": summary([value for one in of_side[:1] for value in one["returns"]]),
            }
            for side, of_side in runs.items()
        }
        row["ratio"] = row["purestep"]["steps_per_second"] / row["rejax"]["steps_per_second"]
        found["one seed" if seeds == 1 else f"{seeds} seeds"] = row
        own, theirs = row["purestep"], row["rejax"]
        print(
            f"{name}, {seeds} seeds: {own['steps_per_second']:,.0f} steps/s, rejax {theirs['steps_per_second']:,.0f}: "
            f"{row['ratio']:.2f}; return {own['return']['mean']:.1f} +- {own['return']['error']:.1f}, "
            f"rejax {theirs['return']['mean']:.1f} +- {theirs['return']['error']:.1f}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    if CASES[name].stable_baselines3:
        report = baseline(name)
        found["stable-baselines3"] = {key: report[key] for key in ("steps_per_second", "returns", "steps")}
        ratio = found["one seed"]["purestep"]["steps_per_second"] / report["steps_per_second"]
        print(f"{name}: Stable-Baselines3 {report['steps_per_second']:,.0f} steps/s, ratio {ratio:.1f}", flush=True)
    return found


def buffers() -> dict[str, Any]:
    """Milliseconds an iteration of DQN on CartPole, by the rows of the buffer."""
    found = {}
    for rows in BUFFERS:
        report = sides.run(OURS, {"case": "dqn-cartpole", "replay-size": rows, "threads": 1})
        found[str(rows)] = report["milliseconds"]
        print(f"a buffer of {rows:,} rows: {report['milliseconds']:.3f} ms an iteration", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.off_policy", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--repetitions", type=int, default=2, help="runs of one seed on each side")
    parser.add_argument("--buffers", action="store_true")
    arguments = parser.parse_args()
    began, load = time.perf_counter(), os.getloadavg()
    figures: dict[str, Any] = {"load": load, "cases": {}}
    for name in arguments.only:
        figures["cases"][name] = compared(name, arguments.repetitions)
    if arguments.buffers:
        figures["buffers"] = buffers()
    rows = figures["cases"]
    figures["below the floor"] = [name for name, row in rows.items() if row["one seed"]["ratio"] < FLOOR]
    figures["below the aim"] = [name for name, row in rows.items() if row["one seed"]["ratio"] < AIM]
    figures["lower return"] = [
        name
        for name, row in rows.items()
        for own, theirs in [[row[f"{SEEDS} seeds"][side]["return"] for side in ("purestep", "rejax")]]
        if own["mean"] + 2.0 * own["error"] < theirs["mean"] - 2.0 * theirs["error"]
    ]
    for name in ("below the floor", "below the aim", "lower return"):
        print(f"{name}: {', '.join(figures[name]) or 'none'}")
    path = evidence.write("off_policy", seconds=time.perf_counter() - began, figures=figures)
    groups = {
        name: {side: row["one seed"][side]["steps_per_second"] for side in ("purestep", "rejax")}
        for name, row in rows.items()
    }
    note = "rejax's settings, one seed, one thread a side, after compilation"
    bars(groups, path.with_suffix(".png"), title="Off-policy learning", unit="environment steps/s", note=note)
    return 0


if __name__ == "__main__":
    sys.exit(main())
