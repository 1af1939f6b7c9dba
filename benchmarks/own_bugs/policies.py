"""Policies: modes that are left on, memory that outlives its episode."""

from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from .bug import Bug


class DropoutPolicy(nn.Module):
    """A deterministic policy with dropout."""

    def __init__(self, obs_dim: int = 4, act_dim: int = 2) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, act_dim))

    def forward(self, obs: Tensor) -> Tensor:
        out: Tensor = self.net(obs)
        return out


def evaluate(policy: nn.Module, env: gymnasium.Env[Any, Any], episodes: int = 1) -> list[float]:
    """The returns of so many episodes; the policy is as it was afterwards."""
    policy.eval()
    return played(policy, env, episodes)


def evaluate_fixed(policy: nn.Module, env: gymnasium.Env[Any, Any], episodes: int = 1) -> list[float]:
    """Back to the mode that each part had."""
    modes = {module: module.training for module in policy.modules()}
    policy.eval()
    found = played(policy, env, episodes)
    for module, training in modes.items():
        module.training = training
    return found


def played(policy: nn.Module, env: gymnasium.Env[Any, Any], episodes: int) -> list[float]:
    """Returns of episodes with the largest output as the action."""
    found = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            with torch.no_grad():
                action = int(policy(torch.as_tensor(obs)).argmax())
            obs, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        found.append(total)
    return found


class RecurrentPolicy(nn.Module):
    """A GRU over observations [T, B, D]; `starts[t]` marks observations that begin an episode."""

    def __init__(self, obs_dim: int = 3, hidden: int = 8, actions: int = 2) -> None:
        super().__init__()
        self.cell, self.head, self.hidden = nn.GRUCell(obs_dim, hidden), nn.Linear(hidden, actions), hidden

    def forward(self, obs: Tensor, starts: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [T, B, A] and the last state [B, H]."""
        found = []
        for x, start in zip(obs, starts, strict=True):
            state = self.cell(x, state)
            found.append(self.head(state))
            state = state * ~start.unsqueeze(-1)
        return torch.stack(found), state


class RecurrentPolicyFixed(RecurrentPolicy):
    """Clears the state before the observation that begins."""

    def forward(self, obs: Tensor, starts: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        found = []
        for x, start in zip(obs, starts, strict=True):
            state = self.cell(x, state * ~start.unsqueeze(-1))
            found.append(self.head(state))
        return torch.stack(found), state


def left(run: Any) -> object:
    """Whether the policy trains afterwards."""
    policy = DropoutPolicy()
    run(policy, gymnasium.make("CartPole-v1"))
    return policy.training


def independent(make: Any) -> object:
    """Whether the logits of an episode's first step depend on the episode before."""
    torch.manual_seed(0)
    policy = make()
    starts = torch.tensor([[True], [False], [True]])
    obs = torch.randn(3, 1, 3)
    one, _ = policy(obs, starts, torch.zeros(1, 8))
    obs[:2] += 1
    two, _ = policy(obs, starts, torch.zeros(1, 8))
    return bool(torch.allclose(one[2], two[2]))


BUGS = [
    Bug(
        "evaluation_mode_left_on",
        "https://github.com/huggingface/lerobot/issues/3668",
        "policies",
        "Evaluation leaves the policy in evaluation mode, so that training goes on without dropout.",
        evaluate,
        evaluate_fixed,
        left,
    ),
    Bug(
        "memory_cleared_one_step_late",
        "https://github.com/instadeepai/Mava/issues/1006",
        "policies",
        "A recurrent state is cleared one step after an episode begins.",
        RecurrentPolicy,
        RecurrentPolicyFixed,
        independent,
    ),
]
