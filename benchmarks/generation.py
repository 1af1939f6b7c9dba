"""Tokens a second of our rollouts against the library's `generate`: one model, one batch, prompts of 24 and 48 new tokens.

Both sample from the whole distribution. A rollout here is all of it: slots, blocks, keyed draws, log-probs, versions, and the
host's share, which hears each text; `generate` gives the tokens alone. "compiled" is our chunk as one graph, compiled before
the clock starts (how long that took is told); prompts are always fed eagerly, and `generate` compiles nothing on a CPU. All
sides run in one process on one thread and take turns. Writes results/generation.json and a picture.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from purestep.core.language.codec import NOTHING
from purestep.core.language.events import User
from purestep.runtime.effects.generation.engine import complete, generator
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts.talking import VOCABULARY, Llama, attempts, llama, numbers, talk
from .parts.timing import ratio, spread, turns

PROMPT, NEW = 24, 48
AIM = 1.5  # times `generate`, at batch 32


def ours(made: Llama, rows: int, chunk_length: int, compiled: bool) -> tuple[Callable[[], object], float]:
    """A rollout of every row, and the seconds that compiling took."""
    rules, codec = talk(1), numbers(PROMPT, 0)
    room: dict[str, Any] = {"capacity": PROMPT + NEW, "max_new_tokens": NEW}
    run = generator(made.model, rules, codec, slots=rows, chunk_length=chunk_length, compiled=compiled, **room)
    begun = attempts(rules, codec, rows, capacity=PROMPT + NEW, said=NEW)

    def side() -> object:
        ended = complete(run, made.params, 0, begun)
        if {len(one.ids) for one in ended} != {PROMPT + NEW}:
            raise RuntimeError("a rollout has another length than the measurement is about; let nothing stop it")
        return ended

    start = time.perf_counter()
    if compiled:
        side()
    return side, time.perf_counter() - start


def theirs(made: Llama, rows: int, cache: str) -> Callable[[], object]:
    """The library's own generation with its "dynamic" or "static" cache."""
    module = library().AutoModelForCausalLM.from_config(made.config).eval()
    module.load_state_dict(made.params, strict=False)
    module.generation_config.eos_token_id = None
    ids = torch.tensor(numbers(PROMPT, 0).encode((User("well?"),), NOTHING)[0]).expand(rows, -1).contiguous()
    options: dict[str, Any] = {"do_sample": True, "top_k": 0, "pad_token_id": 0, "max_new_tokens": NEW}
    if cache == "static":
        options["cache_implementation"] = "static"

    def side() -> object:
        given = module.generate(ids, attention_mask=torch.ones_like(ids), **options)
        if given.shape != (rows, PROMPT + NEW):
            raise RuntimeError("generate gave another length than the measurement is about")
        return given

    return side


def measured(rows: int, chunks: Sequence[int], rounds: int) -> dict[str, Any]:
    """Tokens a second of all sides at one batch, and each of ours against each of theirs."""
    made = llama(PROMPT + NEW)
    sides: dict[str, Callable[[], object]] = {}
    seconds: dict[str, float] = {}
    for length in chunks:
        for name, compiled in (("eager", False), ("compiled", True)):
            label = f"{name}, {length} a chunk"
            sides[label], spent = ours(made, rows, length, compiled)
            if compiled:
                seconds[label] = round(spent, 1)
    own = list(sides)
    for cache in ("dynamic", "static"):
        sides[f"generate, {cache} cache"] = theirs(made, rows, cache)
    spent_by = turns(sides, rounds)
    others = [name for name in sides if name not in own]
    rates = {name: spread([rows * NEW / each for each in spent], digits=0) for name, spent in spent_by.items()}
    times = {name: {other: ratio(spent_by[other], spent_by[name]) for other in others} for name in own}
    return {"tokens/s": rates, "times as fast": times, "seconds until compiled": seconds}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, nargs="+", default=[32, 64], help="batches (default: 32 64)")
    add("--chunks", type=int, nargs="+", default=[1, 4], help="tokens between looks of the host (default: 1 4)")
    add("--rounds", type=int, default=9, help="of each side (default: 9)")
    return parser.parse_args(words)


def main() -> None:
    """Measures and writes."""
    given, start, load = parse(), time.perf_counter(), os.getloadavg()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for rows in given.rows:
        found[str(rows)] = measured(rows, given.chunks, given.rounds)
        print(f"batch {rows}")
        for name, rate in found[str(rows)]["tokens/s"].items():
            print(f"  {name:28}{rate['median']:10,.0f} tokens/s")
        for name, times in found[str(rows)]["times as fast"].items():
            print(f"  {name:28}{min(one['median'] for one in times.values()):10.2f} x the faster of theirs")
    figures = {
        "parameters": sum(value.numel() for value in llama(8).params.values()),
        "vocabulary": VOCABULARY,
        "prompt": PROMPT,
        "new tokens": NEW,
        "threads": 1,
        "load before": [round(each, 2) for each in load],
        "aim": f"{AIM} times generate at batch 32",
        "batches": found,
    }
    path = evidence.write("generation", seconds=time.perf_counter() - start, figures=figures)
    groups = {
        f"batch {rows}": {name: rate["median"] for name, rate in one["tokens/s"].items()} for rows, one in found.items()
    }
    note = f"{PROMPT} + {NEW} tokens, 0.64 M parameters, one thread, after compilation; medians"
    bars(groups, path.with_suffix(".png"), title="Rollouts and generate", unit="new tokens/s", note=note)


if __name__ == "__main__":
    main()
