"""Rollout and trainer in a Gymnasium environment: the policy and the update are ours, the environment is an external effect.

The environment's own state lives in the Gymnasium env, so no checkpoint can hold it: a run that resumes from one keeps all that
was learnt and starts new episodes, see `begin_anew`. Its results differ from those of a run that never stopped.
"""

from collections.abc import Callable
from typing import Any

import torch

from ....algorithms.algorithm import Algorithm, Metrics, TrainState, begin
from ....core import keys
from ....core.errors import NonFiniteError
from ....core.keys import Key
from ....core.policy import ActorCritic, first_memory
from ....core.record import replace, take
from ....core.spaces import sample
from ....core.steps import Trajectory, Transition
from ....core.tree import all_finite
from ...compile import program
from ...declared import all_names, as_declared
from ...diverged import fault_in
from ...episode_returns import Episodes, follow, none_yet
from ...normalizer import Normalizer, check_normalizer, identity
from ...rollout import RolloutFunction, Worlds, reset_rollout, rollout
from ...train import RunState, Trainer, remembered
from ...validate_learner import validate_learner
from .importing import GymnasiumWorld

Lower = Callable[[Callable[..., Any]], Callable[..., Any]]


def gymnasium_rollout(world: GymnasiumWorld, model: ActorCritic, length: int) -> RolloutFunction:
    """Return a function that runs `length` steps of `model` in the environment, to be called like the result of `rollout`.

    It is not compiled and must not be: it steps in Python, and a full-graph compile refuses it. The policy's noise is that of
    `rollout` for the same key. Its `worlds` argument comes from `reset_rollout(world.env, key)` or from the last call.
    Raises: WorldError for older ones.
    """
    return rollout(world.env, model, length)


def gymnasium_trainer(
    world: GymnasiumWorld,
    model: ActorCritic,
    algorithm: Algorithm,
    *,
    horizon: int,
    normalizer: Normalizer | None = None,
    lower: Lower = program,
) -> Trainer:
    """Return a trainer of `algorithm` in the environment, `horizon` steps at a time; metrics are as in `trainer` for our envs.

    Only the update is compiled, by `lower`, e.g. `functools.partial(program, artefact=path)`; so `iterate` is called from
    Python and must not be compiled. It steps the environment, so each state can be used once: the newest, or one that
    `begin_anew` returned.
    `iterate` raises NonFiniteError where parameters or rewards became NaN or infinite, and names the first such tensor.
    """
    seen = sample(world.env.observation_space, keys.key(0))
    validate_learner(model, algorithm, seen, world.env.action_space)
    envs = world.vector.num_envs
    act = gymnasium_rollout(world, model, horizon)
    scaling = check_normalizer(normalizer or identity())
    declared, learner_update = algorithm.metrics, algorithm.update

    def init(key: Key) -> RunState:
        learner_key, worlds_key, key = keys.split(key, 3)
        worlds = reset_rollout(world.env, worlds_key, first_memory(model, envs, key.device))
        observation, no = take(worlds.observation, 0), torch.zeros((), dtype=torch.bool, device=key.device)
        step = Transition(
            observation=observation,
            action=sample(world.env.action_space, key),
            reward=no.to(torch.float32),
            terminated=no,
            truncated=no,
            next_observation=observation,
            behaviour_log_prob=no.to(torch.float32),
        )
        return RunState(
            learner=begin(algorithm, learner_key, step),
            worlds=worlds,
            episodes=none_yet(envs, key.device),
            normalizer=scaling.init(world.env.observation_space, envs, key.device),
            key=key,
            env_steps=torch.zeros((), dtype=torch.int64, device=key.device),
        )

    def learn(
        learner: TrainState, scales: Any, episodes: Episodes, memories: Worlds, raw: Trajectory, key: Key
    ) -> tuple[TrainState, Any, Episodes, Metrics]:
        updated = learner_update(learner, remembered(memories, scaling.scale(scales, raw)), key)
        after, metrics = as_declared(declared, learner, updated)
        episodes, counts = follow(episodes, raw)
        finite = all_finite((after.params, raw.reward)).to(torch.float32)
        return after, scaling.update(scales, raw), episodes, {**metrics, **counts, "finite": finite}

    update = lower(learn)

    def iterate(state: RunState) -> tuple[RunState, Metrics]:
        act_key, update_key, key = keys.split(state.key, 3)
        scales = state.normalizer
        worlds, raw = act(state.learner.params, state.worlds, act_key, lambda seen: scaling.observe(scales, seen))
        memories = replace(state.worlds, state=(), observation=())
        learner, scales, episodes, metrics = update(state.learner, scales, state.episodes, memories, raw, update_key)
        steps = state.env_steps + horizon * envs
        if metrics["finite"] != 1.0:
            where = f"gymnasium_trainer: iteration {int(steps) // (horizon * envs)}"
            fault = fault_in(raw, metrics, model.named(learner.params), scales)
            then = ", and go on with begin_anew(world, state) of the state before"
            raise NonFiniteError(fault.text(where, cure="lower the learning rate or scale the rewards", then=then))
        after = RunState(learner=learner, worlds=worlds, episodes=episodes, normalizer=scales, key=key, env_steps=steps)
        return after, metrics

    return Trainer(init=init, iterate=iterate, steps=horizon * envs, metrics=all_names(algorithm))


def gymnasium_train(trainer: Trainer, iterations: int) -> Callable[[RunState], tuple[RunState, Metrics]]:
    """Return a function that runs `iterations` iterations: state -> (state, metrics, each [iterations]).

    It keeps no earlier state, so that an update may write into the memory of the learner that it is given.
    """

    def run(state: RunState) -> tuple[RunState, Metrics]:
        rows: list[Metrics] = []
        for _ in range(iterations):
            state, metrics = trainer.iterate(state)
            rows.append(metrics)
        return state, {name: torch.stack([row[name].to(torch.float32) for row in rows]) for name in trainer.metrics}

    return run


def begin_anew(world: GymnasiumWorld, state: RunState) -> RunState:
    """Return the state with new episodes in `world` and everything that was learnt, to resume a run from a checkpoint."""
    worlds_key, key = keys.split(state.key)
    episodes = none_yet(world.vector.num_envs, key.device)
    return replace(state, worlds=reset_rollout(world.env, worlds_key, state.worlds.fresh), episodes=episodes, key=key)
