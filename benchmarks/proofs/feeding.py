"""Candidates of an evaluation fed to slots: a slot that has finished takes the next at once, or waits for its whole batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.policy import ActorCritic
from purestep.core.tree import tree_map
from purestep.runtime.compile import program
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.logic.rank import candidates_of, scorer
from purestep.runtime.logic.recycle import IDLE, FinishedProofs, Play, Slots, empty_proof_slots, play, proven_all
from purestep.runtime.recipes.prove import prove_pipeline
from purestep.runtime.recipes.prove_settings import MOVES, USUAL, prove_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import train

from ..parts.timing import compile_seconds, ratio, scaled, turns

NEGATIVES, AT_A_TIME = 20, 2
UPDATES = 50  # of the policy that has learnt something
Ways = dict[str, tuple[Play, int]]  # programs that play, and how many rows each call of theirs can use


def waiting(run: Play, calls: int, *, for_all: bool) -> Play:
    """Batches played by a program of few steps: new candidates only when every slot is free.

    A batch is over when its last proof is, or, `for_all`, after all `calls` calls however soon that was.
    """

    def batch(
        params: Any, base: Any, slots: Slots, feed: Tensor, first: Tensor
    ) -> tuple[Slots, FinishedProofs, Tensor]:
        slots, told, taken = run(params, base, slots, feed, first)
        every, nothing = [told], torch.zeros_like(feed)
        while len(every) < calls and (for_all or bool((slots.number != IDLE).any())):
            slots, told, _ = run(params, base, slots, nothing, first)
            every.append(told)
        return slots, tree_map(lambda *leaves: torch.cat(leaves), *every), taken

    return batch


def learnt() -> Any:
    """The params of a policy that the recipe has trained for a while."""
    pipeline = prove_pipeline(changed(prove_defaults(USUAL), {"steps": MOVES}))
    learn = program(train(pipeline.trainer, UPDATES), name="train prove")
    state, _ = learn(pipeline.prepare(pipeline.trainer.init(keys.key(0))))
    return state.learner.params


def evaluation(made: Proofs, model: ActorCritic, params: Any, slots: int = 256) -> dict[str, Any]:
    """Milliseconds for each candidate, with recycled slots and in batches; compilations over five lists of candidates."""
    every = candidates_of(made, made.dataset.test, NEGATIVES, keys.key(0))
    recycled = scorer(made, model, slots=slots)
    few = program(play(made.game, model, AT_A_TIME, feeding="batches"), name="a few steps of a batch")
    calls = -(-made.game.max_depth // AT_A_TIME)
    ways: Ways = {
        "recycled": (recycled.run, recycled.feed),
        "batches that end with their last proof": (waiting(few, calls, for_all=False), slots),
        "batches of as many steps as a proof may have": (waiting(few, calls, for_all=True), slots),
    }
    policies = {"untrained": model.init(keys.key(0)), f"trained for {UPDATES} updates": params}
    return {
        "slots": slots,
        **{name: raced(made, ways, own, every.reshape(-1, 3), slots) for name, own in policies.items()},
        "compile seconds": {"recycled": compile_seconds(recycled.run), "batches": compile_seconds(few)},
        **compilations(made, recycled.run, lambda more: recycled(params, more), every),
    }


def raced(made: Proofs, ways: Ways, params: Any, rows: Tensor, slots: int) -> dict[str, Any]:
    """The ways of feeding slots with one policy's proofs of candidates [N, 3]."""

    def proven(name: str) -> FinishedProofs:
        run, feed = ways[name]
        with torch.no_grad():
            return proven_all(run, params, made.world.base, empty_proof_slots(made.game, slots), rows, feed=feed)

    results = {name: proven(name) for name in ways}
    present = rows[:, 0] != 0
    count, depth = int(present.sum()), results["recycled"].depth[present].to(torch.float64)
    spent = turns({name: partial(proven, name) for name in ways}, 5)
    return {
        "candidates": count,
        "moves of a candidate, in the mean and at most": [round(float(depth.mean()), 2), int(depth.max())],
        "ms a candidate": {name: scaled(seconds, 1e3 / count, digits=4) for name, seconds in spent.items()},
        "faster by recycling": {name: ratio(spent[name], spent["recycled"]) for name in ways if name != "recycled"},
        "the same proven": {
            name: alike(results["recycled"], told) for name, told in results.items() if name != "recycled"
        },
    }


def alike(one: FinishedProofs, other: FinishedProofs) -> float:
    """For what share of the candidates two programs say the same: not 1 where rounding exchanges equally good moves."""
    return round(float(((one.proven == other.proven) & (one.number == other.number)).to(torch.float64).mean()), 4)


def compilations(made: Proofs, run: Any, score: Callable[[Tensor], object], every: Tensor) -> dict[str, int]:
    """How often the program compiles over other queries, numbers of candidates, splits; one more would be an error."""
    run.settle()
    others = (
        every[:, :7],
        every[:1, :50, :3],
        every[:1, :1, :1],
        candidates_of(made, made.dataset.valid, 3, keys.key(1)),
    )
    with torch.no_grad():
        for rows in (every, *others):
            score(rows)
    return {"lists of candidates": 1 + len(others), "compilations for them": len(run.seconds)}
