"""Environments that need a memory: CartPole and Pendulum without velocities, and a bit to be recalled after 64 steps."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

import purestep as ps
from purestep.core.env import map_step

STEPS = 64


def seen_in_part(env: Any, parts: tuple[int, ...], space: Any) -> Any:
    """The environment with these entries of its observation alone."""

    def shown(step: ps.TimeStep) -> ps.TimeStep:
        rows = torch.tensor(parts)
        return ps.replace(
            step, observation=step.observation[..., rows], next_observation=step.next_observation[..., rows]
        )

    def reset(params: Any, key: Tensor) -> tuple[Any, ps.TimeStep]:
        state, step = env.reset(params, key)
        return state, shown(step)

    def wrap(inner: Any) -> Any:
        def step(params: Any, state: Any, action: Tensor, key: Any) -> tuple[Any, ps.TimeStep]:
            state, told = inner(params, state, action, key)
            return state, shown(told)

        return step

    return attrs.evolve(map_step(env, reset, wrap), observation_space=space)


def positions() -> Any:
    """CartPole that shows where the cart is and how the pole stands, and no velocity."""
    return seen_in_part(ps.make("cartpole"), (0, 2), ps.Box(-5.0, 5.0, (2,)))


def angle() -> Any:
    """Pendulum that shows the cosine and sine of its angle, and no velocity."""
    return seen_in_part(ps.make("pendulum"), (0, 1), ps.Box(-1.0, 1.0, (2,)))


@ps.record
class Recall:
    """The bit to be recalled, and the step."""

    bit: Tensor = ps.tensor("*", "int")
    time: Tensor = ps.tensor("*", "int")


def recall() -> Any:
    """A bit is shown once; the last of 64 actions is rewarded with 1 if it is the bit, with -1 if not."""

    def look(state: Recall) -> Tensor:
        first, last = state.time == 0, state.time == STEPS - 1
        return torch.stack([torch.where(first, 2.0 * state.bit - 1.0, 0.0), last.float()], -1)

    def reset(params: Any, key: Tensor) -> tuple[Recall, ps.TimeStep]:
        bit = ps.keys.randint(key, (), 0, 2)
        state = Recall(bit=bit, time=torch.zeros_like(bit))
        return state, ps.first(look(state))

    def step(params: Any, state: Recall, action: Tensor, key: Any) -> tuple[Recall, ps.TimeStep]:
        last = state.time == STEPS - 1
        reward = torch.where(last, torch.where(action == state.bit, 1.0, -1.0), 0.0)
        after = ps.replace(state, time=state.time + 1)
        return after, ps.following(look(after), reward, last)

    return ps.Env((), reset, step, ps.Box(-1.0, 1.0, (2,)), ps.Discrete(2))


def whole_cartpole() -> Any:
    """CartPole with velocities, as PureJaxRL's memory sees it."""
    return ps.make("cartpole")


WORLDS: Mapping[str, Callable[[], Any]] = {
    "cartpole": positions,
    "pendulum": angle,
    "recall": recall,
    "whole_cartpole": whole_cartpole,
}
SOLVED: Mapping[str, float] = {"cartpole": 475.0, "pendulum": -300.0, "recall": 0.9}  # mean greedy return of a seed
