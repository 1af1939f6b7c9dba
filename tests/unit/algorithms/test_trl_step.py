"""Whole updates are TRL's: two steps of GRPOTrainer on the same completions, loss, gradient norm and weights.

`benchmarks/peers/trl_step.py` ran the trainer itself, TRL 1.16, its log-probs in float32; here the same Llama is called as a
pure function and learns by `language_trainer`, in as many parts as it likes.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from torch import Tensor

from purestep.algorithms.language import objectives
from purestep.algorithms.language.learner import LanguageAlgorithm, learner
from purestep.algorithms.language.objectives import Objective
from purestep.core.causal import CausalModel
from purestep.core.language.types import Transcript
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.optimizers import adamw, chain, clip_by_global_norm, sgd
from purestep.core.record import replace
from purestep.core.transcript.record import ABSENT, empty
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.text.trainer import TrainStepResult, language_trainer

TOLD = json.loads((Path(__file__).parents[3] / "benchmarks" / "peers" / "trl_step.json").read_text())
OBJECTIVES: dict[str, Callable[[dict[str, Any]], Objective]] = {
    "grpo": lambda given: objectives.grpo(clip=given["epsilon"]),
    "grpo, adamw": lambda given: objectives.grpo(clip=given["epsilon"]),
    "dr_grpo": lambda given: objectives.dr_grpo(length=TOLD["max_completion_length"], clip=0.2),
    "dapo": lambda given: objectives.dapo(clip=(given["epsilon"], given["epsilon_high"]), zero_spread="keep"),
    "cispo": lambda given: objectives.cispo(high=given["epsilon_high"]),
    "gspo": lambda given: objectives.gspo(clip=(given["epsilon"], given["epsilon_high"]), gradient="sequence"),
}
LAYOUTS: dict[str, dict[str, Any]] = {"whole": {}, "micro-batches": {"budget": 24}, "packed": {"packed": 12}}


def transcripts() -> Transcript:
    """The completions, each one call of the model at one temperature, in groups by row."""
    told = TOLD["completions"]
    rows = [[*before, *after] for before, after in zip(told["prompt_ids"], told["completion_ids"], strict=True)]
    number, width = len(rows), max(map(len, rows))
    own = [[0] * len(before) + mask for before, mask in zip(told["prompt_ids"], told["env_mask"], strict=True)]
    spoke = torch.tensor([[*mask, *[0] * (width - len(mask))] for mask in own]).bool()
    blank = empty(width, 1, id=torch.arange(number), group=torch.arange(number) // TOLD["group"])
    return replace(
        blank,
        token=torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]),
        is_action=spoke,
        call=torch.where(spoke, 0, ABSENT),
        length=torch.tensor([len(row) for row in rows]),
        calls=torch.ones(number, dtype=torch.int64),
        temperature=torch.full((number, 1), TOLD["temperature"], dtype=torch.float64),
        reward=torch.tensor(TOLD["rewards"], dtype=torch.float64)[:, None],
        terminated=torch.ones(number, dtype=torch.bool),
    )


def optimizer(given: dict[str, Any]) -> Optimizer:
    rate, clip = given["learning_rate"], clip_by_global_norm(given["max_grad_norm"])
    if given["optim"] == "sgd":
        return chain(clip, sgd(rate))
    return chain(clip, adamw(rate, eps=given["adam_epsilon"], weight_decay=given["weight_decay"]))


def model_of(told: dict[str, Any]) -> CausalModel:
    from purestep.runtime.effects.hugging_face.causal_lm import causal_model

    llama = library()  # its types would take type checkers half a minute
    return causal_model(llama.LlamaForCausalLM(llama.LlamaConfig(**told["config"])).double())


@pytest.fixture(scope="module")
def model() -> CausalModel:
    pytest.importorskip("transformers", reason="the extra llm is not installed")
    return model_of(TOLD)


def weights(told: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in told.items()}


def two_steps(algorithm: LanguageAlgorithm, **layout: Any) -> TrainStepResult:
    """Each on all completions, against the log-probs before the first."""
    state = algorithm.init(weights(TOLD["weights"]))
    return language_trainer(algorithm, epochs=2, **layout)(state, transcripts())


RUNS = [*((case, "whole") for case in OBJECTIVES), ("grpo", "micro-batches"), ("dapo", "packed")]


@pytest.mark.parametrize(("case", "layout"), RUNS)
def test_two_updates_are_trls(case: str, layout: str, model: CausalModel) -> None:
    told = TOLD["steps"][case]
    given = told["settings"]
    algorithm = learner(model, optimizer(given), OBJECTIVES[case](given), proximal="recomputed")
    learned = two_steps(algorithm, **LAYOUTS[layout])
    for name, wanted in (("loss", told["losses"]), ("gradient_norm", told["gradient_norms"])):
        assert learned.figures[name] == pytest.approx(sum(wanted) / 2, rel=1e-5, abs=1e-7)
    after, before = weights(told["weights"]), weights(TOLD["weights"])
    got = learned.state.params.policy
    for name, wanted in after.items():
        moved = (wanted - before[name]).norm()
        assert float((got[name] - wanted).norm()) <= 1e-5 * float(moved) + 1e-9, name


def test_each_case_is_asked_and_the_second_step_is_off_policy() -> None:
    """Ratios are away from 1 there: what clips differently ends elsewhere."""
    assert TOLD["steps"].keys() == OBJECTIVES.keys()
    ends = [str(told["weights"]) for told in TOLD["steps"].values()]
    assert len(set(ends)) == len(ends)
    assert all(abs(told["losses"][1] - told["losses"][0]) > 1e-4 for told in TOLD["steps"].values())
