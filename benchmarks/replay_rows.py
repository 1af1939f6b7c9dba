"""Replay buffers in a compiled program: milliseconds an iteration and memory, by the number of rows.

An iteration stores 16 transitions in a ring buffer of 10^4, 10^5 or 10^6 rows, samples 64 of them and takes a step of gradient
descent; the prioritised one samples by a sum tree and writes new priorities. Each program runs 200 iterations a call, its
buffer donated, in a process of its own. `--copied` also runs programs without writes in place, which copy the buffer in every
iteration. Writes results/replay_rows.json.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.runtime.compile import program
from purestep.runtime.inductor import scan_loops

from . import evidence

ROWS = (10_000, 100_000, 1_000_000)
ITERATIONS, STORED, SAMPLED, WIDTH, CALLS = 200, 16, 64, 8, 7
State = dict[str, Tensor]


def begin(rows: int, tree: bool) -> State:
    """A buffer full of numbers, weights of a linear model, and a sum tree over the rows."""
    made = {
        "x": keys.normal(keys.key(1), (rows, WIDTH)),
        "y": keys.normal(keys.key(2), (rows,)),
        "w": torch.zeros(WIDTH),
    }
    if tree:
        leaves = 1 << math.ceil(math.log2(rows))
        levels = [(torch.arange(leaves) < rows).float()]
        while len(levels[-1]) > 1:
            levels.append(levels[-1].view(-1, 2).sum(1))
        made["tree"] = torch.cat([torch.zeros(1), *levels[::-1]])
    return made


def set_priorities(tree: Tensor, rows: Tensor, priorities: Tensor) -> Tensor:
    """The tree with new priorities of rows, and the sums above them.

    >>> set_priorities(torch.tensor([0.0, 4.0, 3.0, 1.0, 1.0, 2.0, 1.0, 0.0]), torch.tensor([1]), torch.tensor([5.0]))
    tensor([0., 7., 6., 1., 1., 5., 1., 0.])
    """
    places = rows + len(tree) // 2
    tree = tree.index_copy(0, places, priorities)
    for _ in range(int(math.log2(len(tree))) - 1):
        places = places // 2
        tree = tree.index_copy(0, places, tree[2 * places] + tree[2 * places + 1])
    return tree


def drawn(tree: Tensor, uniform: Tensor) -> Tensor:
    """Rows drawn in proportion to their priorities.

    >>> drawn(torch.tensor([0.0, 4.0, 3.0, 1.0, 1.0, 2.0, 1.0, 0.0]), torch.tensor([0.1, 0.5, 0.9]))
    tensor([0, 1, 2])
    """
    places, left = torch.ones_like(uniform, dtype=torch.int64), uniform * tree[1]
    for _ in range(int(math.log2(len(tree))) - 1):
        first = tree[2 * places]
        right = left >= first
        places, left = 2 * places + right, torch.where(right, left - first, left)
    return places - len(tree) // 2


def iterations(rows: int) -> Callable[[State, Tensor], Any]:
    """A function that runs 200 iterations on a buffer of so many rows."""

    def step(state: State, t: Tensor) -> tuple[State, Tensor]:
        new, sample = keys.split(keys.fold_in(keys.key(3), t))
        at = (t * STORED + torch.arange(STORED)) % rows
        x = state["x"].index_copy(0, at, keys.normal(new, (STORED, WIDTH)))
        y = state["y"].index_copy(0, at, x[at].sum(-1))
        rest = {}
        if "tree" in state:
            tree = set_priorities(state["tree"], at, torch.ones(STORED))
            chosen = drawn(tree, keys.uniform(sample, (SAMPLED,)))
        else:
            chosen = keys.randint(sample, (SAMPLED,), 0, rows)
        fault = x[chosen] @ state["w"] - y[chosen]
        if "tree" in state:
            rest["tree"] = set_priorities(tree, chosen, fault.abs() + 0.01)
        w = state["w"] - 0.01 * (x[chosen] * fault[:, None]).mean(0)
        return {"x": x, "y": y, "w": w, **rest}, fault.square().mean()

    return lambda state, first: scan(step, state, first + torch.arange(ITERATIONS))


def side(rows: int, tree: bool, in_place: bool) -> dict[str, float]:
    """Milliseconds of an iteration, and the peak of memory in a call, in buffers."""
    if not in_place:
        scan_loops.write_in_place = lambda *_: None  # type: ignore[assignment]
    torch.set_num_threads(1)
    run = program(iterations(rows), name="replay", donate=(0,))
    state, first = begin(rows, tree), torch.tensor(0)
    size = sum(one.numel() * one.itemsize for one in state.values())
    state, _ = run(state, first)
    spent, peaks = [], []
    for call in range(1, CALLS + 1):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, start = _memory("VmRSS"), time.process_time()
        state, _ = run(state, first + call * ITERATIONS)
        spent.append(time.process_time() - start)
        peaks.append(_memory("VmHWM") - before)
    figure = {"milliseconds": statistics.median(spent) / ITERATIONS * 1e3, "buffers": 1 + max(peaks) / size}
    return {name: round(value, 4) for name, value in figure.items()}


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def main() -> None:
    """Measure all programs, in turns."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    options.add_argument("--copied", action="store_true", help="also without writes in place")
    chosen = options.parse_args()
    if chosen.side:
        rows, tree, in_place = map(int, chosen.side)
        print(json.dumps(side(rows, bool(tree), bool(in_place))))
        return
    began = time.perf_counter()
    results: dict[str, dict[str, Any]] = {}
    for in_place in (1, 0) if chosen.copied else (1,):
        for tree in (0, 1):
            name = f"{'prioritised' if tree else 'uniform'}, {'in place' if in_place else 'copied'}"
            for rows in chosen.rows:
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.replay_rows",
                    "--side",
                    str(rows),
                    str(tree),
                    str(in_place),
                ]
                line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
                results.setdefault(name, {})[str(rows)] = json.loads(line)
                print(f"{name:22} {rows:9,} rows: {line}   load {os.getloadavg()[0]:.1f}", flush=True)
    figures = {**results, "load": os.getloadavg()}
    evidence.write("replay_rows", seconds=time.perf_counter() - began, figures=figures)


if __name__ == "__main__":
    main()
