"""n-step returns: discounts, episode ends and which observation they bootstrap from."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from .bug import Bug


def td_target(reward_n: Tensor, next_q: Tensor, terminated: Tensor, gamma: float, n_steps: int) -> Tensor:
    """The target of `n_steps` rewards, discounted already, and the value after them."""
    del n_steps
    return reward_n + gamma * (1 - terminated.float()) * next_q


def td_target_fixed(reward_n: Tensor, next_q: Tensor, terminated: Tensor, gamma: float, n_steps: int) -> Tensor:
    """The value lies `n_steps` away."""
    return reward_n + gamma**n_steps * (1 - terminated.float()) * next_q


def n_step_rewards(rewards: Tensor, dones: Tensor, gamma: float) -> Tensor:
    """The discounted sum of rewards [B, n] up to and with the first end."""
    alive = torch.cumprod(1 - dones.float(), dim=1)
    discounts = gamma ** torch.arange(rewards.shape[1])
    return (rewards * alive * discounts).sum(1)


def n_step_rewards_fixed(rewards: Tensor, dones: Tensor, gamma: float) -> Tensor:
    """The reward of the step that ends an episode counts."""
    alive = torch.cumprod(1 - dones.float(), dim=1)
    before = torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], dim=1)
    discounts = gamma ** torch.arange(rewards.shape[1])
    return (rewards * before * discounts).sum(1)


class NStepSampler:
    """Transitions in a ring [capacity]; a draw follows `n` of them."""

    def __init__(self, capacity: int, n: int, gamma: float = 0.99, seed: int = 0):
        self.capacity, self.n, self.gamma = capacity, n, gamma
        self.obs, self.reward = torch.zeros(capacity), torch.zeros(capacity)
        self.next_obs, self.done = torch.zeros(capacity), torch.zeros(capacity, dtype=torch.bool)
        self.ptr = 0
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, obs: float, reward: float, next_obs: float, done: bool) -> None:
        i = self.ptr % self.capacity
        self.obs[i], self.reward[i], self.next_obs[i], self.done[i] = obs, reward, next_obs, done
        self.ptr += 1

    def starts(self, batch: int) -> Tensor:
        upper = max(1, min(self.capacity, self.ptr) - self.n + 1)
        return torch.randint(0, upper, (batch,), generator=self.generator)

    def sample(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Observation, n-step reward and the observation after the last step that counts. Raises: ValueError."""
        if self.ptr < self.n:
            raise ValueError(f"{self.ptr} steps are too few for {self.n}")
        rows = (self.starts(batch).unsqueeze(1) + torch.arange(self.n)) % self.capacity
        reward = n_step_rewards_fixed(self.reward[rows], self.done[rows], self.gamma)
        first = torch.where(self.done[rows].any(1), self.done[rows].int().argmax(1), self.n - 1)
        last = rows.gather(1, first.unsqueeze(1)).squeeze(1)
        return self.obs[rows[:, 0]], reward, self.next_obs[last]


class NStepSamplerFixed(NStepSampler):
    """No run of steps crosses the slot that is written next."""

    def starts(self, batch: int) -> Tensor:
        if self.ptr <= self.capacity:
            return super().starts(batch)
        offset = torch.randint(0, self.capacity - self.n + 1, (batch,), generator=self.generator)
        return (self.ptr + offset) % self.capacity


class NStepQueue:
    """Gives an n-step transition whenever it holds n steps."""

    def __init__(self, n: int, gamma: float = 0.99):
        self.queue: deque[tuple[Any, Any, float, Any, bool]] = deque(maxlen=n)
        self.gamma = gamma

    def push(self, obs: Any, action: Any, reward: float, next_obs: Any, done: bool) -> tuple[Any, ...] | None:
        self.queue.append((obs, action, reward, next_obs, done))
        if len(self.queue) < (self.queue.maxlen or 1):
            return None
        total, following, ended = self.folded()
        return (*self.queue[0][:2], total, following, ended)

    def folded(self) -> tuple[float, Any, bool]:
        total, following, ended = self.queue[-1][2:]
        for _, _, reward, _, done in reversed(list(self.queue)[:-1]):
            total = reward + self.gamma * total * (not done)
            ended = ended or done
        return total, following, ended


class NStepQueueFixed(NStepQueue):
    """The observation after the first end, and not that of the next episode."""

    def folded(self) -> tuple[float, Any, bool]:
        total, following, ended = self.queue[-1][2:]
        for _, _, reward, next_obs, done in reversed(list(self.queue)[:-1]):
            total = reward + self.gamma * total * (not done)
            following, ended = (next_obs, True) if done else (following, ended)
        return total, following, ended


def sampled(make: Any) -> object:
    """Whether all draws of one endless stream lie 3 steps apart."""
    sampler = make(8, 3)
    for t in range(12):
        sampler.add(t, 1.0, t + 1, False)
    obs, _, following = sampler.sample(200)
    return bool((following == obs + 3).all())


def queued(make: Any) -> object:
    """What comes out around an end."""
    queue = make(3, 0.5)
    steps = [(0, 0, 1.0, 1, False), (1, 0, 1.0, 2, True), (10, 0, 1.0, 11, False), (11, 0, 1.0, 12, False)]
    return [queue.push(*step) for step in steps]


BUGS = [
    Bug(
        "discount_of_one_step",
        "https://github.com/younggyoseo/FastTD3/issues/6",
        "n_step",
        "The value after n steps is discounted by gamma, not by its n-th power.",
        td_target,
        td_target_fixed,
        lambda f: f(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([False]), 0.9, 3),
    ),
    Bug(
        "reward_of_end_masked",
        "https://github.com/younggyoseo/FastTD3/pull/7",
        "n_step",
        "The mask of ended episodes leaves out the reward of the step that ends them.",
        n_step_rewards,
        n_step_rewards_fixed,
        lambda f: f(torch.ones(1, 3), torch.tensor([[False, True, False]]), 0.9),
    ),
    Bug(
        "runs_across_the_write_position",
        "https://github.com/younggyoseo/FastTD3/pull/7",
        "n_step",
        "When the ring is full, a run of n steps goes from the newest data into the oldest.",
        NStepSampler,
        NStepSamplerFixed,
        sampled,
    ),
    Bug(
        "bootstraps_from_next_episode",
        "https://github.com/Huixxi/TensorFlow2.0-for-Deep-Reinforcement-Learning/pull/4",
        "n_step",
        "Where an end lies within the n steps, the next observation is that of the following episode.",
        NStepQueue,
        NStepQueueFixed,
        queued,
    ),
]
