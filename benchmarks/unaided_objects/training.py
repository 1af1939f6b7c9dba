"""Buffers, schedules, statistics, optimizers and distributions."""

import math
import random
from collections import deque

import numpy as np
import torch
from torch import nn


class ReplayBuffer:
    """Arrays of a fixed size, as in Spinning Up."""

    def __init__(self, obs_dim, act_dim, size):
        self.obs_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.obs2_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.acts_buf = np.zeros((size, act_dim), dtype=np.float32)
        self.rews_buf = np.zeros(size, dtype=np.float32)
        self.done_buf = np.zeros(size, dtype=np.float32)
        self.ptr, self.size, self.max_size = 0, 0, size

    def store(self, obs, act, rew, next_obs, done):
        """One step."""
        self.obs_buf[self.ptr], self.obs2_buf[self.ptr] = obs, next_obs
        self.acts_buf[self.ptr], self.rews_buf[self.ptr], self.done_buf[self.ptr] = act, rew, done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample_batch(self, batch_size=32):
        """Rows with replacement."""
        idxs = np.random.randint(0, self.size, size=batch_size)
        return {
            "obs": torch.as_tensor(self.obs_buf[idxs]),
            "obs2": torch.as_tensor(self.obs2_buf[idxs]),
            "act": torch.as_tensor(self.acts_buf[idxs]),
            "rew": torch.as_tensor(self.rews_buf[idxs]),
            "done": torch.as_tensor(self.done_buf[idxs]),
        }


class ReplayMemory:
    """A deque of tuples."""

    def __init__(self, buffer_limit=50_000):
        self.buffer = deque(maxlen=buffer_limit)

    def put(self, transition):
        """(s, a, r, s', done_mask)."""
        self.buffer.append(transition)

    def sample(self, n):
        """Five tensors, of rows that differ."""
        rows = random.sample(self.buffer, n)
        return tuple(torch.tensor(np.array([row[i] for row in rows]), dtype=torch.float) for i in range(5))

    def size(self):
        """How many are stored."""
        return len(self.buffer)


class UniformBuffer:
    """push(obs, action, reward, next_obs, done), and dicts out of it."""

    def __init__(self, capacity: int, seed: int = 0):
        self.capacity, self.rows, self.pos = capacity, [], 0
        self.rng = np.random.default_rng(seed)

    def push(self, obs, action, reward, next_obs, done):
        """One step into the ring."""
        row = (obs, action, reward, next_obs, done)
        if len(self.rows) < self.capacity:
            self.rows.append(row)
        else:
            self.rows[self.pos] = row
        self.pos = (self.pos + 1) % self.capacity

    def sample(self, batch_size: int):
        """With replacement."""
        picked = [self.rows[i] for i in self.rng.integers(0, len(self.rows), batch_size)]
        names = ("obs", "action", "reward", "next_obs", "done")
        return {name: np.stack([np.asarray(row[i]) for row in picked]) for i, name in enumerate(names)}

    def __len__(self):
        return len(self.rows)


class PrioritizedBuffer:
    """Proportional priorities in an array."""

    def __init__(self, size, alpha=0.6):
        self.size, self.alpha = size, alpha
        self.storage, self.priorities, self.at = [], np.zeros(size), 0

    def add(self, obs, action, reward, next_obs, done):
        """A new row has the largest priority."""
        top = self.priorities.max() if self.storage else 1.0
        if len(self.storage) < self.size:
            self.storage.append((obs, action, reward, next_obs, done))
        else:
            self.storage[self.at] = (obs, action, reward, next_obs, done)
        self.priorities[self.at] = top
        self.at = (self.at + 1) % self.size

    def sample(self, batch_size, beta=0.4):
        """Rows, their places and weights."""
        scaled = self.priorities[: len(self.storage)] ** self.alpha
        probs = scaled / scaled.sum()
        idx = np.random.choice(len(self.storage), batch_size, p=probs)
        weights = (len(self.storage) * probs[idx]) ** (-beta)
        columns = [np.array([np.asarray(self.storage[i][c]) for i in idx]) for c in range(5)]
        return (*columns, weights / weights.max(), idx)

    def update_priorities(self, idx, priorities):
        """New priorities of rows."""
        for i, p in zip(idx, priorities, strict=True):
            self.priorities[i] = p

    def __len__(self):
        return len(self.storage)


class SumSegmentTree:
    """Sums of blocks of priorities; capacity is rounded up to a power of 2."""

    def __init__(self, capacity):
        self.leaves = 1
        while self.leaves < capacity:
            self.leaves *= 2
        self.nodes = [0.0] * (2 * self.leaves)

    def update(self, index, priority):
        """Sets one, and the sums above it."""
        at = index + self.leaves
        self.nodes[at] = priority
        while at > 1:
            at //= 2
            self.nodes[at] = self.nodes[2 * at] + self.nodes[2 * at + 1]

    def total(self):
        """The sum of all."""
        return self.nodes[1]

    def retrieve(self, mass):
        """The index at a mass."""
        at = 1
        while at < self.leaves:
            left = self.nodes[2 * at]
            if mass < left:
                at = 2 * at
            else:
                mass -= left
                at = 2 * at + 1
        return at - self.leaves


class RolloutStorage:
    """A segment of steps of several envs."""

    def __init__(self, num_steps, num_envs, obs_shape):
        self.obs = torch.zeros(num_steps, num_envs, *obs_shape)
        self.rewards = torch.zeros(num_steps, num_envs)
        self.step = 0

    def insert(self, obs, rewards):
        """The next row."""
        self.obs[self.step], self.rewards[self.step] = obs, rewards
        self.step = (self.step + 1) % len(self.rewards)


def linear_schedule(start_e: float, end_e: float, duration: int, t: int):
    """CleanRL's exploration rate."""
    slope = (end_e - start_e) / duration
    return max(slope * t + start_e, end_e)


def linear_decay(initial_value):
    """A function of what remains of training."""

    def rate(progress_remaining):
        return progress_remaining * initial_value

    return rate


def cosine_with_warmup(step, warmup_steps=10, total_steps=100, base_lr=1.0, min_lr=0.1):
    """Linear up, cosine down, constant after."""
    if step < warmup_steps:
        return base_lr * step / warmup_steps
    if step >= total_steps:
        return min_lr
    share = (step - warmup_steps) / (total_steps - warmup_steps)
    return min_lr + 0.5 * (base_lr - min_lr) * (1 + math.cos(math.pi * share))


class LinearAnneal:
    """A schedule as an object."""

    def __init__(self, initial, final, steps):
        self.initial, self.final, self.steps = initial, final, steps

    def __call__(self, step):
        """The value of a step."""
        share = min(max(step / self.steps, 0.0), 1.0)
        return self.initial + share * (self.final - self.initial)


def polynomial_decay(step, init_value=1.0, end_value=0.0, power=2.0, decay_steps=50):
    """Flat after its end."""
    left = 1 - min(step, decay_steps) / decay_steps
    return (init_value - end_value) * left**power + end_value


class RunningMeanStd:
    """Parallel moments, in numpy."""

    def __init__(self, epsilon=1e-4, shape=()):
        self.mean = np.zeros(shape, "float64")
        self.var = np.ones(shape, "float64")
        self.count = epsilon

    def update(self, x):
        """A batch [N, *shape]."""
        batch_mean, batch_var, n = np.mean(x, axis=0), np.var(x, axis=0), x.shape[0]
        delta, total = batch_mean - self.mean, self.count + n
        squares = self.var * self.count + batch_var * n + delta**2 * self.count * n / total
        self.mean = self.mean + delta * n / total
        self.var, self.count = squares / total, total


class WelfordNormalizer:
    """One observation at a time."""

    def __init__(self, size):
        self.n, self.mean, self.m2 = 0, np.zeros(size), np.zeros(size)

    def observe(self, x):
        """Takes one in."""
        self.n += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.n
        self.m2 = self.m2 + delta * (x - self.mean)

    def __call__(self, x):
        """Scaled and clipped to 5."""
        std = np.sqrt(self.m2 / max(self.n, 1)) + 1e-8
        return np.clip((x - self.mean) / std, -5, 5)


class ObsNormalizer(nn.Module):
    """Statistics in buffers of a module; updated in training mode."""

    def __init__(self, num_inputs, eps=1e-8):
        super().__init__()
        self.eps = eps
        self.register_buffer("mean", torch.zeros(num_inputs, dtype=torch.float64))
        self.register_buffer("var", torch.ones(num_inputs, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def update(self, batch):
        """Merges a batch."""
        batch = batch.double()
        n, mean, var = len(batch), batch.mean(0), batch.var(0, unbiased=False)
        total = self.count + n
        delta = mean - self.mean
        new = self.mean + delta * n / total
        self.var = (self.var * self.count + var * n + delta**2 * self.count * n / total) / total
        self.mean, self.count = new, total

    def forward(self, x):
        """Normalised."""
        return (x - self.mean) / torch.sqrt(self.var + self.eps)


class RewardScaler:
    """Divides rewards by the deviation of a discounted sum."""

    def __init__(self, gamma=0.99, clip=10.0):
        self.gamma, self.clip, self.total = gamma, clip, 0.0
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def __call__(self, reward, done):
        """The scaled reward of one step."""
        self.total = reward + self.gamma * self.total
        self.n += 1
        delta = self.total - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (self.total - self.mean)
        if done:
            self.total = 0.0
        std = math.sqrt(self.m2 / self.n) if self.n > 1 else 1.0
        return float(np.clip(reward / (std + 1e-8), -self.clip, self.clip))


class SignSGD(torch.optim.Optimizer):
    """A step of fixed size against each gradient's sign."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """One step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(torch.sign(p.grad), alpha=-group["lr"])


class PlainAdam(torch.optim.Optimizer):
    """Adam as in the paper."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        """One step."""
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["t"] += 1
                state["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                first = state["m"] / (1 - b1 ** state["t"])
                second = state["v"] / (1 - b2 ** state["t"])
                p.addcdiv_(first, second.sqrt().add_(group["eps"]), value=-group["lr"])


class MomentumSGD(torch.optim.Optimizer):
    """Heavy ball; momentum has a default that is not torch's."""

    def __init__(self, params, lr=0.01, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        """One step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                v = state.get("v")
                state["v"] = p.grad.clone() if v is None else v.mul_(group["momentum"]).add_(p.grad)
                p.add_(state["v"], alpha=-group["lr"])


class TanhGaussian:
    """A squashed Gaussian by mean and log of deviation; actions of several coordinates."""

    def __init__(self, mean, log_std):
        self.mean, self.std = mean, log_std.exp()

    def sample(self):
        """An action."""
        return torch.tanh(self.mean + self.std * torch.randn_like(self.mean))

    def log_prob(self, action):
        """Summed over the coordinates."""
        raw = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
        density = -0.5 * ((raw - self.mean) / self.std) ** 2 - self.std.log() - 0.5 * math.log(2 * math.pi)
        return (density - torch.log1p(-(action.clamp(-1 + 1e-6, 1 - 1e-6) ** 2))).sum(-1)


class DiagGaussian:
    """By mean and deviation."""

    def __init__(self, loc, scale):
        self.loc, self.scale = loc, scale

    def sample(self):
        """An action."""
        return self.loc + self.scale * torch.randn_like(self.loc)

    def log_prob(self, x):
        """Summed over coordinates."""
        z = (x - self.loc) / self.scale
        return (-0.5 * z**2 - torch.log(self.scale) - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self):
        """Summed over coordinates."""
        return (0.5 + 0.5 * math.log(2 * math.pi) + torch.log(self.scale)).sum(-1)


class MaskedCategorical:
    """Logits, and actions that are not legal."""

    def __init__(self, logits, mask=None):
        self.logits = logits if mask is None else logits.masked_fill(~mask, -1e9)

    def sample(self):
        """An index."""
        return torch.distributions.Categorical(logits=self.logits).sample()

    def log_prob(self, action):
        """Of an index."""
        return torch.log_softmax(self.logits, -1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self):
        """Of legal actions."""
        p = torch.softmax(self.logits, -1)
        return -(p * torch.log_softmax(self.logits, -1)).sum(-1)


class MLPActorCritic(nn.Module):
    """Two heads on one body."""

    def __init__(self, obs_dim, n_actions, hidden=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.pi, self.v = nn.Linear(hidden, n_actions), nn.Linear(hidden, 1)

    def forward(self, obs):
        """Logits and value."""
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def polyak_update(source, target, tau=0.005):
    """Moves a target network towards its source, in place."""
    with torch.no_grad():
        for p, q in zip(source.parameters(), target.parameters(), strict=True):
            q.mul_(1 - tau).add_(p, alpha=tau)


def minibatch_indices(batch_size, minibatch_size, rng=None):
    """Shuffled, in parts."""
    order = (rng or np.random.default_rng()).permutation(batch_size)
    return [order[i : i + minibatch_size] for i in range(0, batch_size, minibatch_size)]
