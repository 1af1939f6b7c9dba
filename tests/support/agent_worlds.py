"""Small games of several agents."""

from typing import Any

import torch
from torch import Tensor

from purestep import keys
from purestep.core.env import Env, time_limit
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import TimeStep, first, following


def copy_and_invert(agents: int = 2, steps: int = 8) -> Env[Tensor, Any]:
    """Each agent sees a bit; agent 0 has to repeat it, the others to invert it. All get 1 if all are right, else 0."""

    def bits(key: Tensor) -> Tensor:
        return (keys.uniform(key, (agents, 1)) > 0.5).to(torch.float32)

    def reset(params: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        state = bits(key)
        return state, first(state.clone())

    def step(params: Tensor, state: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        wanted = torch.where(torch.arange(agents) == 0, state[:, 0], 1.0 - state[:, 0])
        state, over = bits(key), torch.zeros((), dtype=torch.bool)
        return state, following(state.clone(), params * (action == wanted).all().to(torch.float32), over)

    return time_limit(Env(torch.tensor(1.0), reset, step, Box(0.0, 1.0, (1,)), Discrete(2), agents=agents), steps)


def paid_apart(agents: int = 3, steps: int = 4) -> Env[Tensor, Any]:
    """Agent a gets a + 1 times its own action, which it sees in the next observation, and nothing of the others'."""

    def reset(params: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        state = torch.zeros(agents, 1)
        return state, first(state.clone())

    def step(params: Tensor, state: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        paid = action * torch.arange(1, agents + 1)
        state = action[:, None].to(torch.float32)
        return state, following(state.clone(), paid.to(torch.float32), torch.zeros((), dtype=torch.bool))

    return time_limit(Env(torch.tensor(1.0), reset, step, Box(0.0, 1.0, (1,)), Discrete(2), agents=agents), steps)


PAIR = copy_and_invert()
