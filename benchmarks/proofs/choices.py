"""What proving is built like, measured against how else it could be: five choices, each as ratios.

Conditions: `torch.cond` around the reset against a reset computed always. Buffers: states of an evaluation as fresh tensors
against preallocated ones. Split: the whole rollout as one program against loops in Python, one with a program for a step, one
with a program for the engine and two for the rest of a step. Worlds: one for training and evaluation against a copy for each.
Resets: the env's own against those of `auto_reset`. The sides take turns in one process on one thread; each ratio is a median
with its quartiles, above 1 where what is built is faster. The policy is untrained. Writes results/prove_choices.json.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.game import look
from purestep.core.logic.state import first_state_of
from purestep.core.policy import ActorCritic
from purestep.core.record import stack
from purestep.core.steps import Trajectory, Transition, ended
from purestep.core.tree import clone, leaves, tree_map
from purestep.runtime.compile import Program, program
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.logic.rank import CHUNK, candidates_of
from purestep.runtime.logic.recycle import Play, Slots, empty_proof_slots, play
from purestep.runtime.rollout import Worlds

from .. import evidence
from ..parts.timing import (
    SLOTS,
    STEPS,
    Acting,
    Timed,
    acting,
    beside,
    compile_seconds,
    made_of,
    ratio,
    share,
    turns,
)
from .step_costs import Parts, before_engine, scanned, step_of, where_needed

USUAL, LARGE, FEW = "family:200", "family:10000", 4
EVALUATED, CALLS = 256, 4  # slots of an evaluation, calls of its program that are timed together


def conditions(made: Proofs, model: ActorCritic, usual: Acting) -> dict[str, Any]:
    """A reset in a branch against one computed always, with many slots and with few, compiled; and with many, eager."""
    figures: dict[str, Any] = {}
    for slots, always in ((SLOTS, usual), (FEW, acting(made, model, slots=FEW))):
        run = program(scanned(Parts(made, model, slots, where_needed)), name=f"conditional {slots}")
        branch = Acting(always.env, run, always.params, always.worlds)
        trajectory = always()[1]
        over = ended(trajectory.terminated, trajectory.truncated)
        figures[f"{slots} slots, compiled"] = {
            "steps in which an episode ends": round(float(over.any(-1).to(torch.float64).mean()), 3),
            **beside("always", turns({"always": always, "branch": branch}), 1e6 / STEPS, "microseconds a step"),
            "compile seconds": {"always": always.compile_seconds(), "branch": branch.compile_seconds()},
            "the same actions": alike(trajectory, branch()[1]),
        }
    loops = {
        "always": Acting(usual.env, scanned(Parts(made, model, SLOTS)), usual.params, usual.worlds),
        "branch": Acting(usual.env, scanned(Parts(made, model, SLOTS, where_needed)), usual.params, usual.worlds),
    }
    figures[f"{SLOTS} slots, eager"] = beside("always", turns(loops, 3), 1e6 / STEPS, "microseconds a step")
    return figures


def alike(one: Trajectory, other: Trajectory) -> float:
    """The share of equal actions: below 1 where programs round differently, after which episodes differ."""
    return share(one.action, other.action)


@frozen
class Evaluation:
    """A call of an evaluation that can be repeated."""

    chunk: Play
    run: Program[..., Any]  # compiled
    params: Any
    feeds: list[Tensor]  # candidates, more than a call can use


def evaluation(made: Proofs, model: ActorCritic) -> Evaluation:
    """The program of an evaluation as `scorer` has it, and candidates for some calls."""
    chunk, most = play(made.game, model, CHUNK), CHUNK * EVALUATED
    rows = candidates_of(made, made.dataset.test, 20, keys.key(0)).reshape(-1, 3)
    many = rows.repeat(-(-2 * most // rows.shape[0]), 1)
    feeds = [many[number * most // CALLS :][:most].clone() for number in range(CALLS)]
    return Evaluation(chunk, program(chunk, name="evaluate"), model.init(keys.key(0)), feeds)


def buffers(made: Proofs, evaluated: Evaluation) -> dict[str, Any]:
    """An evaluation whose slots are fresh tensors after each call, against two whose slots keep their memory."""
    base, first = made.world.base, torch.zeros((), dtype=torch.int64)
    fresh, params, feeds = evaluated.run, evaluated.params, evaluated.feeds

    def written(params: Any, base: Any, slots: Slots, feed: Tensor, first: Tensor) -> Any:
        after, told, taken = evaluated.chunk(params, base, slots, feed, first)
        tree_map(lambda buffer, new: buffer.copy_(new), slots, after)
        return told, taken

    inside = program(written, name="slots written in place")
    begun = empty_proof_slots(made.game, EVALUATED)

    def call_fresh() -> Slots:
        slots = begun
        for feed in feeds:
            slots, _, _ = fresh(params, base, slots, feed, first)
        return slots

    def call_copied() -> Slots:
        tree_map(lambda buffer, new: buffer.copy_(new), kept, begun)
        for feed in feeds:
            after, _, _ = fresh(params, base, kept, feed, first)
            tree_map(lambda buffer, new: buffer.copy_(new), kept, after)
        return kept

    def call_inside() -> Slots:
        tree_map(lambda buffer, new: buffer.copy_(new), own, begun)
        for feed in feeds:
            inside(params, base, own, feed, first)
        return own

    kept, own = clone(begun), clone(begun)
    with torch.no_grad():
        sides = {"fresh": call_fresh, "copied after each call": call_copied, "written by the program": call_inside}
        spent, numbers = turns(sides), {name: side().number for name, side in sides.items()}
    return {
        "slots": EVALUATED,
        "steps of a call": CHUNK,
        "KiB of slots": sum(leaf.nbytes for leaf in leaves(begun)) // 1024,
        **beside("fresh", spent, 1e3 / CALLS, "ms a call"),
        "the same proofs under way": {name: share(numbers["fresh"], each) for name, each in numbers.items()},
        "compile seconds": {"fresh": compile_seconds(fresh), "written by the program": compile_seconds(inside)},
    }


def split(made: Proofs, model: ActorCritic, usual: Acting) -> dict[str, Any]:
    """One program for the rollout, against a loop in Python with one program a step, and with three: engine and rest apart."""
    parts, params = Parts(made, model, SLOTS), usual.params
    noise = program(parts.noise, name="noise")
    whole = program(partial(step_of, parts), name="a step")
    before = program(partial(before_engine, parts), name="before the engine")
    engine, told = program(parts.engine, name="engine"), program(parts.told, name="after the engine")

    def apart(params: Any, worlds: Worlds, key: Key, noise: Tensor) -> tuple[Worlds, Transition]:
        choice, moved, begun = before(params, worlds, key, noise)
        return told(worlds.observation, choice, moved, engine(begun))

    def looped(step: Callable[..., tuple[Worlds, Transition]]) -> Callable[..., Any]:
        def run(params: Any, worlds: Worlds, key: Key) -> tuple[Worlds, Trajectory]:
            each = []
            for drawn in zip(*noise(params, worlds, key), strict=True):
                worlds, transition = step(params, worlds, *drawn)
                each.append(transition)
            return worlds, stack(each)

        return run

    sides = {
        "one program": usual,
        "loop, a program a step": Acting(usual.env, looped(whole), params, usual.worlds),
        "loop, engine apart": Acting(usual.env, looped(apart), params, usual.worlds),
    }
    spent, played = turns(sides), {name: run()[1] for name, run in sides.items()}
    names = list(sides)
    return {
        **beside(names[0], spent, 1e6 / STEPS, "microseconds a step"),
        "engine apart against a program a step": ratio(spent[names[2]], spent[names[1]]),
        "the same actions": {name: alike(played[names[0]], played[name]) for name in names[1:]},
        "compile seconds": {
            names[0]: usual.compile_seconds(),
            names[1]: compile_seconds(noise, whole),
            names[2]: compile_seconds(noise, before, engine, told),
        },
    }


def worlds(made: Proofs, evaluated: Evaluation, usual: Acting) -> dict[str, Any]:
    """A rollout and a call of an evaluation in turn, and the engine twice: both in one world, or each in its own."""
    zero, begun = torch.zeros((), dtype=torch.int64), empty_proof_slots(made.game, EVALUATED)

    def both(base: Any) -> Timed:
        def call() -> None:
            usual()
            with torch.no_grad():
                evaluated.run(evaluated.params, base, begun, evaluated.feeds[0], zero)

        return call

    spent = turns({"one world": both(made.world.base), "a world each": both(clone(made.world.base))})
    large, _ = made_of(LARGE)
    return {
        f"{len(made.dataset.train)} facts, rollout and evaluation": {
            **beside("one world", spent, 1e3, "ms"),
            "KiB of a world": kibibytes(made),
        },
        f"{len(large.dataset.train)} facts, engine twice": {**engine_twice(large), "KiB of a world": kibibytes(large)},
    }


def kibibytes(made: Proofs) -> int:
    """The memory of a world: what a second one costs."""
    return sum(int(leaf.nbytes) for leaf in leaves(made.world)) // 1024


def engine_twice(made: Proofs) -> dict[str, Any]:
    """The engine on some queries, then on others, again and again: both in one world, or each in its own."""
    zero, yes = torch.zeros(SLOTS, dtype=torch.int64), torch.ones(SLOTS, dtype=torch.bool)
    batches = made.world.queries[: 2 * STEPS * SLOTS].reshape(2, STEPS, SLOTS, 3)
    first, second = ([clone(first_state_of(made.game, batch, yes, zero, zero)) for batch in half] for half in batches)
    engine = program(lambda base, state: look(made.game, base, state), name="engine of a large world")

    def call(base: Any, other: Any) -> Timed:
        def run() -> None:
            for one, two in zip(first, second, strict=True):
                engine(base, one)
                engine(other, two)

        return run

    base = made.world.base
    with torch.no_grad():
        spent = turns({"one world": call(base, base), "a world each": call(base, clone(base))})
    return beside("one world", spent, 1e6 / STEPS / 2, "microseconds a call")


def resets(made: Proofs, model: ActorCritic, usual: Acting) -> dict[str, Any]:
    """A finished slot that takes its next query at once, against a reset beside every step."""
    sides = {"own": usual, **{f"auto_reset {mode}": acting(made, model, reset=mode) for mode in ("select", "pooled")}}
    return {
        **beside("own", turns(sides), 1e6 / STEPS, "microseconds a step"),
        "compile seconds": {name: run.compile_seconds() for name, run in sides.items()},
    }


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.choices", description=__doc__)
    parser.parse_args()
    torch.set_num_threads(1)
    start, load = time.perf_counter(), os.getloadavg()
    made, model = made_of(USUAL)
    usual = acting(made, model)
    evaluated = evaluation(made, model)
    figures: dict[str, Any] = {"load before": [round(each, 2) for each in load], "threads": 1, "slots": SLOTS}
    choices: dict[str, Callable[[], object]] = {
        "resets": lambda: resets(made, model, usual),
        "conditions": lambda: conditions(made, model, usual),
        "buffers": lambda: buffers(made, evaluated),
        "split": lambda: split(made, model, usual),
        "worlds": lambda: worlds(made, evaluated, usual),
    }
    for name, measure in choices.items():
        figures[name] = measure()
        print(name, json.dumps(figures[name], indent=1), flush=True)
    evidence.write("prove_choices", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()
