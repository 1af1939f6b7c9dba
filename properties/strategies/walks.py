"""Walks, by which the laws of environments reach states. A walk is a few small numbers, so it prints and shrinks well."""

from collections.abc import Iterator
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core import keys
from ...core.env import Env
from ...core.keys import Key
from ...core.spaces import (
    Discrete,
    Fields,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    assembled,
    clip_to_space,
    parts,
    sizes_of,
)
from ...core.steps import TimeStep
from .values import seeds

ACTIONS = 256  # number of actions that an integer can select
AnyEnv = Env[Any, Any]


@frozen
class Walk:
    """A reset with `seed`, then one step for each number in `actions`, with another reset where an episode ends."""

    seed: int
    actions: tuple[int, ...]


@frozen
class Visit:
    """One step of a walk: its inputs and outputs."""

    state: Any
    action: Any
    key: Key
    after: Any
    timestep: TimeStep


def walks(longest: int = 12, least: int = 0) -> SearchStrategy[Walk]:
    """Walks of up to 3 mixed actions, then one action repeated: most episodes end by long repetitions.

    Many walks have `least` repetitions, some have `longest`; the others lie between.
    """
    numbers = st.integers(0, ACTIONS - 1)
    counts = [*(least,) * (longest // 2), *range(least, longest + 1), *(longest,) * (1 + longest // 4)]

    def make(seed: int, mixed: list[int], number: int, count: int) -> Walk:
        return Walk(seed, (*mixed, *(number,) * count))

    return st.builds(
        make, seed=seeds(), mixed=st.lists(numbers, max_size=3), number=numbers, count=st.sampled_from(counts)
    )


def action_of(space: Space, number: int) -> Any:
    """Return the action for a number below ACTIONS; 0 and ACTIONS - 1 are the bounds of a box.

    >>> from purestep.core.spaces import Box
    >>> action_of(Box(-1.0, 1.0, (2,)), 255)
    tensor([1., 1.])
    """
    if isinstance(space, Discrete):
        return torch.tensor(number % space.n)
    if isinstance(space, MultiDiscrete | MultiBinary):
        return torch.tensor([(number * (2 * k + 1)) % size for k, size in enumerate(sizes_of(space))])
    if isinstance(space, Fields | Tuple):
        return assembled(space, [action_of(inner, (number + k) % ACTIONS) for k, (_, inner) in enumerate(parts(space))])
    count = max(1, torch.Size(space.shape).numel())
    inside = [(number * (2 * i + 1)) % (ACTIONS - 1) for i in range(count)]
    numbers = torch.tensor([number] * count if number == ACTIONS - 1 else inside, dtype=torch.float32)
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    low, high = low.clamp(min=-4.0), high.clamp(max=4.0)
    drawn = torch.minimum(low + (high - low) * (numbers.reshape(space.shape) / (ACTIONS - 1)), high)
    return clip_to_space(space, drawn) if space.dtype != torch.float32 else drawn


def key_of_step(walk: Walk, t: int) -> Key:
    """Return the key of step t; t = -1 is the first reset."""
    return keys.key(walk.seed * 64 + t + 1)


def steps_from(env: AnyEnv, state: Any, walk: Walk) -> Iterator[Visit]:
    """Yield the steps of a walk that begins in `state`."""
    for t, number in enumerate(walk.actions):
        action, key = action_of(env.action_space, number), key_of_step(walk, t)
        after, timestep = env.step(env.params, state, action, key)
        yield Visit(state, action, key, after, timestep)
        state = _next(env, walk, after, timestep)


def _next(env: AnyEnv, walk: Walk, after: Any, timestep: TimeStep) -> Any:
    return env.reset(env.params, keys.key(1 + walk.seed))[0] if is_over(timestep) else after


def visits(env: AnyEnv, walk: Walk) -> Iterator[Visit]:
    """Return the steps of a walk."""
    return steps_from(env, env.reset(env.params, key_of_step(walk, -1))[0], walk)


def unbroken(env: AnyEnv, walk: Walk) -> Iterator[Visit]:
    """Yield the steps of a walk in an env that begins its next episode by itself."""
    state, _ = env.reset(env.params, key_of_step(walk, -1))
    for t, number in enumerate(walk.actions):
        action, key = action_of(env.action_space, number), key_of_step(walk, t)
        after, timestep = env.step(env.params, state, action, key)
        yield Visit(state, action, key, after, timestep)
        state = after


def is_over(timestep: TimeStep) -> bool:
    """Return whether the timestep is the last of its episode."""
    return bool(timestep.terminated | timestep.truncated)


def last_state(env: AnyEnv, walk: Walk) -> Any:
    """Return the state that a walk leads to."""
    state, _ = env.reset(env.params, key_of_step(walk, -1))
    for visit in steps_from(env, state, walk):
        state = _next(env, walk, visit.after, visit.timestep)
    return state


def trajectory(env: AnyEnv, walk: Walk) -> list[tuple[Any, TimeStep]]:
    """Return the states and timesteps of a walk, starting with the first reset."""
    first = env.reset(env.params, key_of_step(walk, -1))
    return [first, *((visit.after, visit.timestep) for visit in steps_from(env, first[0], walk))]
