"""The learner of a run, built from its arguments: the objective of its algorithm, the optimiser, the trainer.

A backend has the learner and the store of its checkpoints: this process, or several ranks (`distributed_learner`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ...algorithms.importance import masked_weights, truncated_weights
from ...algorithms.language import objectives
from ...algorithms.language.batch import Reading, overlong_penalty
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState, learner
from ...algorithms.language.objectives import Objective
from ...core.causal import CausalModel
from ...core.errors import CheckpointError
from ...core.language.types import Transcript
from ...core.optim.interface import Optimizer
from ...core.optim.optimizers import adamw, chain, clip_by_global_norm, scale_by_schedule
from ...core.optim.schedules import linear
from ..effects import folder
from ..effects.checkpoint.description import Description, read_description
from ..effects.checkpoint.directory import step_folders
from ..effects.checkpoint.single import Checkpoint
from ..runs.store import PROCESS
from .components import TextComponents
from .config import ALONE, TextConfig
from .trainer import Trainer, language_reader, language_trainer

EXPECTED = 0.5  # initial value of the running baseline of `reinforce`
BOUNDS = (0.5, 2.0)  # of a token's importance weight against the sampler: truncated or masked outside them
CORRECTIONS: Mapping[str, Any] = {
    "none": (),
    "truncate": partial(truncated_weights, high=BOUNDS[1]),
    "mask": partial(masked_weights, low=BOUNDS[0], high=BOUNDS[1]),
}
Reader = Callable[[LanguageState, Transcript], Reading]


def objective_of(arguments: TextConfig) -> Objective:
    """Return the objective of a run's algorithm. Raises: ChoiceError."""
    learning, longest = arguments.learning, arguments.sampling.max_new_tokens
    whole, clip = longest * arguments.episodes.max_turns, (learning.clip, learning.clip_high)
    made: Mapping[str, Callable[[], Objective]] = {
        "reinforce": lambda: objectives.reinforce(initial=EXPECTED),
        "rloo": objectives.rloo,
        "grpo": lambda: objectives.grpo(clip=clip),
        "dr_grpo": lambda: objectives.dr_grpo(length=whole, clip=clip),
        "dapo": lambda: objectives.dapo(clip=clip, overlong=partial(overlong_penalty, limit=whole, buffer=longest)),
        "gspo": lambda: objectives.gspo(clip=clip),
        "cispo": lambda: objectives.cispo(high=learning.clip_high),
        "ppo": lambda: objectives.ppo(clip=clip),
    }
    objective = made[learning.algorithm]()
    drops = learning.zero_spread == "drop" and learning.algorithm not in ALONE
    return evolve(objective, zero_spread="drop") if drops else objective


def updates_of(arguments: TextConfig) -> int:
    """Return the number of optimiser steps in all of a run's reinforcement learning."""
    return arguments.episodes.steps * arguments.learning.epochs * arguments.learning.minibatches


def optimizer_of(arguments: TextConfig, *, clip: Callable[[float], Optimizer] = clip_by_global_norm) -> Optimizer:
    """Return AdamW on gradients of bounded norm; annealing lowers its rate with each update, to 0 if no update is skipped.

    `clip` returns the optimiser that clips gradients to a norm.
    """
    learning = arguments.learning
    parts = (
        clip(learning.max_gradient_norm),
        adamw(learning.learning_rate, weight_decay=learning.weight_decay),
    )
    return (
        chain(*parts, scale_by_schedule(linear(1.0, 0.0, updates_of(arguments)))) if learning.anneal else chain(*parts)
    )


def anchor_of(arguments: TextConfig) -> tuple[str, str]:
    """Return the names of the proximal policy and of the correction for the sampler, as `learner` takes them.

    A correction compares the proximal policy with the sampler, so it needs one that is not the sampler's own. The decoupled
    loss always has one; its weights are masked unless another correction is asked for.

    >>> from .config import TaskRun
    >>> anchor_of(TaskRun())
    ('recorded', 'none')
    """
    correction = arguments.learning.correction
    if arguments.asynchronous.loss == "decoupled":
        proximal = arguments.asynchronous.proximal
        return ("recorded" if proximal == "segment_wise" else proximal), (
            "mask" if correction == "none" else correction
        )
    return ("recorded" if correction == "none" else "recomputed"), correction


def support_of(arguments: TextConfig) -> str:
    """Return the support of a run's policy as `learner` takes it: the whole vocabulary where sampling leaves nothing out.

    >>> from .config import TaskRun
    >>> support_of(TaskRun())
    'whole'
    """
    return "sampled" if arguments.sampling.top_p < 1.0 else "whole"


def language_algorithm(
    arguments: TextConfig,
    model: CausalModel,
    *,
    clip: Callable[[float], Optimizer] = clip_by_global_norm,
) -> LanguageAlgorithm:
    """Return the learner of a run; `clip` as in `optimizer_of`. Raises: ChoiceError."""
    learning = arguments.learning
    proximal, correction = anchor_of(arguments)
    return learner(
        model,
        optimizer_of(arguments, clip=clip),
        objective_of(arguments),
        truncated=learning.truncated,
        proximal=proximal,
        support=support_of(arguments),
        correction=CORRECTIONS[correction],
        kl_in_loss=learning.kl if learning.kl_in == "loss" else 0.0,
        kl_in_reward=learning.kl if learning.kl_in == "reward" else 0.0,
        entropy_coefficient=learning.entropy_coefficient,
    )


def reading_of(arguments: TextConfig, model: CausalModel) -> LanguageAlgorithm:
    """Return the learner of a run that reads log-probs under any weights: for `language_reader`. Raises: ChoiceError."""
    own = optimizer_of(arguments), objective_of(arguments)
    return learner(model, *own, proximal="recomputed", support=support_of(arguments))


def trainer_of(arguments: TextConfig, algorithm: LanguageAlgorithm, *, budget: int = 0) -> Trainer:
    """Return the trainer of a run: the updates of a step, with at most `budget` tokens at once (0: the run's own budget)."""
    learning = arguments.learning
    epochs, minibatches = learning.epochs, learning.minibatches
    return language_trainer(algorithm, budget=budget or learning.budget, epochs=epochs, minibatches=minibatches)


@frozen
class LearnerInit:
    """The function of a learner that a run calls itself; the trainer calls the others."""

    init: Callable[[Any], LanguageState]  # of the policy's parameters


@frozen(kw_only=True)
class LearnerBackend:
    """The learner of a run and its `Store`. The state that a learner's `init` returns fits the backend's other functions."""

    size: int  # ranks
    check: Callable[[TextConfig], None]  # raises ChoiceError for settings that this number of ranks does not support
    parts: Callable[[TextComponents], TextComponents]  # the same parts, whose `whole` also takes sharded parameters
    learner: Callable[[TextConfig, TextComponents], tuple[LearnerInit, Trainer]]
    reader: Callable[[TextConfig, TextComponents], Reader]  # returns a state's readings of samples
    save: Callable[..., None]  # this and the following as in `Store`
    settle: Callable[[], None]
    newest: Callable[..., Path | None]
    load: Callable[..., Checkpoint[Any]]


def learner_alone(arguments: TextConfig, parts: TextComponents) -> tuple[LearnerInit, Trainer]:
    """Return the learner and the trainer of a run of one process. Raises: ChoiceError."""
    algorithm = language_algorithm(arguments, parts.model)
    return LearnerInit(algorithm.init), trainer_of(arguments, algorithm)


def reader_alone(arguments: TextConfig, parts: TextComponents) -> Reader:
    """Return a policy's reading of samples, in micro-batches that fit into the budget."""
    return language_reader(reading_of(arguments, parts.model), budget=arguments.learning.budget)


def of_ranks(run: Path) -> bool:
    """Return whether a run's folder, or a phase of it, holds a checkpoint written by ranks; damaged ones do not count.

    The first rank alone writes that of a warm start, and records the number of ranks; a single process does not.
    """
    homes = (run, *(run / name for name in folder.PHASES))
    return any(
        "ranks" in description.manifest.environment
        for home in homes
        for where in step_folders(home / folder.CHECKPOINTS)
        for description in _described(where)
    )


def _described(where: Path) -> tuple[Description, ...]:
    try:
        return (read_description(where),)
    except CheckpointError:
        return ()


SINGLE_PROCESS = LearnerBackend(
    size=PROCESS.size,
    check=lambda arguments: None,
    parts=lambda parts: parts,
    learner=learner_alone,
    reader=reader_alone,
    save=PROCESS.save,
    settle=PROCESS.settle,
    newest=PROCESS.newest,
    load=PROCESS.load,
)
