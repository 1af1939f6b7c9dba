"""What `ranks_agree` runs in processes of their own: a recorded sequence of batches, learned from as it stands in its file.

    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.parts.ranks_agree_side RECORDED OUT --last 50

Updates from `--first` up to `--last` of the sequence's batches; with a `--first` the state is what OUT holds of an earlier
call, on however many ranks. Every loss goes into OUT/losses.json. Gradients of parts, which are the same in every world, are
added in float64, and so is their norm; with `--usual` parts are made for the ranks at hand, and all is added in float32.
Without a launcher it is a world of one rank; `--plain` leaves ranks out altogether and is the trainer of one process, with
parts of `--budget`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor

from purestep import Transcript
from purestep.algorithms.language.learner import LanguageAlgorithm, LanguageState, learner
from purestep.core import keys
from purestep.core.causal import CausalModel
from purestep.core.optim.optimizers import adamw, chain, scale_by_schedule
from purestep.core.optim.schedules import linear
from purestep.core.record import replace
from purestep.core.transcript.record import CALL_BLANKS, TOKEN_BLANKS, empty
from purestep.runtime.distributed.clip import clip_by_whole_norm
from purestep.runtime.distributed.partition import by_batches
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.checkpoint.single import latest, save
from purestep.runtime.effects.checkpoint.tensor_file import read_tensors
from purestep.runtime.effects.distributed import shard
from purestep.runtime.effects.distributed.learner import ranked_learner
from purestep.runtime.effects.distributed.process_group import ProcessGroup, on_ranks, summed
from purestep.runtime.effects.distributed.shard import spread_state
from purestep.runtime.effects.hugging_face.causal_lm import causal_model, tiny_llama
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text.build_learner import objective_of, optimizer_of, updates_of
from purestep.runtime.text.trainer import language_trainer

# by their names before, too, as `unchanged` runs this file with older commits
read_checkpoint: Any = getattr(single, "read_checkpoint", None) or getattr(single, "load", None)
gather_shards: Any = getattr(shard, "gather_shards", None) or getattr(shard, "whole", None)

BATCHES, ORDER = 50, 11
BUDGET, ALL = (
    512,
    1 << 20,
)  # tokens at once: of a rank, so that a batch is several parts, and of the trainer, which cuts none
SIZES = {"groups": 4, "samples": 8, "steps": BATCHES, "width": 64, "layers": 2}
FORMER = {"skill": 0.35, "format": 0.1, "tool_spam": 0.1, "minibatches": 2, "kl": 0.0}  # defaults of the recording
SHAPE = ("vocabulary", "width", "layers", "heads", "kv_heads", "inner", "window")
READ = (
    *("token", "is_action", "behaviour_log_prob", "call", "length", "calls", "reward", "temperature"),
    *("inherited", "id", "group", "terminated", "truncated", "reason"),
)
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64)


def arguments() -> Zorplex:
    """The recipe's own of the recording, smaller."""
    return changed(zorplex_defaults("grpo"), {**SIZES, **FORMER})


def compact(said: Transcript, read: Sequence[str] = READ) -> dict[str, Tensor]:
    """The columns of a batch that a learner reads and that are not blank, in the least dtypes that hold them."""
    blank = empty(said.token.shape[1], said.reward.shape[1], id=said.id)
    return {
        name: _least(getattr(said, name))
        for name in read
        if name in ("token", "reward", "id") or not torch.equal(getattr(said, name), getattr(blank, name))
    }


def _least(column: Tensor) -> Tensor:
    if column.is_floating_point() or column.dtype == torch.bool:
        return column
    low, high = int(column.min()), int(column.max())
    fit = (kind for kind in WHOLE if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max)
    return column.to(next(fit))


def batches_of(held: Mapping[str, Tensor], dtype: torch.dtype) -> list[Transcript]:
    """The recorded batches, in their order."""
    found = []
    while f"batch.{len(found)}.token" in held:
        prefix = f"batch.{len(found)}."
        columns = {name[len(prefix) :]: value for name, value in held.items() if name.startswith(prefix)}
        blank = empty(columns["token"].shape[1], columns["reward"].shape[1], id=columns["id"].long())
        own = {name: value.to(getattr(blank, name).dtype) for name, value in columns.items()}
        said = replace(blank, **own)
        said = replace(said, proximal_log_prob=said.behaviour_log_prob.clone())
        floats = {
            name: getattr(said, name).to(dtype)
            for name in (*TOKEN_BLANKS, *CALL_BLANKS)
            if getattr(said, name).is_floating_point()
        }
        found.append(replace(said, **floats))
    return found


def module_of(held: Mapping[str, Tensor], dtype: torch.dtype) -> tuple[Any, dict[str, Tensor]]:
    """The library's module, and the weights that the sequence begins with."""
    numbers = dict(zip(SHAPE, held["shape"].tolist(), strict=True))
    module = library().AutoModelForCausalLM.from_config(tiny_llama(**numbers), dtype=dtype)
    return module, {name: held[f"policy.{name}"].to(dtype) for name, _ in module.named_parameters()}


def logged(algorithm: LanguageAlgorithm, losses: list[float]) -> LanguageAlgorithm:
    """The algorithm, which tells the loss of each update."""

    def apply(state: LanguageState, gradients: Any, sums: Any) -> Any:
        losses.append(float(sums.loss))
        return algorithm.apply(state, gradients, sums)

    names = (name for name in dir(algorithm) if not name.startswith("_"))
    logging: Any = SimpleNamespace(**{name: getattr(algorithm, name) for name in names} | {"apply": apply})
    return logging  # type: ignore[no-any-return]


def make_of(*, exact: bool) -> Callable[[CausalModel], LanguageAlgorithm]:
    """What makes the recipe's learner of a model; `exact` has its gradient shortened by a norm that is added in float64."""
    own = arguments()
    learning, usual = own.learning, optimizer_of(own)
    decay = scale_by_schedule(linear(1.0, 0.0, updates_of(own)))
    adam = adamw(learning.learning_rate, weight_decay=learning.weight_decay)
    alike = chain(clip_by_whole_norm(learning.max_gradient_norm), adam, decay)
    return lambda model: learner(model, alike if exact else usual, objective_of(own))


def replayed(
    algorithm: LanguageAlgorithm,
    state: LanguageState,
    batches: Sequence[Transcript],
    first: int,
    last: int,
    budget: int,
) -> tuple[LanguageState, list[float]]:
    """The state after the batches from `first` up to `last`, and the loss of each update."""
    losses: list[float] = []
    train = language_trainer(logged(algorithm, losses), budget=budget, minibatches=arguments().learning.minibatches)
    for number in range(first, last):
        state = train(state, batches[number], keys.fold_in(keys.key(ORDER), number)).state
    return state, losses


def on_one(options: argparse.Namespace, dtype: torch.dtype) -> None:
    """The trainer of one process, without ranks."""
    held = read_tensors(options.recorded)
    module, params = module_of(held, dtype)
    algorithm = make_of(exact=False)(causal_model(module))
    given = algorithm, algorithm.init(params), batches_of(held, dtype), options.first, options.last, options.budget
    _, losses = replayed(*given)
    (options.out / "losses.json").write_text(json.dumps(losses))


def on_each(ranks: ProcessGroup, options: argparse.Namespace, dtype: torch.dtype) -> None:
    """The same on ranks, each with its own copy of the file."""
    held = read_tensors(options.recorded)
    module, params = module_of(held, dtype)
    exact = {"deal": by_batches(BUDGET, ranks=ranks.size), "reduction": torch.float64}
    how: dict[str, Any] = {"budget": BUDGET} if options.usual else exact
    algorithm = ranked_learner(make_of(exact=not options.usual), module, ranks, **how)
    state = algorithm.init(params)
    if options.first:
        kept = latest(options.out)
        if kept is None:
            raise SystemExit(f"{options.out} holds no checkpoint to go on from")
        state = spread_state(ranks, read_checkpoint(kept, gather_shards(state)).tree)
    given = batches_of(held, dtype), options.first, options.last, ranks.size * BUDGET if options.usual else ALL
    state, losses = replayed(algorithm, state, *given)
    full = gather_shards(state)
    if ranks.rank == 0:
        before = json.loads((options.out / "losses.json").read_text()) if options.first else []
        (options.out / "losses.json").write_text(json.dumps([*before, *losses]))
        save(options.out, options.last, full)
    summed(ranks, torch.zeros(()))  # nobody leaves before the state is there


def main() -> int:
    """The exit code of this process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts.ranks_agree_side", description=__doc__)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=BATCHES)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument(
        "--usual", action="store_true", help="parts made for these ranks, sums in the parameters' dtype"
    )
    parser.add_argument("--plain", action="store_true", help="the trainer of one process")
    parser.add_argument("--budget", type=int, default=BUDGET, help="of the trainer of one process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    if options.plain:
        on_one(options, dtype)
        return 0
    return on_ranks(lambda ranks: on_each(ranks, options, dtype), timeout=600.0, device="cpu")


if __name__ == "__main__":
    sys.exit(main())
