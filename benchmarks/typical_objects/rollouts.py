"""Numbers of rollouts as users compute them: some with annotations, most without."""

import numpy as np
import torch
from torch import Tensor


def compute_gae(rewards, values, next_value, dones, gamma=0.99, gae_lambda=0.95):
    advantages = torch.zeros_like(rewards)
    last = 0
    for t in reversed(range(len(rewards))):
        following = next_value if t == len(rewards) - 1 else values[t + 1]
        mask = 1.0 - dones[t].float()
        delta = rewards[t] + gamma * following * mask - values[t]
        advantages[t] = last = delta + gamma * gae_lambda * mask * last
    return advantages


def generalized_advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float, lmbda: float
) -> Tensor:
    """Advantages [T, B]."""
    ended, carry, found = terminated | truncated, torch.zeros_like(value[0]), []
    for t in reversed(range(reward.shape[0])):
        delta = reward[t] + gamma * next_value[t] * ~terminated[t] - value[t]
        carry = delta + gamma * lmbda * carry * ~ended[t]
        found.append(carry)
    return torch.stack(found[::-1])


def vtrace_returns(behaviour_logp, target_logp, rewards, values, bootstrap_value, discounts, clip_rho=1.0, clip_c=1.0):
    rhos = torch.exp(target_logp - behaviour_logp)
    following = torch.cat([values[1:], bootstrap_value[None]])
    deltas = rhos.clamp(max=clip_rho) * (rewards + discounts * following - values)
    acc, vs = torch.zeros_like(bootstrap_value), []
    for t in reversed(range(len(rewards))):
        acc = deltas[t] + discounts[t] * rhos[t].clamp(max=clip_c) * acc
        vs.append(values[t] + acc)
    return torch.stack(vs[::-1])


def discount_cumsum(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """Rewards to go."""
    out, running = np.zeros_like(rewards, dtype=float), 0.0
    for i in reversed(range(len(rewards))):
        running = rewards[i] + gamma * running
        out[i] = running
    return out


def lambda_return(reward, value, discount, bootstrap, lambda_):
    following = torch.cat([value[1:], bootstrap[None]], 0)
    inputs = reward + discount * following * (1 - lambda_)
    last, outs = bootstrap, []
    for t in reversed(range(len(reward))):
        last = inputs[t] + discount[t] * lambda_ * last
        outs.append(last)
    return torch.stack(outs[::-1])


def n_step_return(rewards: list[float], bootstrap: float, gamma: float, n: int) -> float:
    """The first n rewards and the value after them."""
    return sum(gamma**i * r for i, r in enumerate(rewards[:n])) + gamma**n * bootstrap


def double_dqn_target(q_online_next, q_target_next, reward, done, gamma=0.99):
    best = q_online_next.argmax(-1, keepdim=True)
    return reward + gamma * (1 - done.float()) * q_target_next.gather(-1, best).squeeze(-1)


def ppo_policy_loss(logprob, old_logprob, advantage, clip_coef=0.2):
    ratio = (logprob - old_logprob).exp()
    return torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()


def value_loss(newvalue: Tensor, old_value: Tensor, returns: Tensor, clip_coef: float = 0.2) -> Tensor:
    """Clipped."""
    clipped = old_value + (newvalue - old_value).clamp(-clip_coef, clip_coef)
    return 0.5 * torch.max((newvalue - returns) ** 2, (clipped - returns) ** 2).mean()


def td_error_loss(q_values, td_targets):
    return torch.nn.functional.smooth_l1_loss(q_values, td_targets)


def kl_penalty_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Of each token."""
    diff = ref_logp - logp
    return diff.exp() - 1 - diff


def gaussian_kl(mu_p, log_std_p, mu_q, log_std_q):
    var_p, var_q = (2 * log_std_p).exp(), (2 * log_std_q).exp()
    return (log_std_q - log_std_p + (var_p + (mu_p - mu_q) ** 2) / (2 * var_q) - 0.5).sum(-1)


def explained_variance(y_pred, y_true):
    var_y = np.var(y_true)
    return np.nan if var_y == 0 else 1 - np.var(y_true - y_pred) / var_y


def importance_weights(logp: Tensor, behavior_logp: Tensor, mask: Tensor, cap: float = 2.0) -> Tensor:
    """Truncated, for each token."""
    return ((logp - behavior_logp) * mask).exp().clamp(max=cap) * mask


class RewardScaler:
    """Divides rewards by the deviation of returns."""

    def __init__(self, gamma=0.99):
        self.gamma, self.ret, self.n, self.mean, self.s = gamma, 0.0, 0, 0.0, 0.0

    def __call__(self, reward, done):
        self.ret = self.gamma * self.ret + reward
        self.n += 1
        delta = self.ret - self.mean
        self.mean += delta / self.n
        self.s += delta * (self.ret - self.mean)
        self.ret = 0.0 if done else self.ret
        return reward / (np.sqrt(self.s / max(self.n, 1)) + 1e-8)


class RunningNorm:
    """Running mean and variance of batches."""

    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 0

    def update(self, x):
        mean, var, n = x.mean(0), x.var(0), len(x)
        delta, total = mean - self.mean, self.count + n
        self.var = (self.var * self.count + var * n + delta**2 * self.count * n / total) / total
        self.mean, self.count = self.mean + delta * n / total, total

    def normalize(self, x):
        return (x - self.mean) / np.sqrt(self.var + 1e-8)
