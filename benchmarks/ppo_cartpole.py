"""PPO on CartPole: purestep beside rejax, PureJaxRL, Stable-Baselines3 and TorchRL; populations of seeds beside rejax's.

All sides run in turn, again and again, so that what else the machine does falls on all of them alike. Prints a table and
the verdicts; writes results/ppo_cartpole.json and .png. PureJaxRL is no package; give a folder with its repository:

    git clone https://github.com/luchris429/purejaxrl .peers/purejaxrl
    python -m benchmarks.ppo_cartpole --purejaxrl .peers/purejaxrl
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts import sides, targets
from .parts.sides import Report

LEARN, CHECKOUT, SLOW = ("purestep", "rejax"), "purejaxrl", ("stable-baselines3", "torchrl")
WORKLOADS: dict[str, tuple[int, int]] = {"4x128": (4, 128), "64x128": (64, 128), "1024x32": (1024, 32)}
STEPS = {  # of a compiled side and of the others; enough for a second or more
    "4x128": (500_000, 50_000),
    "64x128": (2_000_000, 200_000),
    "1024x32": (4_000_000, 300_000),
}
SEED_STEPS = 250_000  # of each member of a population
COLUMNS = {
    "steps_per_second": "steps/s",
    "steps_per_cpu_second": "per CPU s",
    "compile_seconds": "compile",
    "warm_compile_seconds": "warm",
    "first_update_seconds": "1st upd",
    "warm_first_update_seconds": "warm",
    "final_return": "return",
    "steps": "steps",
}


@frozen
class Job:
    """One run of one side."""

    group: str  # what it is compared with: a workload, or a workload and a number of seeds
    side: str
    options: dict[str, object]
    repetition: int


def jobs(given: argparse.Namespace) -> list[Job]:
    """Everything to run, in order: within a repetition the sides of one workload follow each other.

    >>> [job.side for job in jobs(parse(["--quick", "--repetitions", "2"]))]
    ['purestep', 'rejax', 'purestep', 'rejax']
    """
    made = []
    for repetition in range(max(given.repetitions, given.slow_repetitions)):
        fast, slow = repetition < given.repetitions, repetition < given.slow_repetitions
        chosen = [side for side in given.sides if (slow if side in SLOW else fast)]
        for workload in given.workloads:
            envs, horizon = WORKLOADS[workload]
            shape = {"envs": envs, "horizon": horizon, "seed": repetition, "threads": given.threads}
            for side in chosen:
                steps = given.steps or STEPS[workload][side in SLOW]
                checkout = {"checkout": given.purejaxrl} if side == CHECKOUT else {}
                made.append(Job(workload, side, {**shape, "steps": steps, **checkout}, repetition))
            if set(SLOW) & set(chosen):
                options = {"envs": envs, "horizon": horizon, "seeds": 1, "threads": given.threads}
                made.append(Job(workload, "matrix products", options, repetition))
        for seeds in given.seeds if fast else ():
            made += population(seeds, chosen, given, repetition)
    return made


def population(seeds: int, chosen: Sequence[str], given: argparse.Namespace, repetition: int) -> list[Job]:
    """The runs of so many seeds at 4x128, and of the matrix products alone beside them."""
    envs, horizon = WORKLOADS["4x128"]
    shape: dict[str, object] = {"envs": envs, "horizon": horizon, "seeds": seeds, "threads": given.threads}
    options = {**shape, "seed": 100 * repetition, "steps": given.steps or SEED_STEPS}
    group = f"{seeds} seeds of 4x128"
    runs = [Job(group, side, options, repetition) for side in LEARN if side in chosen]
    return [*runs, Job(group, "matrix products", shape, repetition)]


def run(job: Job, cache: str) -> Report:
    """Runs a job in a process of its own. Raises: SideError, PeerError."""
    side = sides.PRODUCTS if job.side == "matrix products" else sides.PPO[job.side]
    return sides.run(side, {**job.options, **({"cache": cache} if side.cache else {})})


def run_all(todo: Sequence[Job]) -> dict[str, dict[str, list[Report]]]:
    """The reports of all jobs: group -> side -> one for each repetition."""
    found: dict[str, dict[str, list[Report]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for number, job in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}] {job.group}, {job.side} ...", end=" ", file=sys.stderr, flush=True)
            report = run(job, cache)
            print(f"{report['steps_per_second']:,.0f} steps/s", file=sys.stderr, flush=True)
            found.setdefault(job.group, {}).setdefault(job.side, []).append(report)
    return found


def table(found: dict[str, dict[str, list[Report]]]) -> list[dict[str, Any]]:
    """A row for each group and side: medians over the repetitions."""
    return [
        {"group": group, "side": side, "repetitions": len(reports), **targets.medians(reports)}
        for group, by_side in found.items()
        for side, reports in by_side.items()
    ]


def limits(found: dict[str, dict[str, list[Report]]]) -> dict[str, dict[str, float]]:
    """Each side's steps/s divided by those of the matrix products alone, which any program with these networks must do."""
    return {
        group: {
            side: targets.ratio(by_side[side], by_side["matrix products"], "run_seconds")
            for side in (*LEARN, CHECKOUT, *SLOW)
            if side in by_side
        }
        for group, by_side in found.items()
        if "matrix products" in by_side
    }


def printed(rows: Sequence[dict[str, Any]]) -> None:
    """The table, for people."""
    print(f"{'':20}{'':20}" + "".join(f"{name:>11}" for name in COLUMNS.values()))
    for row in rows:
        cells = "".join(f"{row[name]:11,.1f}" if name in row else f"{'-':>11}" for name in COLUMNS)
        print(f"{row['group']:20}{row['side']:20}{cells}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ppo_cartpole", description=__doc__)
    add = parser.add_argument
    add("--sides", nargs="+", choices=[*LEARN, *SLOW], default=[*LEARN, *SLOW], help="who runs (default: all)")
    add(
        "--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS), help="worlds x steps (default: all)"
    )
    add("--seeds", nargs="*", type=int, default=[1, 8, 32], help="sizes of populations at 4x128 (default: 1 8 32)")
    add("--repetitions", type=int, default=3, help="runs of purestep and rejax for each workload (default: 3)")
    add("--slow-repetitions", type=int, default=1, help="runs of the other sides (default: 1)")
    add("--steps", type=int, default=0, help="environment steps instead of each workload's own (default: those)")
    add("--threads", type=int, default=1, help="of each side while it runs (default: 1)")
    add("--quick", action="store_true", help="only 4x128, purestep and rejax, no populations")
    add("--purejaxrl", metavar="FOLDER", help="PureJaxRL's repository, to run it too (default: leave it out)")
    given = parser.parse_args(words)
    if given.quick:
        given.sides, given.workloads, given.seeds = list(LEARN), ["4x128"], []
    if given.purejaxrl:
        given.sides = [*given.sides, CHECKOUT]
    return given


def main() -> None:
    given, began = parse(), time.perf_counter()
    load = os.getloadavg()
    found = run_all(jobs(given))
    rows = table(found)
    judged = [verdict for group, by_side in found.items() for verdict in targets.verdicts(group, by_side)]
    printed(rows)
    for verdict in judged:
        print(verdict.line())
    for group, parts in limits(found).items():
        print(f"{group}: of the matrix products alone " + ", ".join(f"{k} {v:.3f}" for k, v in parts.items()))
    figures = {
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "load_before": [round(x, 2) for x in load],
        },
        "threads": given.threads,
        "table": rows,
        "verdicts": [targets.as_json(verdict) for verdict in judged],
        "part_of_matrix_products": limits(found),
        "runs": found,
    }
    path = evidence.write("ppo_cartpole", seconds=time.perf_counter() - began, figures=figures)
    note = f"PPO, CartPole-v1, {given.threads} thread a side, after compilation; medians"
    groups = {group: {row["side"]: row["steps_per_second"] for row in rows if row["group"] == group} for group in found}
    bars(groups, path.with_suffix(".png"), title="PPO on CartPole", unit="environment steps/s", note=note)


if __name__ == "__main__":
    main()
