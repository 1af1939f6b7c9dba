"""What ranks on hosts of their own train in tests: the same updates again and again, until nobody answers."""

import hashlib
import json
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from purestep.core.tree import leaves
from purestep.runtime.effects.distributed.learner import ranked_learner
from purestep.runtime.effects.distributed.process_group import ProcessGroup, on_ranks
from purestep.runtime.effects.distributed.shard import gather_shards
from purestep.runtime.text.trainer import language_trainer

SECONDS = 6.0  # behind which a rank that says nothing is taken for lost
UPDATES = 2
program: Any = import_module("ranks_program")  # beside this file, for processes that are started with it


def trained(ranks: ProcessGroup, own: Any, params: Any) -> list[str]:
    """Losses of some updates, and the parameters behind them as a hash of their bits."""
    train, state, said = language_trainer(own), own.init(params), list[str]()
    for step in range(UPDATES):
        learned = train(state, program.transcripts(step))
        state = learned.state
        said.append(float(learned.figures["loss"]).hex())
    found = hashlib.sha256()
    for leaf in leaves(gather_shards(state.params)):
        found.update(leaf.contiguous().numpy().tobytes())
    return [*said, found.hexdigest()]


def again_and_again(ranks: ProcessGroup, place: Path) -> None:
    """Each time the test says so."""
    module, params = program.llama()
    make = program.made(program.TOKEN_GRPO, {}, program.CLIPPED)
    own = ranked_learner(make, module, ranks, budget=program.BUDGET)
    for number in range(100):
        found = trained(ranks, own, params)
        beside = place / f".{number}-{ranks.rank}"
        beside.write_text(json.dumps(found))
        beside.rename(place / f"{number}-{ranks.rank}")
        while not (place / f"go{number}").exists() and number < 2:
            time.sleep(0.02)


def main(words: list[str]) -> int:
    return on_ranks(partial(again_and_again, place=Path(words[0])), timeout=SECONDS, device="cpu")
