"""What a training script is made of: optimisers, schedules, buffers, networks, checkpoints."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, decoupled decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(beta1 * m + (1 - beta1) * p.grad))
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def make_optimizer(params):
    return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.01)


def linear_schedule(initial_value: float):
    """The rate from what remains of training."""

    def func(progress_remaining: float) -> float:
        return progress_remaining * initial_value

    return func


def warmup_cosine(step: int, warmup_steps: int, max_steps: int, max_lr: float, min_lr: float) -> float:
    """The rate of a step."""
    if step < warmup_steps:
        return max_lr * (step + 1) / warmup_steps
    ratio = min(1.0, (step - warmup_steps) / (max_steps - warmup_steps))
    return min_lr + 0.5 * (1 + np.cos(np.pi * ratio)) * (max_lr - min_lr)


Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    """Of the DQN tutorial."""

    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class PrioritizedReplay:
    """Proportional priorities."""

    def __init__(self, capacity, alpha=0.6, beta=0.4):
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.data, self.priorities, self.pos = [], np.zeros(capacity), 0

    def add(self, transition, priority=None):
        if len(self.data) < self.capacity:
            self.data.append(transition)
        else:
            self.data[self.pos] = transition
        self.priorities[self.pos] = priority or max(self.priorities.max(), 1.0)
        self.pos = (self.pos + 1) % self.capacity

    def sample(self, batch_size):
        p = self.priorities[: len(self.data)] ** self.alpha
        p /= p.sum()
        indices = np.random.choice(len(self.data), batch_size, p=p)
        weights = (len(self.data) * p[indices]) ** -self.beta
        return [self.data[i] for i in indices], indices, weights / weights.max()

    def update_priorities(self, indices, priorities):
        self.priorities[indices] = priorities


class NStepBuffer:
    """Folds n steps into one."""

    def __init__(self, n, gamma):
        self.n, self.gamma, self.steps = n, gamma, deque(maxlen=n)

    def append(self, obs, action, reward, next_obs, done):
        self.steps.append((obs, action, reward, next_obs, done))
        if len(self.steps) < self.n:
            return None
        reward, next_obs, done = self.steps[-1][2:]
        for _, _, r, o, d in list(self.steps)[-2::-1]:
            reward = r + self.gamma * reward * (1 - d)
            next_obs, done = (o, d) if d else (next_obs, done)
        return (*self.steps[0][:2], reward, next_obs, done)


class Agent(nn.Module):
    """CleanRL's kind of agent."""

    def __init__(self, obs_dim=4, n_actions=2):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, n_actions))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


class SquashedActor(nn.Module):
    """SAC's actor."""

    def __init__(self, obs_dim: int = 3, act_dim: int = 1):
        super().__init__()
        self.net, self.mu, self.log_std = nn.Linear(obs_dim, 32), nn.Linear(32, act_dim), nn.Linear(32, act_dim)

    def forward(self, obs):
        h = torch.relu(self.net(obs))
        return self.mu(h), self.log_std(h).clamp(-5, 2)

    def get_action(self, obs):
        mean, log_std = self(obs)
        u = Normal(mean, log_std.exp()).rsample()
        logp = Normal(mean, log_std.exp()).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2 + 1e-6)
        return torch.tanh(u), logp.sum(-1, keepdim=True), torch.tanh(mean)


class CategoricalMasked(Categorical):
    """Invalid actions have no chance."""

    def __init__(self, logits, masks):
        self.masks = masks
        super().__init__(logits=torch.where(masks, logits, torch.tensor(-1e8)))

    def entropy(self):
        p_log_p = torch.where(self.masks, self.logits * self.probs, torch.tensor(0.0))
        return -p_log_p.sum(-1)


class TanhNormal(torch.distributions.TransformedDistribution):
    """A squashed Gaussian."""

    def __init__(self, loc, scale):
        super().__init__(Normal(loc, scale), torch.distributions.TanhTransform(cache_size=1))


class GaussianHead:
    """Mean and deviation with what PPO asks of them."""

    def __init__(self, mean, std):
        self.dist = Normal(mean, std)

    def sample(self):
        return self.dist.sample()

    def log_prob(self, action):
        return self.dist.log_prob(action).sum(-1)

    def entropy(self):
        return self.dist.entropy().sum(-1)


class Checkpointer:
    """Saves and loads model and optimiser."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def save(self, path, step):
        torch.save({"model": self.model.state_dict(), "opt": self.optimizer.state_dict(), "step": step}, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["opt"])
        return state["step"]
