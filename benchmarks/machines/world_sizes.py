"""Checkpoints saved at one world size and loaded at another, for all of {1, 2, 3, 4} squared, in each form, bit by bit.

Four processes (gloo, CPU) form worlds of 1 to 4 ranks one after the other. In each a small Llama is sharded by `fully_shard`,
and two states are saved in three forms: the parameters with our AdamW's state, with transcripts and a key that all ranks
hold alike, and those of the module with torch's AdamW. Then each world loads what each has saved, and every rank compares
its part with the numbers that belong there, which it draws from a key itself; so does a process without torch.distributed.
Folders in Hugging Face's form are opened by `from_pretrained`. Prints a matrix for each form and writes
benchmarks/results/world_sizes.json; exit code 1 unless all is as it should be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from purestep.runtime.effects.hugging_face.optional import library

from .. import evidence
from ..parts.world_sizes_side import FORMS, KINDS, config, drawn, loaded, saved, tree_of, world

SIZES = range(1, 5)
Rows = list[dict[str, Any]]


def side(place: Path, rank: int) -> Rows:
    """What one process does; the rows of rank 0 of each world."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # new memory holds no numbers, so none that a load before has left
    for size in SIZES:
        if rank < size:
            with world(place, rank, size, "save") as here:
                saved(here, place)
    rows: Rows = []
    for size in SIZES:
        if rank < size:
            with world(place, rank, size, "load") as here:
                found = loaded(here, place, SIZES)
                rows += found if rank == 0 else []
    if rank == 0:
        with world(place, 0, 0, "load") as here:
            rows += loaded(here, place, SIZES)
    return rows


def opened(place: Path) -> int:
    """How many leaves of the models in the folders differ, opened as anybody opens them."""
    model_of, differing = library().AutoModelForCausalLM.from_pretrained, 0
    with world(place, 0, 0, "open") as here:
        wanted = drawn(tree_of(here, "functional")[0], 0)["params"]
    for kind in KINDS:
        for size in SIZES:
            folder = place / f"hugging_face-{kind}-{size}" / "checkpoints" / "step_000001" / "model"
            got = dict(model_of(str(folder)).named_parameters())
            differing += got.keys() != wanted.keys()
            differing += sum(not torch.equal(got[name], value) for name, value in wanted.items() if name in got)
    return differing


def run(place: Path) -> tuple[Rows, int]:
    """(the rows of all worlds, leaves that differ in opened models). Raises: RuntimeError when a process fails."""
    words = [sys.executable, "-m", "benchmarks.machines.world_sizes", "--place", str(place), "--rank"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    sides = [
        subprocess.Popen([*words, str(rank)], cwd=evidence.ROOT, env=quiet, stdout=subprocess.PIPE, text=True)
        for rank in range(max(SIZES))
    ]
    printed = []
    try:
        for one in sides:
            out, _ = one.communicate(timeout=1800)
            if one.returncode:
                raise RuntimeError(f"a rank ended with code {one.returncode}")
            printed.append(out)
    finally:
        for one in sides:
            one.kill()
            one.wait()
    return json.loads(printed[0].splitlines()[-1]), opened(place)


def good(row: dict[str, Any]) -> bool:
    """Whether everything was the same, and another seed's numbers would have been told apart in every leaf."""
    return row["differing"] == 0 and row["machine"] and row["control_differing"] >= row["leaves"] > 0


def matrix(rows: Rows, form: str, kind: str) -> str:
    """A line for each world that loads: the leaves that differ, for each world that saved."""
    chosen = [row for row in rows if (row["form"], row["optimizer"]) == (form, kind)]
    lines = [
        f"{form}, {kind} optimiser: leaves that differ",
        "loaded at \\ saved at " + "".join(f"{n:5}" for n in SIZES),
    ]
    for size in (*SIZES, 0):
        cells = {row["saved_at"]: row["differing"] for row in chosen if row["loaded_at"] == size}
        name = f"{size} ranks" if size else "no group"
        lines.append(f"{name:<22}" + "".join(f"{cells[n]:5}" for n in SIZES))
    return "\n".join(lines)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.world_sizes", description=__doc__)
    parser.add_argument("--place", default="", help="a folder for the checkpoints (default: one that is removed)")
    parser.add_argument("--rank", type=int, default=-1, help="be this rank of those that the program starts")
    return parser.parse_args(words)


def main() -> int:
    given, began = parse(), time.perf_counter()
    if given.rank >= 0:
        print(json.dumps(side(Path(given.place), given.rank)))
        return 0
    with tempfile.TemporaryDirectory() as spare:
        place = Path(given.place or spare)
        place.mkdir(parents=True, exist_ok=True)
        rows, differing = run(place)
    for form in FORMS:
        for kind in KINDS:
            print(matrix(rows, form, kind), end="\n\n")
    wanted = len(FORMS) * len(KINDS) * len(SIZES) * (len(SIZES) + 1)
    kept = len(rows) == wanted and all(map(good, rows)) and differing == 0
    parameters = sum(value.numel() for value in shapes().values())
    figures = {
        "kept": kept,
        "cells": len(rows),
        "differing_when_opened": differing,
        "parameters": parameters,
        "rows": rows,
    }
    evidence.write("world_sizes", seconds=time.perf_counter() - began, figures=figures)
    print("kept" if kept else "FAILED")
    return 0 if kept else 1


def shapes() -> dict[str, torch.Tensor]:
    """The model's parameters, without numbers."""
    with torch.device("meta"):
        return dict(library().AutoModelForCausalLM.from_config(config()).named_parameters())


if __name__ == "__main__":
    sys.exit(main())
