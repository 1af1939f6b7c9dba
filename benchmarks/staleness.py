"""PPO on trajectories that older weights played: plain, and around a proximal policy, at staleness 0, 1, 4 and 8.

The recipe's PPO on CartPole, with its own numbers in every cell. The worlds are played by the weights of so many updates ago;
the clip is around the policy that played (plain), around the newest, by a pass before each update (recomputed), or between
the two (log-linear), both with the weight min(q / b, 2). All cells have the same seeds, updates and samples. Returns are those
of separate episodes with sampled actions. Prints a line for each cell and a verdict for each claim; a run with the settings as
they are writes results/staleness.json and .png, any other staleness_small.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from purestep.runtime.machine.json_codec import encode
from purestep.runtime.runs.arguments import flatten

from . import evidence
from .parts.staleness_figures import (
    NAMES,
    SCORES,
    STALENESS,
    at_the_top,
    described,
    ordering,
    scores_of,
    table,
    verdicts,
)
from .parts.staleness_parts import CAP, METHODS, Cell, Setup, agreement, cell, parts, warmed
from .parts.staleness_picture import picture

CELLS = {f"{method}-{age}": (method, age) for age in STALENESS for method in METHODS}
SEEDS = 5


@frozen
class Told:
    """A run of the benchmark."""

    cells: tuple[Cell, ...]
    compile_seconds: float  # of all programs, first calls included
    apart: Mapping[str, float]  # from plain PPO after one update without staleness, of a parameter at most


def ran(setup: Setup, names: Sequence[str]) -> Told:
    """The cells, one after the other, with programs that all of them share."""
    methods = tuple(name for name in METHODS if any(CELLS[cell][0] == name for cell in names))
    ready = parts(setup, methods=methods)
    compiling = warmed(setup, ready)
    print(f"compiled in {compiling:.0f} s", file=sys.stderr, flush=True)
    apart, done = agreement(setup, ready), list[Cell]()
    for name in names:
        began = time.perf_counter()
        done.append(cell(setup, ready, *CELLS[name]))
        final = done[-1].returns[-1].mean()
        print(f"{name:16} {time.perf_counter() - began:6.1f} s, final return {final:.1f}", file=sys.stderr, flush=True)
    return Told(tuple(done), compiling, apart)


def printed(told: Told) -> None:
    """The table, and each claim in words."""
    print(table(told.cells))
    print(f"\n{at_the_top(told.cells)}")
    for method, value in told.apart.items():
        print(f"without staleness one update of {NAMES[method]} is plain PPO's to within {value:.1e} in each parameter")
    for score, words in zip(SCORES, ("the final return", "the mean return along the run"), strict=True):
        judged = verdicts(scores_of(told.cells, score))
        print(f"\nBy {words}: {ordering(judged)}.")
        for verdict in judged:
            print(f"  {verdict.line()}")


def written(name: str, setup: Setup, told: Told, seconds: float, load: Sequence[float]) -> None:
    """The results as a file and a picture."""
    worlds = setup.arguments.experience
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load_before": [round(x, 2) for x in load]}
    versions = {"python": platform.python_version(), "torch": version("torch")}
    arguments = {key: value for key, value in flatten(setup.arguments).items() if key not in ("seed", "steps")}
    settings = {
        "seeds": setup.seeds,
        "updates": setup.length(),
        "samples of an update": worlds.envs * worlds.horizon,
        "episodes of an evaluation": setup.episodes,
        "largest weight": CAP,
        "methods": {key: NAMES[key] for key in METHODS},
        "arguments": encode(arguments),
    }
    steps = worlds.envs * worlds.horizon
    figures: dict[str, Any] = {**described(told.cells, steps), "settings": settings}
    figures |= {"apart after one update without staleness": dict(told.apart)}
    figures |= {"compile_seconds": round(told.compile_seconds, 1), "machine": machine, "versions": versions}
    path = evidence.write(name, seconds=seconds, figures=figures)
    picture(told.cells, path.with_suffix(".png"), steps)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.staleness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each cell (default: {SEEDS})")
    parser.add_argument("--updates", type=int, default=0, help="of each run (default: the recipe's own number)")
    parser.add_argument("--only", nargs="+", choices=list(CELLS), default=list(CELLS), help="cells (default: all)")
    return parser.parse_args(words)


def main() -> int:
    """Runs the cells; 0 whatever they show."""
    given, load, began = parse(), os.getloadavg(), time.perf_counter()
    torch.set_num_threads(1)
    setup = Setup(seeds=given.seeds, updates=given.updates)
    whole = given.seeds == SEEDS and given.updates in (0, Setup().length()) and set(given.only) == set(CELLS)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(cache))
        told = ran(setup, list(dict.fromkeys(given.only)))
    printed(told)
    name = "staleness" if whole else "staleness_small"
    written(name, setup, told, time.perf_counter() - began, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
