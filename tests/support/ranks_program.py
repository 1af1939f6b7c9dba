"""What tests of several ranks run on each of them: checks against one process, a run in pieces, a death. No test itself.

RANK=0 WORLD_SIZE=2 ... python tests/support/ranks_program.py checks FOLDER
"""

import atexit
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.language.batch import Reading
from purestep.algorithms.language.learner import LanguageAlgorithm, LanguageState, learner
from purestep.algorithms.language.objectives import Objective, by_token, dapo, grpo, gspo, ppo
from purestep.core import keys
from purestep.core.causal import CausalModel
from purestep.core.errors import StructureError
from purestep.core.language.types import Transcript
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.optimizers import adamw, chain, clip_by_global_norm
from purestep.core.record import replace
from purestep.core.transcript.record import ABSENT, empty
from purestep.core.tree import leaves, tree_map
from purestep.runtime.distributed.clip import clip_by_whole_norm
from purestep.runtime.distributed.partition import Deal, by_batches, by_tokens, deal_sequences
from purestep.runtime.effects.checkpoint import load as sharded_loading
from purestep.runtime.effects.checkpoint import save as sharded_saving
from purestep.runtime.effects.checkpoint.group import join_ranks as grouped
from purestep.runtime.effects.checkpoint.single import latest, read_checkpoint, save
from purestep.runtime.effects.distributed.learner import ranked_learner
from purestep.runtime.effects.distributed.process_group import (
    ProcessGroup,
    gather_tensor,
    on_ranks,
    same_on_all,
    shared,
)
from purestep.runtime.effects.distributed.shard import gather_shards, spread, spread_state
from purestep.runtime.effects.distributed.torch_optimizer import torch_optimizer
from purestep.runtime.effects.hugging_face.causal_lm import causal_model, from_config, tiny_llama
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.text.trainer import language_trainer

VOCABULARY, ROWS, WIDTH, BUDGET = 11, 7, 14, 32
LENGTHS = (14, 5, 9, 3, 12, 7, 6)
TOKEN_GRPO = evolve(grpo(), reduce=by_token)  # every token of the batch weighs the same
CLIPPED = chain(clip_by_global_norm(0.05), adamw(1e-2, weight_decay=0.1))
CASES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "grpo": (grpo(), {}),
    "token_grpo": (TOKEN_GRPO, {"entropy_coefficient": 0.01}),
    "dapo": (dapo(), {"denominators": "sampled"}),
    "gspo": (gspo(), {}),
    "ppo": (ppo(), {}),
    "divergence": (
        grpo(),
        {"kl_in_loss": 0.1, "proximal": "recomputed", "correction": partial(truncated_weights, high=1.1)},
    ),
}
ALL = ("even", "packed", "first", "last", "ragged")  # ways to deal; elsewhere "even" alone
WAYS: dict[str, tuple[str, ...]] = {"token_grpo": ALL, "ppo": ALL}
QUICK = {"token_grpo": ("ragged", "last"), "ppo": ("packed",), "divergence": ("even",)}


def transcripts(draw: int) -> Transcript:
    """Conversations of uneven lengths, two groups of them, as somebody else's policy may have had them."""
    own = keys.split(keys.fold_in(keys.key(7), draw), 3)
    column, length = torch.arange(WIDTH), torch.tensor(LENGTHS)
    spoke = (column > 1) & (column < length[:, None]) & (column % 4 > 0)
    said = torch.where(spoke, -keys.uniform(own[1], (ROWS, WIDTH)).double() - 1.5, 0.0)
    return replace(
        empty(WIDTH, 1, id=torch.arange(ROWS), group=torch.tensor([0, 0, 0, 0, 1, 1, 1])),
        token=keys.randint(own[0], (ROWS, WIDTH), 0, VOCABULARY) * (column < length[:, None]),
        is_action=spoke,
        call=torch.where(spoke, 0, ABSENT),
        behaviour_log_prob=said,
        proximal_log_prob=said.clone(),
        length=length,
        calls=torch.ones(ROWS, dtype=torch.int64),
        reward=keys.uniform(own[2], (ROWS, 1)).double(),
        terminated=torch.ones(ROWS, dtype=torch.bool),
    )


def llama(dtype: torch.dtype = torch.float64) -> tuple[Any, dict[str, Tensor]]:
    """A module, and weights for it that are a function of a key."""
    config = tiny_llama(VOCABULARY, width=16, layers=2, heads=2, kv_heads=1, inner=24, window=32)
    module = library().AutoModelForCausalLM.from_config(config, dtype=dtype)
    return module, from_config(config, dtype=dtype).init(keys.key(1))


def apart(one: Any, other: Any) -> float:
    """The largest difference of two trees, relative to the largest number of the second."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    scale = max(float(leaf.abs().max()) for _, leaf in pairs if leaf.numel())
    return max(float((a - b).abs().max()) for a, b in pairs if a.numel()) / (scale or 1.0)


Places = list[list[tuple[int, ...]]]


def deals(size: int) -> dict[str, Deal]:
    """Ways to deal a batch out: even, one rank alone, and a ragged one."""
    idle: Places = [[(), (), ()]] * (size - 1)
    between: Places = [[(), ()]] * (size - 2)
    ragged: Places = [[(3,), (0, 5)], *between, [(1, 2, 6), (4,)]] if size > 1 else [[(3,), (0, 5, 1, 2, 6, 4)]]
    return {
        "even": by_tokens(BUDGET, ranks=size),
        "packed": by_tokens(BUDGET, ranks=size, packed=16),
        "first": lambda lengths: deal_sequences(lengths, [[(0, 1, 2), (3, 4), (5, 6)], *idle]),
        "last": lambda lengths: deal_sequences(lengths, [*idle, [(6, 5), (4, 3, 2, 1), (0,)]]),
        "ragged": lambda lengths: deal_sequences(lengths, ragged),
    }


def made(
    objective: Objective, choices: dict[str, Any], optimizer: Optimizer
) -> Callable[[CausalModel], LanguageAlgorithm]:
    return lambda model: learner(model, optimizer, objective, **choices)


def checks(ranks: ProcessGroup, folder: Path, *, quick: bool) -> None:
    """How far what the ranks compute is from what one process does, by what was compared; then the last rank dies."""
    module, params = llama()
    model, found = causal_model(module), dict[str, Any]()
    cases = QUICK if quick else {name: WAYS.get(name, ("even",)) for name in CASES}
    for name, ways in cases.items():
        make = made(*CASES[name], CLIPPED)
        for way in ways:
            deal = deals(ranks.size)[way]
            found[f"gradient {name} {way}"] = gradients_apart(ranks, module, model, params, make, deal)
    found["updates"] = updates_apart(ranks, module, model, params, CLIPPED)
    torchs = torch_optimizer(partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.1))
    found["updates with torch"] = updates_apart(ranks, module, model, params, chain(clip_by_global_norm(0.05), torchs))
    if not quick:
        short: dict[str, Any] = {"deal": by_tokens(BUDGET, ranks=ranks.size), "precision": torch.bfloat16}
        found["bfloat16"] = gradients_apart(ranks, module, model, params, made(TOKEN_GRPO, {}, CLIPPED), **short)
    found |= refusals(ranks)
    found["restored"] = restored(ranks, params, folder)
    (folder / f"found{ranks.rank}.json").write_text(json.dumps(found))
    gather_tensor(ranks, torch.zeros(()))
    if ranks.size > 1:
        atexit.register(os.abort)  # who has lost another ends without it
        if ranks.rank == ranks.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(100):
            gather_tensor(ranks, torch.zeros(()))


def gradients_apart(
    ranks: ProcessGroup,
    module: Any,
    model: CausalModel,
    params: Any,
    make: Callable[[CausalModel], LanguageAlgorithm],
    deal: Deal,
    **choices: Any,
) -> float:
    """(gradient, sums, distance) of the ranks against those of the algorithm itself."""
    alone, own = make(model), ranked_learner(make, module, ranks, deal=deal, **choices)
    state, said = alone.init(params), transcripts(0)
    state = replace(state, params=tree_map(lambda leaf: leaf + 0.01, state.params))  # away from the reference
    sharded = spread_state(ranks, state)
    reading = alone.read(state, said) if alone.reads else Reading()
    other = own.read(sharded, said) if alone.reads else reading
    read, seen = ({name: at_tokens(getattr(each, name), said) for name in alone.reads} for each in (other, reading))
    batch, state, _ = alone.prepare(state, said, reading)
    counts = alone.counts(batch)
    wanted = (*alone.gradient(state.params, batch, counts), alone.distance(state.params, batch))
    got = (*own.gradient(sharded.params, batch, counts), own.distance(sharded.params, batch))
    return max(
        apart(gather_shards(one), two)
        for one, two in [*zip(got, wanted, strict=True), *([(read, seen)] if seen else [])]
    )


def at_tokens(column: Tensor, said: Transcript) -> Tensor:
    """What was read at sampled tokens: a rank scores no other."""
    return torch.where(said.is_action, column, 0.0) if column.ndim > 1 else column


def updates_apart(ranks: ProcessGroup, module: Any, model: CausalModel, params: Any, optimizer: Optimizer) -> float:
    """States and figures after some updates of a trainer that clips its gradient."""
    make = made(TOKEN_GRPO, {}, optimizer)
    alone, own = make(model), ranked_learner(make, module, ranks, budget=BUDGET)
    state, sharded = alone.init(params), own.init(params)
    budget = ranks.size * BUDGET
    train, together = (language_trainer(each, budget=budget, epochs=2, minibatches=2) for each in (alone, own))
    one, two = train(state, transcripts(1), keys.key(3)), together(sharded, transcripts(1), keys.key(3))
    same = [name for name in one.figures if name not in ("micro_batches", "padding")]
    most = max(abs(one.figures[name] - two.figures[name]) / (1 + abs(one.figures[name])) for name in same)
    state, sharded = one.state, two.state
    one_step, _ = own.update(sharded, transcripts(9))
    last, _ = alone.update(state, transcripts(9))
    return max(most, apart(gather_shards(sharded), state), apart(gather_shards(one_step), last))


def refusals(ranks: ProcessGroup) -> dict[str, Any]:
    """Whether batches that differ are noticed, and what is shared arrives."""
    found: dict[str, Any] = {}
    try:
        same_on_all("here", ranks, torch.tensor([1.0, 2.0 + ranks.rank]), "pass the same")
        found["refused"] = ""
    except StructureError as error:
        found["refused"] = str(error)
    same_on_all("here", ranks, torch.tensor([1.0, 2.0]), "pass the same")
    said = shared(ranks, transcripts(0) if ranks.rank == 0 else ())
    found["shared"] = apart(said.reward, transcripts(0).reward)
    return found


def restored(ranks: ProcessGroup, params: Any, folder: Path) -> float:
    """A tree in shards against the whole one it came from, by way of a checkpoint."""
    sharded = spread(ranks, params)
    held = gather_shards(sharded)
    if ranks.rank == 0:
        save(folder, 1, held)
    gather_tensor(ranks, torch.zeros(()))
    again = newest(folder, params)
    return apart(gather_shards(spread(ranks, spread(ranks, again))), params)


def late(ranks: ProcessGroup, folder: Path) -> None:
    """The last rank comes to a meeting long after the others have lost patience."""
    gather_tensor(ranks, torch.zeros(()))
    if ranks.rank == ranks.size - 1:
        time.sleep(8.0)
    gather_tensor(ranks, torch.zeros(()))
    (folder / f"met{ranks.rank}").touch()


def newest(folder: Path, like: Any) -> Any:
    """What was saved last."""
    path = latest(folder)
    assert path is not None
    return read_checkpoint(path, like).tree


def piece(ranks: ProcessGroup, folder: Path, first: int, last: int) -> None:
    """Updates from `first` up to `last` of a run in float32 that may have begun in other worlds; losses go to a file."""
    module, params = llama(torch.float32)
    make = made(TOKEN_GRPO, {}, chain(clip_by_whole_norm(0.5), adamw(3e-3)))
    own = ranked_learner(make, module, ranks, deal=by_batches(BUDGET, ranks=ranks.size), reduction=torch.float64)
    state: LanguageState = own.init(params)
    group = grouped(seconds=400.0)
    if first:
        path = sharded_loading.latest(folder, group=group)
        assert path is not None
        state = sharded_loading.load(path, state, group=group).tree
    train, losses = language_trainer(own), []
    for step in range(first, last):
        said = tree_map(lambda leaf: leaf.float() if leaf.is_floating_point() else leaf, transcripts(step % 4))
        learned = train(state, said)
        state = learned.state
        losses.append(learned.figures["loss"])
    sharded_saving.save(folder, last, state, group=group)
    if ranks.rank == 0:
        with (folder / "losses").open("a") as file:
            file.writelines(f"{loss!r}\n" for loss in losses)


def main(words: list[str]) -> int:
    folder = Path(words[1])
    if words[0] in ("quick", "checks"):
        quick = words[0] == "quick"
        return on_ranks(lambda ranks: checks(ranks, folder, quick=quick), timeout=400.0, device="cpu")
    if words[0] == "late":
        return on_ranks(lambda ranks: late(ranks, folder), timeout=3.0, device="cpu")
    first, last = int(words[2]), int(words[3])
    return on_ranks(lambda ranks: piece(ranks, folder, first, last), timeout=400.0, device="cpu")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
