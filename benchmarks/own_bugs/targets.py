"""Returns and targets: reward-to-go, lambda returns, targets of off-policy critics."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .bug import Bug

Array = NDArray[Any]


def episodic_returns(rewards: list[float], gamma: float) -> list[float]:
    """The discounted return from each step of an episode."""
    returns, total = [], 0.0
    for reward in rewards:
        total = reward + gamma * total
        returns.append(total)
    return returns


def episodic_returns_fixed(rewards: list[float], gamma: float) -> list[float]:
    """Of the rewards that follow."""
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


def td_lambda(rewards: Tensor, dones: Tensor, target_qs: Tensor, gamma: float, lambda_: float) -> Tensor:
    """TD(lambda) targets [T]; `target_qs[t]` is the value of the state that step t leads to."""
    ret, found = target_qs[-1], []
    for reward, done, value in zip(rewards.flip(0), dones.flip(0), target_qs.flip(0), strict=True):
        mixed = ret * lambda_ * gamma + reward + (1 - lambda_) * gamma * (1 - done.float()) * value
        ret = torch.where(done, value, mixed)
        found.append(ret)
    return torch.stack(found[::-1])


def td_lambda_fixed(rewards: Tensor, dones: Tensor, target_qs: Tensor, gamma: float, lambda_: float) -> Tensor:
    """A step that ends an episode is worth its reward."""
    ret, found = target_qs[-1], []
    for reward, done, value in zip(rewards.flip(0), dones.flip(0), target_qs.flip(0), strict=True):
        ret = reward + gamma * (1 - done.float()) * (lambda_ * ret + (1 - lambda_) * value)
        found.append(ret)
    return torch.stack(found[::-1])


def rewards_to_go(rewards: Array, gamma: float = 0.99) -> Array:
    """What remains of each step of a trajectory whose rewards are a column [T, 1]."""
    discounts = gamma ** np.arange(len(rewards))
    out = np.zeros(len(rewards))
    for t in range(len(rewards)):
        out[t] = (rewards[t:] * discounts[: len(rewards) - t]).sum()
    return out


def rewards_to_go_fixed(rewards: Array, gamma: float = 0.99) -> Array:
    """Products of pairs, not of all with all."""
    flat = rewards.reshape(-1)
    discounts = gamma ** np.arange(len(flat))
    return np.array([(flat[t:] * discounts[: len(flat) - t]).sum() for t in range(len(flat))])


def q_target(reward: Tensor, next_q: Tensor, terminated: Tensor, truncated: Tensor, gamma: float) -> Tensor:
    """The target of a critic's value."""
    done = terminated | truncated
    return reward + gamma * next_q * ~done


def q_target_fixed(reward: Tensor, next_q: Tensor, terminated: Tensor, truncated: Tensor, gamma: float) -> Tensor:
    """Something lies beyond a truncation."""
    del truncated
    return reward + gamma * next_q * ~terminated


def mc_returns(
    rewards: list[float], terminated: list[bool], truncated: list[bool], next_values: list[float], gamma: float
) -> list[float]:
    """Returns of the steps of a rollout; `next_values[t]` is the critic's value of what step t led to."""
    found, total = [], next_values[-1]
    for t in reversed(range(len(rewards))):
        if terminated[t] or truncated[t]:
            total = 0.0
        total = rewards[t] + gamma * total
        found.append(total)
    return found[::-1]


def mc_returns_fixed(
    rewards: list[float], terminated: list[bool], truncated: list[bool], next_values: list[float], gamma: float
) -> list[float]:
    """A truncated episode goes on with the critic's value."""
    found, total = [], next_values[-1]
    for t in reversed(range(len(rewards))):
        if truncated[t]:
            total = next_values[t]
        if terminated[t]:
            total = 0.0
        total = rewards[t] + gamma * total
        found.append(total)
    return found[::-1]


BUGS = [
    Bug(
        "return_of_past_rewards",
        "https://github.com/mohmdelsayed/streaming-drl/issues/3",
        "targets",
        "The return of a step sums the rewards before it instead of those after it.",
        episodic_returns,
        episodic_returns_fixed,
        lambda f: f([1.0, 2.0, 4.0], 0.5),
    ),
    Bug(
        "value_of_next_episode_as_target",
        "https://github.com/bold-lab-ai/JaxMARL/issues/93",
        "targets",
        "Where an episode ends, the lambda return is the value of what follows instead of the reward.",
        td_lambda,
        td_lambda_fixed,
        lambda f: f(torch.ones(3), torch.tensor([False, True, False]), torch.tensor([5.0, 7.0, 9.0]), 0.9, 0.5),
    ),
    Bug(
        "column_times_row",
        "https://github.com/Howuhh/faster-trajectory-transformer/issues/9",
        "targets",
        "Rewards [T, 1] times discounts [T] are all products of all, whose sum is far too large.",
        rewards_to_go,
        rewards_to_go_fixed,
        lambda f: f(np.array([[1.0], [2.0], [3.0]]), 0.9),
    ),
    Bug(
        "no_value_beyond_truncation",
        "https://github.com/anthonytorlucci/rlevo/issues/170",
        "targets",
        "A truncation masks the bootstrap of an off-policy target as if nothing lay beyond it.",
        q_target,
        q_target_fixed,
        lambda f: f(torch.ones(1), torch.ones(1), torch.tensor([False]), torch.tensor([True]), 0.9),
    ),
    Bug(
        "return_cut_at_truncation",
        "https://github.com/jsboige/CoursIA/pull/7821",
        "targets",
        "Returns of an episode that reached its time limit leave out the value of where it stood.",
        mc_returns,
        mc_returns_fixed,
        lambda f: f([1.0, 1.0], [False, False], [False, True], [3.0, 5.0], 0.9),
    ),
]
