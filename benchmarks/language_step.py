"""Our GRPO training step against TRL's GRPOTrainer on the same tiny Llama and conversations, and what padding costs.

First the same numbers: the gradient of every parameter at the first step. Then seconds a step, the sides taking turns in
processes of their own; ours from transcripts in to weights out, TRL's without what gives it inputs, rewards and advantages.
Conversations are like Zorplex': a prompt of 20 tokens, calls of 4 to 8 tokens, answers of a tool between them. Padding is
measured on those and on lengths with a long tail. Writes results/language_step.json.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor

from purestep.algorithms.language.batch import Reading
from purestep.algorithms.language.learner import LanguageState, learner
from purestep.algorithms.language.objectives import grpo
from purestep.algorithms.language.packing import SequenceLayout, micro_batches, packed_rows, padding_waste
from purestep.core.causal import CausalModel
from purestep.core.language.types import TokenBatch, Transcript
from purestep.core.optim.optimizers import adamw, chain, clip_by_global_norm
from purestep.core.record import replace, take
from purestep.core.transcript.record import ABSENT, empty
from purestep.core.tree import leaf_paths, leaves, tree_map
from purestep.runtime.text.trainer import language_trainer

from . import evidence
from .parts.sides import Report, Side, run
from .parts.timing import ratio, scaled, turns

VOCABULARY, PROMPT, ROWS, GROUP, BUDGET = 400, 20, 128, 8, 16_384
OURS, THEIRS = Side("", "language_step"), Side("trl", "trl_speed")
CLOSE = 1e-3  # float32, two libraries' orders of sums


def drawn(rows: int = ROWS) -> dict[str, Any]:
    """Conversations: ids of prompts and completions, which of them the model wrote, rewards."""
    random = torch.Generator().manual_seed(5)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=random))

    def ids(count: int) -> list[int]:
        return torch.randint(2, VOCABULARY, (count,), generator=random).tolist()

    completions, masks = [], []
    for _ in range(rows):
        parts = [(number(4, 9), 1)]
        for _ in range(number(0, 4)):
            parts += [(number(3, 6), 0), (number(4, 9), 1)]
        masks.append([own for count, own in parts for _ in range(count)])
        completions.append(ids(len(masks[-1])))
    rewards = torch.rand(rows, generator=random).round(decimals=3).tolist()
    prompts = [ids(PROMPT) for _ in range(rows)]
    talk = {"prompt_ids": prompts, "completion_ids": completions, "env_mask": masks, "rewards": rewards}
    return {**talk, "group": GROUP}


def transcripts(talks: dict[str, Any]) -> Transcript:
    """The same as transcripts, each of one call, log-probs still to be filled in."""
    rows = [[*a, *b] for a, b in zip(talks["prompt_ids"], talks["completion_ids"], strict=True)]
    width, number = max(map(len, rows)), len(rows)

    def column(values: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in values])

    spoke = column([[0] * PROMPT + mask for mask in talks["env_mask"]]).bool()
    return replace(
        empty(width, 1, id=torch.arange(number), group=torch.arange(number) // talks["group"]),
        token=column(rows),
        is_action=spoke,
        call=torch.where(spoke, 0, ABSENT),
        length=torch.tensor([len(row) for row in rows]),
        calls=torch.ones(number, dtype=torch.int64),
        reward=torch.tensor(talks["rewards"])[:, None],
        terminated=torch.ones(number, dtype=torch.bool),
    )


def opened(folder: Path) -> tuple[CausalModel, Any, Transcript]:
    """The model, its parameters, and the conversations as it might have had them itself."""
    from transformers import LlamaForCausalLM

    from purestep.runtime.effects.hugging_face.causal_lm import causal_model

    module = LlamaForCausalLM.from_pretrained(folder)
    model, params = causal_model(module), {name: value.detach() for name, value in module.named_parameters()}
    said = transcripts(json.loads((folder / "talks.json").read_text()))
    reader = learner(model, adamw(1e-3), grpo(), proximal="recomputed")
    with torch.no_grad():
        own = torch.where(said.is_action, reader.read(reader.init(params), said).log_prob, 0.0)
    return model, params, replace(said, behaviour_log_prob=own, proximal_log_prob=own.clone())


def ours(folder: Path, steps: int) -> Report:
    """Our side: the same report as the peer's."""
    model, params, said = opened(folder)
    algorithm = learner(model, chain(clip_by_global_norm(1.0), adamw(1e-3, weight_decay=0.0)), grpo())
    train, state = language_trainer(algorithm, budget=BUDGET), algorithm.init(params)
    batch, _, _ = algorithm.prepare(state, said, Reading())
    gradients, _ = algorithm.gradient(state.params, batch, algorithm.counts(batch))
    whole = torch.linalg.vector_norm(torch.stack([leaf.norm() for leaf in leaves(gradients)]))
    scale = (1 / (whole + 1e-6)).clamp(max=1.0)
    pairs = zip(leaf_paths(gradients.policy), leaves(gradients.policy), strict=True)
    norms = {path[0]: float(leaf.norm() * scale) for path, leaf in pairs}
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        state = train(state, said).state
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[1:], "whole_seconds": sum(seconds) / steps, "gradient_norms": norms}


def compared(folder: Path, steps: int, rounds: int) -> dict[str, Any]:
    """Both sides in turns, after their gradients were found equal. Raises: RuntimeError where they are not."""
    found: dict[str, list[Report]] = {"purestep": [], "trl": []}
    for _ in range(rounds):
        options = {"steps": steps, "threads": 1}
        found["purestep"].append(run(OURS, {"ours": folder, **options}))
        found["trl"].append(run(THEIRS, {"folder": folder, **options}))
    one, other = (reports[0]["gradient_norms"] for reports in found.values())
    apart = max(abs(one[name] - other[name]) / (other[name] + 1e-6) for name in other)
    if one.keys() != other.keys() or not apart < CLOSE:
        raise RuntimeError(f"the first gradients differ by {apart:.1e} in a parameter's norm, wanted less than {CLOSE}")
    seconds = {name: [sorted(each["seconds"])[len(each["seconds"]) // 2] for each in found[name]] for name in found}
    whole = {name: [each["whole_seconds"] for each in reports] for name, reports in found.items()}
    return {
        "rows": ROWS,
        "largest relative difference of a gradient's norm": apart,
        "milliseconds a step": {name: scaled(values, 1e3, digits=1) for name, values in seconds.items()},
        "TRL's step / ours": ratio(seconds["trl"], seconds["purestep"]),
        "milliseconds a step, inputs and logging included": {
            name: scaled(values, 1e3, digits=1) for name, values in whole.items()
        },
        "the same, TRL's / ours": ratio(whole["trl"], whole["purestep"]),
    }


def long_tail(rows: int) -> list[int]:
    """Lengths from 24 on, some many times the median."""
    normal = torch.randn(rows, generator=torch.Generator().manual_seed(9))
    return [min(int(each), 480) for each in 24 + 30 * normal.exp()]


def waste(lengths: Sequence[int], budget: int, capacity: int) -> dict[str, float]:
    """The share of what a model reads that is padding, by how sequences are put together."""
    each = max(1, budget // max(lengths))
    as_they_come = [range(start, min(start + each, len(lengths))) for start in range(0, len(lengths), each)]
    rows = packed_rows(lengths, capacity)
    return {
        "as they come": round(padding_waste(lengths, as_they_come), 4),
        "by budget": round(padding_waste(lengths, micro_batches(lengths, budget)), 4),
        "packed": round(1 - sum(lengths) / (capacity * len(rows)), 4),
    }


def cut(batch: TokenBatch) -> TokenBatch:
    """The columns that hold tokens."""
    longest = int(batch.length.max())
    return tree_map(lambda leaf: leaf[:, :longest] if leaf.ndim > 1 else leaf, batch)


def layouts(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of an update by how its sequences go through the model, on lengths with a long tail."""
    model, params, said = opened(folder)
    lengths = torch.tensor(long_tail(len(said.length)))
    width = int(lengths.max())
    column = torch.arange(width)
    long = replace(
        empty(width, 1, id=said.id, group=said.group),
        token=(column * 7 + said.id[:, None]) % VOCABULARY,
        is_action=(column >= PROMPT) & (column < lengths[:, None]) & (column % 3 > 0),
        length=lengths,
        calls=said.calls,
        reward=said.reward,
        terminated=said.terminated,
    )
    long = replace(long, call=torch.where(long.is_action, 0, ABSENT))
    algorithm = learner(model, adamw(1e-3), grpo())
    state = algorithm.init(params)
    budget = language_trainer(algorithm, budget=4096)
    packed = language_trainer(algorithm, budget=4096, packed=width)

    def asked(train: Callable[..., Any], state: LanguageState) -> Callable[[], object]:
        return lambda: train(state, long)

    def in_order() -> object:
        batch, after, _ = algorithm.prepare(state, long, Reading())
        counts, each = algorithm.counts(batch), 4096 // width
        made = []
        for start in range(0, len(lengths), each):
            part = cut(take(batch, slice(start, start + each)))
            layout = SequenceLayout(places=part.mask.flatten().nonzero()[:, 0])
            made.append(algorithm.gradient(state.params, part, counts, layout))
        gradients = tree_map(lambda *parts: torch.stack(parts).sum(0), *(gradients for gradients, _ in made))
        return algorithm.apply(after, gradients, made[0][1])

    sides = {"as they come": in_order, "by budget": asked(budget, state), "packed": asked(packed, state)}
    spent = turns(sides, rounds)
    return {
        "padding, conversations": waste(said.length.tolist(), 4096, 512),
        "padding, a long tail": waste(lengths.tolist(), 4096, width),
        "milliseconds an update, a long tail": {name: scaled(times, 1e3, digits=1) for name, times in spent.items()},
        "as they come / the other": {
            name: ratio(spent["as they come"], spent[name]) for name in ("by budget", "packed")
        },
    }


def made(folder: Path) -> None:
    """Writes the model and the conversations."""
    from transformers import LlamaForCausalLM

    from purestep.runtime.effects.hugging_face.causal_lm import tiny_llama

    torch.manual_seed(3)
    LlamaForCausalLM(tiny_llama(VOCABULARY)).save_pretrained(folder)
    (folder / "talks.json").write_text(json.dumps(drawn()))


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.language_step", description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="updates of a side in a round (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="how often the sides take turns (default: 5)")
    parser.add_argument("--dry", action="store_true", help="print and write no file")
    parser.add_argument("--ours", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    """Measures and writes."""
    options, start = options_of(), time.perf_counter()
    torch.set_num_threads(options.threads)
    if options.ours is not None:
        print(json.dumps(ours(options.ours, options.steps)))
        return
    with tempfile.TemporaryDirectory() as name:
        made(Path(name))
        figures: dict[str, Any] = {"load before": [round(each, 2) for each in os.getloadavg()], "threads": 1}
        figures["against TRL"] = compared(Path(name), options.steps, options.rounds)
        figures["layouts"] = layouts(Path(name), options.rounds)
    print(json.dumps(figures, indent=1))
    if not options.dry:
        evidence.write("language_step", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()
