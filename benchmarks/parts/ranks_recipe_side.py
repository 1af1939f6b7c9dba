"""What `ranks_recipe` runs on each rank: the recorded batches of `ranks_agree`, learned from and kept as the recipe does it.

    RANK=0 WORLD_SIZE=2 ... python -m benchmarks.parts.ranks_recipe_side RECORDED OUT FIRST LAST

Updates of the batches from FIRST up to LAST by the recipe's own learner; with a FIRST the state is the newest checkpoint in
OUT, of however many ranks. The loss of each batch is added to OUT/losses. Without a launcher it is a world of one rank.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from purestep.core import keys
from purestep.runtime.effects.checkpoint.tensor_file import read_tensors
from purestep.runtime.text.build_learner import LearnerBackend
from purestep.runtime.text.components import text_components
from purestep.runtime.text.distributed_learner import in_process_group

from .ranks_agree_side import ORDER, arguments, batches_of


def replayed(backend: LearnerBackend, recorded: Path, out: Path, first: int, last: int) -> int:
    """Runs on the first rank; gives the exit code."""
    own, held = arguments(), read_tensors(recorded)
    parts, batches = backend.parts(text_components(own)), batches_of(held, torch.float32)
    algorithm, train = backend.learner(own, parts)
    state: Any = algorithm.init({name: held[f"policy.{name}"] for name in parts.begin()})
    if first:
        where = backend.newest(out)
        if where is None:
            raise SystemExit(f"{out} holds no checkpoint to go on from")
        state = backend.load(where, state).tree
    with (out / "losses").open("a") as file:
        for number in range(first, last):
            learned = train(state, batches[number], keys.fold_in(keys.key(ORDER), number))
            state = learned.state
            file.write(f"{learned.figures['loss']!r}\n")
    backend.save(out, last, state, machine=(), facts={}, metadata={})
    backend.settle()
    return 0


if __name__ == "__main__":
    given, out, first, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    sys.exit(in_process_group(lambda backend: replayed(backend, given, out, first, last)))
