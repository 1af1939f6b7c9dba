"""What each engine takes to start, to call and to tell of a death, and each way of weights beside a plain copy, in one run.

Weights go through no engine's calls. All is on one machine: hosts further away add their network. Engines and ways that are not
installed are named with what installs them. Writes benchmarks/results/engines.json and engines.png, or engines_small.json with
other arguments than usual; exit code 1 where an engine or a way is missing, a death was reported later than after 3 s, or
fetched weights were not those that were published.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from purestep.runtime.effects.cluster import ENGINES
from purestep.runtime.effects.cluster.interface import EngineError
from purestep.runtime.effects.reporting.plot import COLOURS, GRID, INK

from .. import evidence
from ..parts import transfer_paths
from ..parts.engine_calls import measured
from ..parts.pictures import look, page, saved

ABSENT = "is not installed"  # so begins the reason of an engine for which a package is wanted
FOUND = 3.0  # seconds within which a death is to be told
DEATH = "a death is told after"
SHOWN = ("start of an engine with 3 members", "start of 3 more members", "a call", DEATH)


def called(calls: int) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """The figures of each engine that is installed, and why the others have none."""
    figures, missing = dict[str, dict[str, float]](), dict[str, str]()
    for engine in ENGINES:
        try:
            figures[engine] = measured(engine, calls)
        except EngineError as error:
            if ABSENT not in str(error):
                raise
            missing[engine] = str(error)
            continue
        for name, value in figures[engine].items():
            shown = f"{value:12,.0f}" if "a second" in name else f"{1e3 * value:12,.2f} ms"
            print(f"{engine:12}{name:38}{shown}", flush=True)
    return figures, missing


def faults(
    engines: Mapping[str, Mapping[str, float]], weights: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]
) -> list[str]:
    """What is not as it should be."""
    absent = [f"{name} is missing: {why}" for name, why in missing.items()]
    slow = [f"{name}: a death was told after {row[DEATH]:.1f} s" for name, row in engines.items() if row[DEATH] > FOUND]
    return absent + slow + [fault for table in weights.values() for fault in table["faults"]]


def picture(figures: Mapping[str, Any], out: Path) -> Path:
    """Draws the times of engines and the speeds of ways; gives `out`."""
    figure = page(13.2, 4.6)
    left, right = figure.subplots(1, 2)
    for place, (name, row) in enumerate(figures["engines"].items()):
        across = [number + 0.26 * place for number in range(len(SHOWN))]
        left.bar(across, [row[one] for one in SHOWN], width=0.24, color=COLOURS[place], label=name)
    left.set_yscale("log")
    left.set_xticks(
        [number + 0.26 for number in range(len(SHOWN))], [name.replace(" with", "\nwith") for name in SHOWN]
    )
    left.set_ylabel("seconds", fontsize=9, color=INK)
    look(left, "Engines")
    for place, (name, table) in enumerate(figures["weights"].items()):
        ways = [*table["of a copy"]]
        down = [number + 0.4 * place for number in range(len(ways))]
        right.barh(down, [table["of a copy"][way] for way in ways], height=0.36, color=COLOURS[place], label=name)
        right.set_yticks([number + 0.2 for number in range(len(ways))], ways)
    right.set_xlabel("of a plain copy's speed", fontsize=9, color=INK)
    look(right, "A fetch of weights")
    for axes in (left, right):
        axes.grid(color=GRID, linewidth=0.8)
        axes.legend(frameon=False, fontsize=8)
    return saved(figure, out)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.engines", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="of which the median is taken (default: 2000)")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100.0, 1000.0], help="sizes of the weights")
    parser.add_argument("--rounds", type=int, default=7, help="of fetches, of which the median is taken (default: 7)")
    return parser.parse_args(words)


def main() -> int:
    """Prints the tables, writes the result file and draws it."""
    given, began = parse(), time.perf_counter()
    torch.set_num_threads(1)
    engines, without = called(given.calls)
    names, missing = transfer_paths.runnable()
    weights = {f"{size:g} MB": transfer_paths.table(size, given.rounds, names) for size in given.megabytes}
    for name, table in weights.items():
        for way, ratio in table["of a copy"].items():
            print(f"{name:10}{way:28}{ratio:8.2f} of a copy")
    wrong = faults(engines, weights, without | missing)
    figures = {"kept": not wrong, "faults": wrong, "engines": engines, "weights": weights, "missing": without | missing}
    small = vars(given) != vars(parse([]))
    path = evidence.write(f"engines{'_small' * small}", seconds=time.perf_counter() - began, figures=figures)
    picture(figures, path.with_suffix(".png"))
    print("\n".join(f"{name}: {why}" for name, why in figures["missing"].items()))
    print(f"{'kept' if not wrong else f'FAILED: {wrong}'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
