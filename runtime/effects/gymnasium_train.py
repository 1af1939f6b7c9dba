"""Rollout and trainer in a Gymnasium world: the policy and the update are ours, the world is a foreign effect.

The world's own state lives in the Gymnasium env, so no checkpoint can hold it: a run that resumes from one keeps all that
was learnt and begins new episodes, see `begin_anew`. It is not the run that never stopped.
"""

from collections.abc import Callable
from typing import Any

import torch

from ...algorithms.algorithm import Algorithm, Metrics, TrainState
from ...core import keys
from ...core.keys import Key
from ...core.policy import ActorCritic
from ...core.record import replace
from ...core.spaces import Fields, sample
from ...core.steps import Trajectory
from ...core.tree import all_finite
from ..compile import program
from ..declared import all_names, as_declared
from ..episodes import Episodes, follow, none_yet
from ..normalizer import Normalizer, check_normalizer, identity
from ..rollout import Rollout, begin, rollout
from ..train import RunState, Trainer
from ..validate_learner import validate_learner
from .gymnasium_import import GymnasiumWorld

Lower = Callable[[Callable[..., Any]], Callable[..., Any]]


def gymnasium_rollout(world: GymnasiumWorld, model: ActorCritic, length: int) -> Rollout:
    """A function that runs `length` steps of `model` in the world, to be called like what `rollout` makes.

    Not compiled, and not to be: it walks through Python step by step, and a full-graph compile refuses it. The policy's noise
    is that of `rollout` for the same key. The worlds that go in come from `begin(world.env, key)` or the call before.
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
    """Trains `algorithm` in the world, `horizon` steps at a time; what `trainer` is for our own envs, metrics included.

    Only the update is compiled, by `lower`, e.g. `functools.partial(program, artefact=path)`; so `iterate` is called from
    Python and must not be compiled. It moves the world, so a state can be used once: the newest, or one that `begin_anew` gave.
    """
    if not isinstance(world.env.observation_space, Fields):
        seen = sample(world.env.observation_space, keys.key(0))
        validate_learner(model, algorithm, seen, world.env.action_space)
    envs = world.vector.num_envs
    act = gymnasium_rollout(world, model, horizon)
    scaling = check_normalizer(normalizer or identity())

    def init(key: Key) -> RunState:
        learner_key, worlds_key, key = keys.split(key, 3)
        return RunState(
            learner=algorithm.init(learner_key),
            worlds=begin(world.env, worlds_key),
            episodes=none_yet(envs, key.device),
            normalizer=scaling.init(world.env.observation_space, envs, key.device),
            key=key,
            env_steps=torch.zeros((), dtype=torch.int64, device=key.device),
        )

    def learn(
        learner: TrainState, scales: Any, episodes: Episodes, raw: Trajectory, key: Key
    ) -> tuple[TrainState, Any, Episodes, Metrics]:
        after, metrics = as_declared(algorithm, learner, algorithm.update(learner, scaling.scale(scales, raw), key))
        episodes, counts = follow(episodes, raw)
        finite = all_finite((after.params, raw.reward)).to(torch.float32)
        return after, scaling.update(scales, raw), episodes, {**metrics, **counts, "finite": finite}

    update = lower(learn)

    def iterate(state: RunState) -> tuple[RunState, Metrics]:
        act_key, update_key, key = keys.split(state.key, 3)
        scales = state.normalizer
        worlds, raw = act(state.learner.params, state.worlds, act_key, lambda seen: scaling.observe(scales, seen))
        learner, scales, episodes, metrics = update(state.learner, scales, state.episodes, raw, update_key)
        steps = state.env_steps + horizon * envs
        after = RunState(learner=learner, worlds=worlds, episodes=episodes, normalizer=scales, key=key, env_steps=steps)
        return after, metrics

    return Trainer(init=init, iterate=iterate, steps=horizon * envs, metrics=all_names(algorithm))


def begin_anew(world: GymnasiumWorld, state: RunState) -> RunState:
    """The state with new episodes in `world`, and all that was learnt: how a run resumes from a checkpoint."""
    worlds_key, key = keys.split(state.key)
    episodes = none_yet(world.vector.num_envs, key.device)
    return replace(state, worlds=begin(world.env, worlds_key), episodes=episodes, key=key)
