"""Plausible edits of an environment, as functions Env -> Env; they fit any world whose state has a float leaf."""

import logging
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ...core.env import Hoisted, halves
from ...core.keys import Key
from ...core.record import replace
from ...core.spaces import Box
from ...core.steps import TimeStep
from ...core.tree import leaves, tree_map
from ..strategies.walks import AnyEnv

Result = tuple[Any, TimeStep]


def stepping(env: AnyEnv, change: Callable[[Any, Any, Tensor, Key], Result]) -> AnyEnv:
    """The env with another step and no hoisted halves of the old one."""
    return attrs.evolve(env, step=change, hoisted=None)


def floats(tree: Any) -> list[Tensor]:
    """The floating-point leaves."""
    return [leaf for leaf in leaves(tree) if leaf.is_floating_point()]


def counts_beside(env: AnyEnv) -> AnyEnv:
    """Truncates by a count kept in Python."""
    calls: list[int] = []

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        calls.append(1)
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, truncated=torch.full_like(timestep.truncated, len(calls) % 7 == 0))

    return stepping(env, step)


def global_noise(env: AnyEnv) -> AnyEnv:
    """Adds sensor noise from torch's own generator."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=timestep.reward + torch.rand(()))

    return stepping(env, step)


def moves_in_place(env: AnyEnv) -> AnyEnv:
    """Writes the new state into the old one."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        for old, new in zip(leaves(state), leaves(after), strict=True):
            old.copy_(new)
        return tree_map(torch.clone, state), timestep

    return stepping(env, step)


def shares_params(env: AnyEnv) -> AnyEnv:
    """Begins at a place that is a view of the params."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        origin = floats(params)[0]
        return state, replace(timestep, reward=origin[...] * 0 if origin.ndim else origin.view(()))

    return attrs.evolve(env, reset=reset)


def asks_python(env: AnyEnv) -> AnyEnv:
    """Lets Python look at the action."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        if action == 1:
            timestep = replace(timestep, reward=timestep.reward * 2)
        return state, timestep

    return stepping(env, step)


def logs(env: AnyEnv) -> AnyEnv:
    """Tells the log what it does."""
    logger = logging.getLogger(__name__)

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        logger.debug("a step")
        return env.step(params, state, action, key)

    return stepping(env, step)


def widens(env: AnyEnv) -> AnyEnv:
    """Leaves the state in double precision."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, state), timestep

    return stepping(env, step)


def on_the_cpu(env: AnyEnv) -> AnyEnv:
    """Makes its tensors where tensors are made by default."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=torch.cat([torch.zeros(1), timestep.reward.reshape(1)])[1])

    return stepping(env, step)


def narrow_space(env: AnyEnv) -> AnyEnv:
    """Declares a range that only the middle of an episode keeps to."""
    shape = env.observation_space.shape if isinstance(env.observation_space, Box) else ()
    return attrs.evolve(env, observation_space=Box(-0.04, 0.04, shape))


def root_of_negative(env: AnyEnv) -> AnyEnv:
    """Pays the root of a number that may be negative."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        return after, replace(timestep, reward=torch.sqrt(floats(after)[-1].sum()))

    return stepping(env, step)


def counted_reward(env: AnyEnv) -> AnyEnv:
    """Counts its reward."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=timestep.reward.long())

    return stepping(env, step)


def paid_reset(env: AnyEnv) -> AnyEnv:
    """Pays at a reset."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return state, replace(timestep, reward=timestep.reward + 1)

    return attrs.evolve(env, reset=reset)


def remembers_the_last_step(env: AnyEnv) -> AnyEnv:
    """Begins where the last step led."""
    last: list[Any] = []

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return (last[-1] if last else state), timestep

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        last.append(tree_map(torch.clone, after))
        return after, timestep

    return attrs.evolve(stepping(env, step), reset=reset)


def fresh_observation(env: AnyEnv) -> AnyEnv:
    """Forgets the mask in front of the reset's observation."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        _, fresh = env.reset(params, key)
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, observation=fresh.observation)

    return stepping(env, step)


def hoisted_forgets(env: AnyEnv) -> AnyEnv:
    """The half inside the loop always plays action 0."""
    parts = halves(env)

    def step(params: Any, state: Any, action: Tensor, noise: Any) -> Result:
        return parts.step(params, state, torch.zeros_like(action), noise)

    return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))


def tires(env: AnyEnv) -> AnyEnv:
    """Skips a step now and then."""
    calls: list[int] = []

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        calls.append(1)
        after, timestep = env.step(params, state, action, key)
        return (tree_map(torch.clone, state) if len(calls) % 10 == 0 else after), timestep

    return stepping(env, step)


def hides_age(env: AnyEnv) -> AnyEnv:
    """Keeps a number where no copy finds it."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        age = getattr(leaves(state)[0], "age", 0)
        after, timestep = env.step(params, state, action, key)
        leaves(after)[0].age = age + 1
        return after, replace(timestep, reward=timestep.reward + age)

    return stepping(env, step)
