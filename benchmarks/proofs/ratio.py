"""Whether the compiled rollout and the loss see the same policy: the ratio pi / pi_behaviour of PPO's first epoch must be 1.

For each data set the recipe's own trainer acts in one compiled program; then the log-probs of the actions taken are computed
again from the observations, as the loss does, in eager mode and in a compiled program, before training and after some of it.
Writes results/prove_ratio.json: the largest |ratio - 1| of all samples.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.env import batched
from purestep.core.steps import Trajectory
from purestep.runtime.compile import program
from purestep.runtime.recipes.pipeline import Pipeline
from purestep.runtime.recipes.prove import prove_pipeline
from purestep.runtime.recipes.prove_settings import MOVES, USUAL, Prove, prove_defaults
from purestep.runtime.rollout import rollout
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import RunState, train

from .. import evidence
from .cases import prepared

ALLOWED = 1e-5
UPDATES = 20  # iterations between the first look and the second


def furthest(arguments: Prove) -> dict[str, Any]:
    """The largest |ratio - 1| at the beginning and after `UPDATES` iterations, in eager mode and compiled."""
    pipeline, graph = prove_pipeline(arguments), arguments.experience
    act = program(rollout(batched(pipeline.env, graph.envs), pipeline.model, graph.horizon), name="rollout")
    learn = program(train(pipeline.trainer, UPDATES), name="train prove")
    loss = program(lambda params, seen: again(pipeline, params, seen), name="log-probs")
    state = pipeline.prepare(pipeline.trainer.init(keys.key(graph.seed)))
    told: dict[str, Any] = {"samples": graph.envs * graph.horizon}
    for when in ("at the beginning", f"after {UPDATES} iterations"):
        with torch.no_grad():
            _, seen = act(state.learner.params, state.worlds, keys.key(1))
            told[when] = {
                "eager": deviation(again(pipeline, state.learner.params, seen), seen),
                "compiled": deviation(loss(state.learner.params, seen), seen),
                "samples with a choice": int((seen.observation.action_mask.sum(-1) > 1).sum()),
            }
        state = learned(learn, state)
    return told


def learned(learn: Any, state: RunState) -> RunState:
    """The state some iterations later."""
    after: RunState = learn(state)[0]
    return after


def again(pipeline: Pipeline, params: Any, seen: Trajectory) -> Tensor:
    """The log-probs of the actions taken, from what was seen: [T, B]."""
    distribution, _, _ = pipeline.model.apply(params, seen.observation, ())
    return distribution.log_prob(seen.action)


def deviation(log_prob: Tensor, seen: Trajectory) -> float:
    """max |pi / pi_behaviour - 1|."""
    return float(((log_prob - seen.behaviour_log_prob).exp() - 1.0).abs().max())


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.ratio", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument(
        "--only", nargs="+", default=["countries_S2", "umls", "wn18rr"], help="which, beside the family"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, told = time.perf_counter(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as home:
        asked = {USUAL: prove_defaults(USUAL)} | {
            name: prepared(name, options.data, Path(home)) for name in options.only
        }
        for name, arguments in asked.items():
            told[name] = furthest(changed(arguments, {"steps": MOVES, "warm_up": 300}))
            print(name, told[name], flush=True)
    worst = max(
        row[lowering]
        for each in told.values()
        for row in each.values()
        if isinstance(row, dict)
        for lowering in ("eager", "compiled")
    )
    figures = {**told, "largest |ratio - 1|": worst, "reached": worst <= ALLOWED}
    print("largest |ratio - 1|", worst)
    evidence.write("prove_ratio", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()
