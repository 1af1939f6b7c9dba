"""Plausible edits of an auto-reset and of a time limit, as functions from the wrapped env to a wrongly wrapped one."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ...core import env as core_env
from ...core import keys
from ...core.keys import Key
from ...core.record import replace, select
from ...core.steps import TimeStep, ended
from ..strategies.walks import AnyEnv

Result = tuple[Any, TimeStep]


def _after(env: AnyEnv, change: Callable[[Any, Any, Tensor, Key, Result], Result]) -> AnyEnv:
    """The env whose step's result goes through `change(params, state, action, key, result)`."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        return change(params, state, action, key, env.step(params, state, action, key))

    return attrs.evolve(env, step=step, hoisted=None)


def _over(timestep: TimeStep) -> Tensor:
    return ended(timestep.terminated, timestep.truncated)


def leaks_reset(env: AnyEnv) -> AnyEnv:
    """Files the new episode's first observation as what followed the last action."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, next_observation=timestep.observation)

    return _after(env, change)


def resets_early(env: AnyEnv) -> AnyEnv:
    """Looks one step ahead and resets before the last step."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        _, ahead = env.step(params, result[0], action, key)
        fresh, first = env.reset(params, core_env.reset_key(key))
        early = _over(ahead)
        observation = select(early, first.observation, result[1].observation)
        return select(early, fresh, result[0]), replace(result[1], observation=observation)

    return _after(env, change)


def ignores_truncation(env: AnyEnv) -> AnyEnv:
    """Lets a truncated episode run on, from what followed."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        lasting = timestep.truncated & ~timestep.terminated
        observation = select(lasting, timestep.next_observation, timestep.observation)
        return select(lasting, state, after), replace(timestep, observation=observation)

    return _after(env, change)


def unpaid_ending(env: AnyEnv) -> AnyEnv:
    """Gives the reset's reward, 0, with the step that ends an episode."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, reward=torch.where(_over(timestep), 0.0, timestep.reward))

    return _after(env, change)


def merges_endings(env: AnyEnv) -> AnyEnv:
    """Sets both flags at any ending: a `done` in disguise."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, terminated=_over(timestep), truncated=_over(timestep))

    return _after(env, change)


def same_start(env: AnyEnv) -> AnyEnv:
    """Resets with one key for ever."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        fresh, first = env.reset(params, keys.key(0))
        over = _over(timestep)
        return select(over, fresh, after), replace(
            timestep, observation=select(over, first.observation, timestep.observation)
        )

    return _after(env, change)


AUTO_RESET: dict[str, Callable[[AnyEnv], AnyEnv]] = {
    "pays nothing for the step that ends an episode": unpaid_ending,
    "sets both flags at any ending": merges_endings,
    "resets with the same key each time": same_start,
}


def late_limit(env: AnyEnv) -> AnyEnv:
    """Truncates only where the step before should have been truncated: > for >=."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        _, before = env.step(params, replace(result[0], elapsed=state.elapsed - 1), action, key)
        return result[0], replace(result[1], truncated=before.truncated)

    return _after(env, change)


def limit_terminates(env: AnyEnv) -> AnyEnv:
    """Sets `terminated` at the limit as well."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        return result[0], replace(result[1], terminated=_over(result[1]))

    return _after(env, change)


def unpaid_limit(env: AnyEnv) -> AnyEnv:
    """Drops the reward of a truncated step."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        return result[0], replace(result[1], reward=torch.where(result[1].truncated, 0.0, result[1].reward))

    return _after(env, change)


def ageless(env: AnyEnv) -> AnyEnv:
    """Begins an episode with the age at which the clock of the whole run stands: one."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return replace(state, elapsed=state.elapsed + 1), timestep

    return attrs.evolve(env, reset=reset, hoisted=None)


TIME_LIMIT: dict[str, Callable[[AnyEnv], AnyEnv]] = {"begins an episode at age 1": ageless}
