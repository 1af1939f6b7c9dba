"""Stepping CartPole alone, with random actions and auto-reset: purestep beside gymnax (JAX), run in turn.

Prints a table; writes results/env_stepping.json and .png.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts import sides, targets
from .parts.sides import Report

WORKLOADS = {"4x128": (4, 128), "64x128": (64, 128), "1024x128": (1024, 128)}


def run_all(given: argparse.Namespace) -> dict[str, dict[str, list[Report]]]:
    """The reports: workload -> side -> one for each repetition."""
    found: dict[str, dict[str, list[Report]]] = {name: {} for name in given.workloads}
    for repetition in range(given.repetitions):
        for workload in given.workloads:
            envs, horizon = WORKLOADS[workload]
            shape = {"envs": envs, "horizon": horizon, "steps": given.steps, "threads": given.threads}
            for name, side in sides.STEPPING.items():
                print(
                    f"[{repetition + 1}/{given.repetitions}] {workload}, {name} ...",
                    end=" ",
                    file=sys.stderr,
                    flush=True,
                )
                report = sides.run(side, {**shape, "seed": repetition})
                print(f"{report['steps_per_second']:,.0f} steps/s", file=sys.stderr, flush=True)
                found[workload].setdefault(name, []).append(report)
    return found


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.env_stepping", description=__doc__)
    add = parser.add_argument
    add(
        "--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), help="worlds x steps (default: all)"
    )
    add("--repetitions", type=int, default=3, help="runs of each side for each workload (default: 3)")
    add("--steps", type=int, default=5_000_000, help="environment steps of a run (default: 5000000)")
    add("--threads", type=int, default=1, help="of each side (default: 1)")
    return parser.parse_args(words)


def main() -> None:
    given, began = parse(), time.perf_counter()
    load = os.getloadavg()
    found = run_all(given)
    rows = []
    print(f"{'':12}{'side':12}{'steps/s':>16}{'per CPU s':>16}{'compile s':>12}")
    for workload, by_side in found.items():
        for name, reports in by_side.items():
            row = targets.medians(reports)
            rows.append({"workload": workload, "side": name, "repetitions": len(reports), **row})
            cells = (
                f"{row['steps_per_second']:16,.0f}{row['steps_per_cpu_second']:16,.0f}{row['compile_seconds']:12.1f}"
            )
            print(f"{workload:12}{name:12}{cells}")
    ratios = {
        workload: {
            kind: targets.ratio(by_side["purestep"], by_side["gymnax"], kind) for kind in ("run_seconds", "cpu_seconds")
        }
        for workload, by_side in found.items()
    }
    for workload, ratio in ratios.items():
        print(f"{workload}: {ratio['run_seconds']:.2f} x gymnax by wall clock, {ratio['cpu_seconds']:.2f} x by CPU")
    figures = {"threads": given.threads, "load_before": load, "table": rows, "against_gymnax": ratios, "runs": found}
    path = evidence.write("env_stepping", seconds=time.perf_counter() - began, figures=figures)
    note = f"random actions, auto-reset, {given.threads} thread a side, after compilation; medians"
    groups = {name: {row["side"]: row["steps_per_second"] for row in rows if row["workload"] == name} for name in found}
    title = "Stepping CartPole"
    bars(groups, path.with_suffix(".png"), title=title, unit="environment steps/s", note=note)


if __name__ == "__main__":
    main()
