"""Advantages of streams: GAE and V-trace."""

import torch
from torch import Tensor

from .bug import Bug


def gae_window(
    rewards: Tensor, values: Tensor, dones: Tensor, last_value: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """Generalised advantages of a window [T]; `last_value` is the value of what follows the window."""
    advantages = torch.zeros_like(rewards)
    carry, following = last_value, last_value
    for t in reversed(range(len(rewards))):
        alive = 1 - dones[t].float()
        delta = rewards[t] + gamma * following * alive - values[t]
        carry = delta + gamma * lam * alive * carry
        advantages[t], following = carry, values[t]
    return advantages


def gae_window_fixed(
    rewards: Tensor, values: Tensor, dones: Tensor, last_value: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """Nothing is carried into the last step."""
    advantages = torch.zeros_like(rewards)
    carry, following = torch.zeros_like(last_value), last_value
    for t in reversed(range(len(rewards))):
        alive = 1 - dones[t].float()
        delta = rewards[t] + gamma * following * alive - values[t]
        carry = delta + gamma * lam * alive * carry
        advantages[t], following = carry, values[t]
    return advantages


def compute_gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """Generalised advantages [T]; `next_values` are those of the states that steps led to, before any reset."""
    done = (terminated | truncated).float()
    advantages, carry = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * next_values[t] * (1 - done[t]) - values[t]
        carry = delta + gamma * lam * (1 - done[t]) * carry
        advantages[t] = carry
    return advantages


def compute_gae_fixed(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """A truncation cuts the sum, a termination the value as well."""
    ended = (terminated | truncated).float()
    advantages, carry = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * next_values[t] * (1 - terminated[t].float()) - values[t]
        carry = delta + gamma * lam * (1 - ended[t]) * carry
        advantages[t] = carry
    return advantages


def gae_shifted(
    rewards: Tensor, values: Tensor, dones: Tensor, next_value: Tensor, gamma: float = 0.99, gae_lambda: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Advantages and returns [T]."""
    following = torch.cat([values[1:], next_value.reshape(1)])
    alive = 1 - dones.float()
    later = torch.cat([alive[1:], torch.ones(1)])
    advantages, carry = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        carry = rewards[t] + gamma * following[t] * alive[t] - values[t] + gamma * gae_lambda * later[t] * carry
        advantages[t] = carry
    return advantages, advantages + values


def gae_shifted_fixed(
    rewards: Tensor, values: Tensor, dones: Tensor, next_value: Tensor, gamma: float = 0.99, gae_lambda: float = 0.95
) -> tuple[Tensor, Tensor]:
    """The end of this step cuts what follows it."""
    following = torch.cat([values[1:], next_value.reshape(1)])
    alive = 1 - dones.float()
    advantages, carry = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        carry = rewards[t] + alive[t] * (gamma * following[t] + gamma * gae_lambda * carry) - values[t]
        advantages[t] = carry
    return advantages, advantages + values


def gae_timeouts(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """Advantages [B, T]: a time limit adds the value to its reward, then any end cuts."""
    rewards = rewards + gamma * values * truncated.float()
    done = (terminated | truncated).float()
    advantages, carry = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        alive = 1 - done[:, t]
        carry = rewards[:, t] + gamma * next_values[:, t] * alive - values[:, t] + gamma * lam * alive * carry
        advantages[:, t] = carry
    return advantages


def gae_timeouts_fixed(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """The value of where the step led to, unless it ended there."""
    truncated = truncated & ~terminated
    return gae_timeouts(
        rewards + gamma * (next_values - values) * truncated.float(),
        values,
        next_values,
        terminated,
        truncated,
        gamma,
        lam,
    )


def vtrace_advantage(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float = 0.99,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """IMPALA's advantages and targets [T]; `next_values` belong to the states that steps led to."""
    targets = vtrace_targets(log_rhos, rewards, values, next_values, terminated, done, gamma, rho_clip, c_clip)
    following = torch.cat([targets[1:], next_values[-1:]])
    rho = log_rhos.exp().clamp(max=rho_clip)
    return rho * (rewards + gamma * (1 - terminated.float()) * following - values), targets


def vtrace_advantage_fixed(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float = 0.99,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """What follows an end within the batch is the value of where it ended."""
    targets = vtrace_targets(log_rhos, rewards, values, next_values, terminated, done, gamma, rho_clip, c_clip)
    following = torch.where(done, next_values, torch.cat([targets[1:], next_values[-1:]]))
    rho = log_rhos.exp().clamp(max=rho_clip)
    return rho * (rewards + gamma * (1 - terminated.float()) * following - values), targets


def vtrace_targets(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float = 0.99,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """V-trace targets [T]."""
    rho, c = log_rhos.exp().clamp(max=rho_clip), log_rhos.exp().clamp(max=c_clip)
    delta = rho * (rewards + gamma * (1 - terminated.float()) * next_values - values)
    found, carry = torch.zeros_like(values), torch.zeros(())
    for t in reversed(range(len(values))):
        carry = delta[t] + gamma * (1 - done[t].float()) * c[t] * carry
        found[t] = carry
    return values + found


def vtrace_chunk(
    ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    done: Tensor,
    bootstrap: Tensor,
    gamma: float = 0.99,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """V-trace targets of a chunk [T]; `bootstrap` is the value after it."""
    del bootstrap
    following = torch.cat([value[1:], value[-1:]])
    return chunk_targets(ratio, reward, value, done, following, gamma, rho_clip, c_clip)


def vtrace_chunk_fixed(
    ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    done: Tensor,
    bootstrap: Tensor,
    gamma: float = 0.99,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """The last row's next value is the bootstrap."""
    following = torch.cat([value[1:], bootstrap.reshape(1)])
    return chunk_targets(ratio, reward, value, done, following, gamma, rho_clip, c_clip)


def chunk_targets(
    ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    done: Tensor,
    following: Tensor,
    gamma: float,
    rho_clip: float,
    c_clip: float,
) -> Tensor:
    """The recursion of both."""
    rho, c, discount = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip), gamma * (1 - done.float())
    delta = rho * (reward + discount * following - value)
    found, carry = torch.zeros_like(value), torch.zeros(())
    for t in reversed(range(len(value))):
        carry = delta[t] + discount[t] * c[t] * carry
        found[t] = carry
    return value + found


R, V, N = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.5, 2.5]), torch.tensor([4.0, 5.0, 6.0])
NO, MIDDLE = torch.tensor([False, False, False]), torch.tensor([False, True, False])

BUGS = [
    Bug(
        "bootstrap_counted_twice",
        "https://github.com/simonsays1980/rl-triton/pull/4",
        "gae",
        "The carry of the backward scan starts at the value after the window, which is in the last error already.",
        gae_window,
        gae_window_fixed,
        lambda f: f(R, V, NO, torch.tensor(7.0)),
    ),
    Bug(
        "truncation_masks_value",
        "https://github.com/jsboige/CoursIA/pull/7825",
        "gae",
        "A truncation masks the next value as if the episode had ended there.",
        compute_gae,
        compute_gae_fixed,
        lambda f: f(R, V, N, NO, MIDDLE),
    ),
    Bug(
        "end_of_the_next_step",
        "https://github.com/AechPro/rlgym-ppo/pull/23",
        "gae",
        "The sum is cut by the end of the next step instead of that of the step.",
        gae_shifted,
        gae_shifted_fixed,
        lambda f: f(R, V, MIDDLE, torch.tensor(7.0)),
    ),
    Bug(
        "timeout_of_state_before",
        "https://github.com/DexForce/EmbodiChain/pull/612",
        "gae",
        "A time limit adds the value of the state before the action, not of the one after it.",
        gae_timeouts,
        gae_timeouts_fixed,
        lambda f: f(R[None], V[None], N[None], NO[None], MIDDLE[None]),
    ),
    Bug(
        "target_of_next_trajectory",
        "https://github.com/pytorch/rl/issues/4209",
        "vtrace",
        "V-trace's advantage at a truncation takes the target of the next trajectory's first step.",
        vtrace_advantage,
        vtrace_advantage_fixed,
        lambda f: f(torch.zeros(3), R, V, N, NO, MIDDLE)[0],
    ),
    Bug(
        "last_row_bootstraps_from_itself",
        "https://github.com/micdoh/XLRON/pull/50",
        "vtrace",
        "The last row of a chunk bootstraps from its own value.",
        vtrace_chunk,
        vtrace_chunk_fixed,
        lambda f: f(torch.ones(3), R, V, NO, torch.tensor(7.0)),
    ),
]
