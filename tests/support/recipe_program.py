"""What tests of the recipe run on each rank: a recorded sequence of batches, learned from in pieces. No test itself.

    FOLDER RANK SIZE:FIRST:LAST:PORT... PORT WORD...        the words of `main`

What the process of this rank does in one world after the other; in those that are too small for it, it has no part. Updates
from batch FIRST up to LAST, with the recipe's own learner and checkpoints; the state is what an earlier world has saved, on
however many ranks. The loss of each update goes to FOLDER/losses. At the end a world of two does what words tell `purestep`.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from purestep.core import keys
from purestep.core.language.types import Transcript
from purestep.core.record import replace
from purestep.core.transcript.record import ABSENT, empty
from purestep.runtime.cli import main as cli
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.runs.training_machine import Loop
from purestep.runtime.text.build_learner import LearnerBackend
from purestep.runtime.text.components import text_components
from purestep.runtime.text.distributed_learner import in_process_group

TINY: dict[str, Any] = {"width": 16, "layers": 2, "heads": 2, "steps": 20, "capacity": 64, "budget": 64}
ROWS, WIDTH = 8, 40


def arguments() -> Zorplex:
    """Those of the run, whose steps are as many as there are batches."""
    return changed(zorplex_defaults(), TINY)


def recorded(number: int, vocabulary: int) -> Transcript:
    """A batch that follows from its number: conversations of uneven lengths in groups of four."""
    own = keys.split(keys.fold_in(keys.key(5), number), 4)
    length = keys.randint(own[0], (ROWS,), WIDTH // 2, WIDTH + 1)
    column = torch.arange(WIDTH)
    spoke = (column > 8) & (column < length[:, None]) & (column % 5 > 0)
    said = torch.where(spoke, -keys.uniform(own[1], (ROWS, WIDTH)) - 4.0, 0.0)
    return replace(
        empty(WIDTH, 1, id=torch.arange(ROWS), group=torch.arange(ROWS) // 4),
        token=keys.randint(own[2], (ROWS, WIDTH), 0, vocabulary) * (column < length[:, None]),
        is_action=spoke,
        call=torch.where(spoke, 0, ABSENT),
        behaviour_log_prob=said,
        proximal_log_prob=said.clone(),
        length=length,
        calls=torch.ones(ROWS, dtype=torch.int64),
        reward=keys.uniform(own[3], (ROWS, 1)),
        terminated=torch.ones(ROWS, dtype=torch.bool),
    )


def piece(backend: LearnerBackend, folder: Path, first: int, last: int) -> int:
    """Runs on the first rank."""
    own = arguments()
    parts = backend.parts(text_components(own))
    algorithm, train = backend.learner(own, parts)
    state = algorithm.init(parts.begin())
    if first:
        where = backend.newest(folder)
        assert where is not None
        kept = backend.load(where, state, classes=[Loop])
        assert kept.machine == Loop(iterations=20, chunk=1, every=1, iteration=first)
        state = kept.tree
    with (folder / "losses").open("a") as file:
        for number in range(first, last):
            learned = train(state, recorded(number, parts.model.vocabulary), keys.fold_in(keys.key(9), number))
            state = learned.state
            file.write(f"{learned.figures['loss']!r}\n")
    machine = Loop(iterations=20, chunk=1, every=1, iteration=last)
    backend.save(folder, last, state, machine=machine, facts={}, metadata={})
    backend.settle()
    return 0


def launched(rank: int, size: int, port: str) -> None:
    """As a launcher would set it."""
    place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})


def main(words: list[str]) -> int:
    place, rank, here = Path(words[0]), int(words[1]), sum(":" in word for word in words) + 2
    for size, begin, end, port in (word.split(":") for word in words[2:here]):
        if rank < int(size):
            launched(rank, int(size), port)
            in_process_group(partial(piece, folder=place, first=int(begin), last=int(end)))
    if rank < 2:
        launched(rank, 2, words[here])
        return cli.main(words[here + 1 :])
    return 0
