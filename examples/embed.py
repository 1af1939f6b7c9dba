"""Two pure functions in somebody else's trainer: `gae` and `ppo_clip` in a plain PyTorch loop over a Gymnasium CartPole.

    python examples/embed.py                 # needs the extra `gym`

The module, the optimiser, the loop and its randomness are the reader's own. Advantages and the loss are ours: tensors in,
tensors out, nothing reduced, nothing configured.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn

from purestep.algorithms.advantages import gae
from purestep.algorithms.losses import ppo_clip

ENVS, HORIZON, EPOCHS, MINIBATCH = 8, 64, 8, 128
GAMMA, LAMBDA = 0.98, 0.9


class Agent(nn.Module):
    """A policy and a value for CartPole."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observation: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        return torch.distributions.Categorical(logits=self.policy(observation)), self.value(observation)[..., 0]


def make() -> Any:
    return gymnasium.make("CartPole-v1")


class Loop:
    """The world, and the returns of the episodes that ended in it."""

    def __init__(self, seed: int) -> None:
        self.envs: Any = SyncVectorEnv([make] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
        self.observation = torch.tensor(self.envs.reset(seed=seed)[0])
        self.running = np.zeros(ENVS)
        self.returns: list[float] = []

    @torch.no_grad()
    def collect(self, agent: Agent) -> dict[str, Tensor]:
        """HORIZON steps in each world: [HORIZON, ENVS, ...] each."""
        rows = []
        for _ in range(HORIZON):
            distribution, _ = agent(self.observation)
            action = distribution.sample()
            shown, reward, terminated, truncated, info = self.envs.step(action.numpy())
            following = shown.copy()
            for i in np.flatnonzero(terminated | truncated):  # after an ending, `shown` is of the next episode
                following[i] = info["final_obs"][i]
            row = self.observation, action, distribution.log_prob(action), reward, terminated, truncated, following
            rows.append([torch.as_tensor(part) for part in row])
            self.observation = torch.tensor(shown)
            self.count(reward, terminated | truncated)
        names = ("observation", "action", "log_prob", "reward", "terminated", "truncated", "next_observation")
        return {name: torch.stack(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}

    def count(self, reward: Any, ended: Any) -> None:
        self.running += reward
        self.returns += self.running[ended].tolist()
        self.running[ended] = 0.0


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> None:
    """Some epochs of PPO on a batch [HORIZON, ENVS, ...]."""
    with torch.no_grad():
        values, next_values = agent(batch["observation"])[1], agent(batch["next_observation"])[1]
        ends = batch["terminated"], batch["truncated"]
        advantages = gae(batch["reward"].float(), values, next_values, *ends, gamma=GAMMA, lambda_=LAMBDA)
    batch = {**batch, "advantage": advantages, "target": values + advantages}
    rows = {name: part.flatten(0, 1) for name, part in batch.items()}
    for _ in range(EPOCHS):
        for index in torch.randperm(HORIZON * ENVS).reshape(-1, MINIBATCH):
            part = {name: row[index] for name, row in rows.items()}
            distribution, value = agent(part["observation"])
            advantage = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
            policy_loss = ppo_clip(distribution.log_prob(part["action"]), part["log_prob"], advantage, clip=0.2)
            value_loss = 0.5 * (value - part["target"]) ** 2
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - 0.001 * distribution.entropy()).mean().backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def learn(iterations: int = 120, seed: int = 0) -> tuple[Agent, list[float]]:
    """HORIZON steps in ENVS worlds and an update, so many times: the agent, and the return of each episode that ended."""
    torch.manual_seed(seed)
    agent, loop = Agent(), Loop(seed)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1.0 - iteration / iterations)
        update(agent, optimizer, loop.collect(agent))
    loop.envs.close()
    return agent, loop.returns


@torch.no_grad()
def evaluate(agent: Agent, episodes: int = 100, seed: int = 1) -> float:
    """The mean return of so many new episodes, without exploration: the first of each world."""
    envs: Any = SyncVectorEnv([make] * episodes, autoreset_mode=AutoresetMode.SAME_STEP)
    shown, _ = envs.reset(seed=seed)
    running, returns = np.ones(episodes, np.bool_), np.zeros(episodes)
    while running.any():
        action = agent(torch.tensor(shown))[0].probs.argmax(-1)
        shown, reward, terminated, truncated, _ = envs.step(action.numpy())
        returns += reward * running
        running &= ~(terminated | truncated)
    envs.close()
    return float(returns.mean())


def main() -> dict[str, float]:
    """Trains, evaluates and tells."""
    agent, returns = learn()
    steps, before, after = 120 * HORIZON * ENVS, float(np.mean(returns[:100])), evaluate(agent)
    print(f"mean return of 100 episodes: {before:.0f} at first, {after:.0f} after {steps:,} steps")
    return {"steps": steps, "episodes": len(returns), "return_before": before, "return_after": after}


if __name__ == "__main__":
    main()
