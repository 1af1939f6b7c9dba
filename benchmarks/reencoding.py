"""A conversation that is only appended to against one that is read again at every turn: 8, 32 and 128 turns.

In each turn a row is told 8 tokens and says 8. Both sides are our own rollouts with one model, eager, on one thread, and take
turns; the second forgets its caches before every call, as a client does that sends the whole text each time. Both take the
likeliest token, so what they say agrees but for ties in rounding. Writes results/reencoding.json and a picture.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from purestep.core.language.types import Rollout
from purestep.runtime.effects.generation.engine import generator
from purestep.runtime.effects.reporting.plot import bars

from . import evidence
from .parts.talking import attempts, llama, numbers, talk
from .parts.timing import ratio, spread, turns

PROMPT, TOLD, SAID = 24, 8, 8
AIM = 2.0  # times re-encoding, at 32 turns


def measured(count: int, rows: int, rounds: int) -> dict[str, Any]:
    """The seconds of a conversation of `count` turns, either way."""
    capacity = PROMPT + count * (TOLD + SAID)
    made, rules, codec = llama(capacity), talk(count), numbers(PROMPT, TOLD)
    room: dict[str, Any] = {"capacity": capacity, "max_new_tokens": SAID}
    # A call's first token comes with the block that tells it; the others are one chunk, so that an advance is a turn.
    run = generator(made.model, rules, codec, slots=rows, chunk_length=SAID - 1, temperature=0.0, **room)
    begun = attempts(rules, codec, rows, capacity=capacity, said=SAID)
    said: dict[str, tuple[Rollout[Any], ...]] = {}

    def conversation(name: str, forgets: bool) -> None:
        generation, turn = run.begin(made.params, 0, begun), 0
        while not generation.over:
            generation = run.advance(made.params, turn if forgets else 0, generation)
            turn += 1
        if turn != count:
            raise RuntimeError(f"a conversation took {turn} calls of the loop, wanted {count}; let a turn be one")
        said[name] = generation.attempts

    names = {"append-only": False, "re-encoding": True}
    sides = {name: lambda name=name, forgets=forgets: conversation(name, forgets) for name, forgets in names.items()}
    spent = turns(sides, rounds)
    pairs = [a == b for one, other in zip(*said.values(), strict=True) for a, b in zip(one.ids, other.ids, strict=True)]
    return {
        "tokens of a row": capacity,
        "seconds": {name: spread(seconds) for name, seconds in spent.items()},
        "times as fast": ratio(spent["re-encoding"], spent["append-only"]),
        "share of equal tokens": round(sum(pairs) / len(pairs), 4),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reencoding", description=__doc__)
    add = parser.add_argument
    add("--turns", type=int, nargs="+", default=[8, 32, 128], help="of a conversation (default: 8 32 128)")
    add("--rows", type=int, default=8, help="conversations at once (default: 8)")
    add("--rounds", type=int, default=5, help="of each side (default: 5)")
    return parser.parse_args(words)


def main() -> None:
    """Measures and writes."""
    given, start, load = parse(), time.perf_counter(), os.getloadavg()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for count in given.turns:
        found[str(count)] = measured(count, given.rows, given.rounds)
        print(f"{count:4} turns: {found[str(count)]['times as fast']['median']:.2f} x re-encoding", flush=True)
    figures = {
        "rows": given.rows,
        "prompt, told and said in a turn": [PROMPT, TOLD, SAID],
        "threads": 1,
        "load before": [round(each, 2) for each in load],
        "aim": f"{AIM} times re-encoding at 32 turns",
        "turns": found,
    }
    path = evidence.write("reencoding", seconds=time.perf_counter() - start, figures=figures)
    groups = {
        f"{count} turns": {name: 1e3 * one["median"] / int(count) for name, one in each["seconds"].items()}
        for count, each in found.items()
    }
    note = f"{given.rows} rows, {TOLD} tokens told and {SAID} said a turn, one thread, eager; medians"
    bars(groups, path.with_suffix(".png"), title="A turn of a conversation", unit="ms a turn", note=note)


if __name__ == "__main__":
    main()
