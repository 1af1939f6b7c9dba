"""Advantages, returns and targets, as scripts of reinforcement learning write them."""

import numpy as np
import torch


def compute_gae(rewards, values, next_values, terminated, truncated, gamma=0.99, gae_lambda=0.95):
    """Generalized advantages, one column at a time backwards."""
    carried = torch.zeros_like(rewards[0])
    result = torch.zeros_like(rewards)
    for step in range(len(rewards) - 1, -1, -1):
        alive = 1.0 - terminated[step].to(rewards.dtype)
        inside = 1.0 - torch.logical_or(terminated[step].bool(), truncated[step].bool()).to(rewards.dtype)
        error = rewards[step] + gamma * next_values[step] * alive - values[step]
        carried = error + gamma * gae_lambda * inside * carried
        result[step] = carried
    return result


def gae_from_rollout(rewards, values, dones, last_value, gamma=0.99, lam=0.95):
    """Returns advantages and value targets of a rollout, [T] each."""
    horizon = len(rewards)
    advantages = np.zeros(horizon, dtype=np.float64)
    running = 0.0
    for t in range(horizon)[::-1]:
        following = last_value if t == horizon - 1 else values[t + 1]
        keep = 1.0 - float(dones[t])
        running = float(rewards[t]) + gamma * float(following) * keep - float(values[t]) + gamma * lam * keep * running
        advantages[t] = running
    return advantages, advantages + np.asarray(values, dtype=np.float64)


def estimate_advantages(*, reward_buf, value_buf, masks, bootstrap_value, discount_factor=0.99, lmbda=0.95):
    """Keyword-only; masks are 0 where an episode ended."""
    out, acc = [], 0.0
    upcoming = bootstrap_value
    for r, v, m in zip(reversed(reward_buf), reversed(value_buf), reversed(masks), strict=True):
        acc = r + discount_factor * upcoming * m - v + discount_factor * lmbda * m * acc
        out.append(acc)
        upcoming = v
    return torch.stack(out[::-1]) if torch.is_tensor(out[0]) else out[::-1]


def gae_batch_first(gamma, lam, reward, value, done):
    """Rows are environments, columns time: reward [B, T], value [B, T + 1], done [B, T]."""
    steps = reward.shape[1]
    delta = reward + gamma * (1 - done) * value[:, 1:] - value[:, :-1]
    adv = torch.zeros_like(reward)
    last = torch.zeros_like(reward[:, 0])
    for t in range(steps - 1, -1, -1):
        last = delta[:, t] + gamma * lam * (1 - done[:, t]) * last
        adv[:, t] = last
    return adv


def discounted_gae(deltas, discounts, lambda_):
    """Sums of temporal-difference errors weighted by products of discounts and lambda."""
    total, out = torch.zeros_like(deltas[0]), []
    for d, g in zip(torch.flip(deltas, (0,)), torch.flip(discounts, (0,)), strict=True):
        total = d + lambda_ * g * total
        out.append(total)
    return torch.stack(out[::-1])


def finish_path(rews, vals, last_val=0.0, gamma=0.99, lam=0.97):
    """Advantage and reward-to-go of one trajectory that was cut off; last_val is the value after it."""
    rews, vals = np.append(rews, last_val), np.append(vals, last_val)
    deltas = rews[:-1] + gamma * vals[1:] - vals[:-1]

    def accumulate(x, factor):
        out = np.zeros(len(x))
        total = 0.0
        for i in range(len(x) - 1, -1, -1):
            total = x[i] + factor * total
            out[i] = total
        return out

    return accumulate(deltas, gamma * lam), accumulate(rews, gamma)[:-1]


class GAE:
    """An estimator with its numbers; called with a rollout."""

    def __init__(self, gamma=0.99, gae_lambda=0.95):
        self.gamma, self.gae_lambda = gamma, gae_lambda

    def __call__(self, rewards, values, dones, last_values):
        """Advantages [T]."""
        adv, prev = torch.zeros_like(rewards), 0.0
        for t in reversed(range(rewards.shape[0])):
            next_v = last_values if t + 1 == rewards.shape[0] else values[t + 1]
            live = 1 - dones[t]
            prev = rewards[t] + self.gamma * next_v * live - values[t] + self.gamma * self.gae_lambda * live * prev
            adv[t] = prev
        return adv


def gae_scan(rewards, values, ended, bootstrap, decay=0.99, trace=0.95):
    """The numbers have names of their own."""
    future = torch.cat([values[1:], bootstrap.reshape(1)])
    alive = 1 - ended
    errors = rewards + decay * alive * future - values
    total, out = torch.zeros(()), []
    for i in range(len(errors) - 1, -1, -1):
        total = errors[i] + decay * trace * alive[i] * total
        out.insert(0, total)
    return torch.stack(out)


def discounted_returns(rewards, gamma=0.99):
    """Rewards to go of one episode, as a list."""
    out, g = [], 0.0
    for r in rewards[::-1]:
        g = float(r) + gamma * g
        out.append(g)
    return out[::-1]


def rewards_to_go(rewards, dones, gamma: float = 0.99):
    """Over several episodes, restarted at each done."""
    ret = torch.zeros_like(rewards)
    acc = torch.zeros(())
    for t in range(rewards.size(0) - 1, -1, -1):
        acc = rewards[t] + gamma * acc * (1 - dones[t].float())
        ret[t] = acc
    return ret


def td_lambda_returns(rewards, next_values, dones, gamma=0.99, lambda_=0.9):
    """Lambda-returns; next_values belong to the observation after each step."""
    out, g = torch.zeros_like(rewards), next_values[-1]
    for t in reversed(range(len(rewards))):
        keep = 1.0 - dones[t]
        g = rewards[t] + gamma * keep * ((1 - lambda_) * next_values[t] + lambda_ * g)
        out[t] = g
    return out


def lambda_target(reward, value, pcont, bootstrap, lambda_):
    """Dreamer's form: a continuation factor holds the discount."""
    nxt = torch.cat([value[1:], bootstrap[None]], 0)
    inputs = reward + pcont * nxt * (1 - lambda_)
    outputs, last = [], bootstrap
    for i in range(len(reward) - 1, -1, -1):
        last = inputs[i] + pcont[i] * lambda_ * last
        outputs.append(last)
    return torch.stack(outputs[::-1])


def n_step_returns(rewards, next_values, dones, gamma=0.99, n_steps=3):
    """r_t + ... + gamma^n v; shorter where an episode or the data ends."""
    total = len(rewards)
    targets = torch.zeros_like(rewards)
    for t in range(total):
        acc, factor = torch.zeros(()), 1.0
        for k in range(t, min(t + n_steps, total)):
            acc = acc + factor * rewards[k]
            factor = factor * gamma
            if bool(dones[k]) or k == min(t + n_steps, total) - 1:
                acc = acc + (0.0 if bool(dones[k]) else factor * next_values[k])
                break
        targets[t] = acc
    return targets


def td_target(reward, done, next_v, gamma=0.98):
    """One-step targets."""
    return reward + gamma * next_v * (1.0 - done)


def dqn_target(rewards, next_q_values, dones, gamma=0.99):
    """Targets from the greedy value of the target network, next_q_values [B, A]."""
    best = next_q_values.max(dim=1).values
    return rewards + (1 - dones.float()) * gamma * best


def double_q_target(next_q_online, next_q_target, reward, terminal, discount=0.99):
    """The online network chooses, the target network values."""
    chosen = torch.argmax(next_q_online, dim=-1, keepdim=True)
    value = torch.gather(next_q_target, -1, chosen)[..., 0]
    return reward + discount * (1.0 - terminal.to(reward.dtype)) * value


def clipped_double_q_target(q1_next, q2_next, rewards, terminations, gamma=0.99):
    """The smaller of two critics."""
    lower = torch.minimum(q1_next, q2_next)
    return rewards + gamma * (1 - terminations.float()) * lower


def sac_target(q1, q2, logp_next, rewards, dones, alpha=0.2, gamma=0.99):
    """The smaller critic less the entropy term."""
    soft = torch.min(q1, q2) - alpha * logp_next
    return rewards + gamma * (1.0 - dones) * soft


def vtrace_from_ratios(log_rhos, discounts, rewards, values, bootstrap_value, clip_rho_threshold=1.0):
    """Targets of V-trace and policy-gradient advantages."""
    rhos = torch.exp(log_rhos)
    clipped = torch.clamp(rhos, max=clip_rho_threshold)
    cs = torch.clamp(rhos, max=1.0)
    after = torch.cat([values[1:], bootstrap_value.reshape(1)])
    deltas = clipped * (rewards + discounts * after - values)
    acc, diffs = torch.zeros_like(bootstrap_value), []
    for t in range(len(deltas) - 1, -1, -1):
        acc = deltas[t] + discounts[t] * cs[t] * acc
        diffs.append(acc)
    vs = torch.stack(diffs[::-1]) + values
    vs_after = torch.cat([vs[1:], bootstrap_value.reshape(1)])
    return vs, clipped * (rewards + discounts * vs_after - values)


def vtrace_targets(
    behaviour_logp, target_logp, rewards, values, next_values, terminated, truncated, gamma=0.99, lam=1.0
):
    """By log-probs of both policies; clipped at 1."""
    ratio = torch.exp(target_logp - behaviour_logp)
    rho, c = ratio.clamp(max=1.0), lam * ratio.clamp(max=1.0)
    alive = (~terminated.bool()).to(rewards.dtype)
    inside = (~(terminated.bool() | truncated.bool())).to(rewards.dtype)
    delta = rho * (rewards + gamma * alive * next_values - values)
    acc, out = torch.zeros(()), []
    for t in range(len(rewards) - 1, -1, -1):
        acc = delta[t] + gamma * inside[t] * c[t] * acc
        out.append(acc)
    return values + torch.stack(out[::-1])


def retrace(q_values, target_values, rewards, dones, ratios, gamma=0.99, lam=1.0):
    """Retrace targets for Q: traces are cut at min(1, ratio)."""
    c = lam * torch.clamp(ratios, max=1.0)
    alive = 1.0 - dones
    out, carry = [], torch.zeros(())
    for t in range(len(rewards) - 1, -1, -1):
        trace = c[t + 1] if t + 1 < len(rewards) else torch.zeros(())
        error = rewards[t] + gamma * alive[t] * target_values[t] - q_values[t]
        carry = error + gamma * alive[t] * trace * carry
        out.append(q_values[t] + carry)
    return torch.stack(out[::-1])


def whiten_advantages(advantages, mask, shift_mean=True):
    """Advantages with mean 0 and deviation 1 over the tokens that count."""
    count = mask.sum()
    mean = (advantages * mask).sum() / count
    var = (((advantages - mean) ** 2) * mask).sum() / (count - 1)
    out = (advantages - mean) * torch.rsqrt(var + 1e-8)
    return out if shift_mean else out + mean
