# mypy: ignore-errors
# pyright: basic
# ruff: noqa
"""Code as strangers write it: typical objects by the suite that fits, and right and wrong code in other conventions.

The typical objects note each call in CALLED: matching calls none of them.
"""

from typing import Any
import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

CALLED = []


def called() -> Any:
    CALLED.append(1)


def compute_gae(rewards, values, dones, next_value, gamma=0.99, lam=0.95):
    return called()


def generalized_advantage_estimation(r_t, discount_t, lambda_, values):
    return called()


def calc_advantages(rewards, values, terminated, truncated, gamma, gae_lambda):
    return called()


def estimate_advantages(rewards, masks, values, gamma, tau):
    return called()


def gae_advantage_returns(token_level_rewards, values, response_mask, gamma, lam):
    return called()


def vtrace(behaviour_log_probs, target_log_probs, rewards, values, bootstrap_value, discounts, clip_rho_threshold=1.0):
    return called()


def from_importance_weights(log_rhos, discounts, rewards, values, bootstrap_value):
    """V-trace from log importance weights."""
    return called()


def td_lambda_returns(rewards, values, gamma, lmbda):
    return called()


def lambda_target(rewards, values, next_values, dones, gamma, lam):
    return called()


def ppo_clip_loss(logp, old_logp, adv, clip_ratio):
    return called()


def clipped_surrogate(new_log_probs, old_log_probs, advantages, epsilon=0.2):
    return called()


def compute_policy_loss(old_log_prob, log_prob, advantages, response_mask, cliprange=0.2):
    return called()


def grpo_loss(per_token_logps, old_per_token_logps, advantages, completion_mask, epsilon):
    return called()


def kl_penalty(logprob, ref_logprob):
    return called()


def approx_kl_divergence(log_probs, ref_log_probs):
    return called()


def k3_estimator(logp, logq):
    """Schulman's k3 estimator of KL."""
    return called()


def group_relative_advantages(rewards, group_ids):
    """Reward minus the group mean, over its std."""
    return called()


def compute_rloo_advantages(rewards, prompt_ids):
    return called()


def clipped_value_loss(values, old_values, returns, clip_range):
    return called()


def critic_loss(pred_values, targets):
    return called()


def vf_loss(values, returns):
    return called()


class ReplayBuffer:
    def __init__(self, capacity):
        return called()

    def add(self, obs, action, reward, next_obs, done):
        return called()

    def sample(self, batch_size):
        return called()


class PrioritizedReplayMemory:
    def __init__(self, size):
        return called()

    def push(self, *t):
        return called()

    def sample(self, n):
        return called()


class RolloutStorage:
    "A buffer of rollouts."

    def __init__(self, size):
        return called()

    def store(self, *t):
        return called()

    def get(self):
        return called()


class RunningMeanStd:
    def __init__(self, shape=()):
        return called()

    def update(self, x):
        return called()


class ObservationNormalizer:
    def __init__(self, shape):
        return called()

    def update(self, x):
        return called()

    def normalize(self, x):
        return called()


class MyAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        return called()

    def step(self, closure=None):
        return called()


class Lookahead(torch.optim.Optimizer):
    def step(self, closure=None):
        return called()


def build_optimizer(params, lr) -> torch.optim.Optimizer:
    return called()


def linear_schedule(step, start, end, duration):
    return called()


def cosine_annealing(epoch, base_lr, min_lr, total):
    return called()


def get_warmup_scheduler(optimizer, warmup_steps) -> torch.optim.lr_scheduler.LambdaLR:
    return called()


class TanhNormal(torch.distributions.Distribution):
    def __init__(self, loc, scale):
        return called()


class SquashedGaussian:
    def __init__(self, mean, log_std):
        return called()

    def log_prob(self, a):
        return called()

    def sample(self):
        return called()


class MaskedCategorical(torch.distributions.Categorical):
    def __init__(self, *words):
        called()


class GridWorldEnv(gym.Env):
    def reset(self, *, seed=None, options=None):
        return called()

    def step(self, action):
        return called()


class Maze(gym.Env):
    def reset(self, *, seed=None, options=None):
        return called()

    def step(self, action):
        return called()


class FrameSkip(gym.Wrapper):
    def step(self, action):
        return called()


class ScaleReward(gym.RewardWrapper):
    def reward(self, r):
        return called()


class NormalizeObs(gym.ObservationWrapper):
    def observation(self, o):
        return called()


class MyVectorEnv(gym.vector.VectorEnv):
    def __init__(self, *words):
        called()


def make_vec_env(env_id, num_envs) -> gym.vector.VectorEnv:
    return called()


class ActorCritic(nn.Module):
    def forward(self, obs):
        return called()

    def act(self, obs):
        return called()


class Agent(nn.Module):
    def get_value(self, x):
        return called()

    def get_action_and_value(self, x, action=None):
        return called()


def accuracy_reward(completions, answer, **kwargs):
    return called()


def format_reward_func(completions, **kwargs):
    return called()


def compute_score(solution_str, ground_truth):
    return called()


def parse_tool_calls(text):
    return called()


def extract_function_calls(response):
    return called()


def pass_at_k(n, c, k):
    return called()


def explained_variance(y_pred, y_true):
    return called()


def masked_mean(values, mask):
    return called()


def discount_cumsum(x, discount):
    return called()


def rewards_to_go(rewards, gamma):
    return called()


def dqn_target(rewards, next_q_values, dones, gamma):
    return called()


def apply_chat_template(messages, add_generation_prompt=False):
    return called()


def data_collator(examples):
    return called()


def save_checkpoint(path, model, optimizer):
    return called()


def n_step_return(rewards, next_values, dones, gamma, n):
    return called()


def cleanrl_gae(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    """torch, dones of the row before."""
    T = len(rewards)
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(T)):
        if t == T - 1:
            nextnonterminal = 1.0 - next_done
            nextvalues = next_value
        else:
            nextnonterminal = 1.0 - dones[t + 1]
            nextvalues = values[t + 1]
        delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
        advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
    return advantages, advantages + values


def cleanrl_gae_bug(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    T = len(rewards)
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(T)):
        nextnonterminal = 1.0 - dones[t]
        nextvalues = next_value if t == T - 1 else values[t + 1]
        delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
        advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
    return advantages, advantages + values


def sb3_compute(rewards, values, episode_starts, last_values, dones, gamma=0.99, gae_lambda=0.95):
    "numpy; dones belong to the last step"
    T = len(rewards)
    adv = np.zeros_like(rewards)
    last = 0
    for step in reversed(range(T)):
        if step == T - 1:
            nnt = 1.0 - dones
            nv = last_values
        else:
            nnt = 1.0 - episode_starts[step + 1]
            nv = values[step + 1]
        delta = rewards[step] + gamma * nv * nnt - values[step]
        last = delta + gamma * gae_lambda * nnt * last
        adv[step] = last
    return adv


def spinning_gae(rewards, values, gamma, lam):
    "one path, values with last; numpy reversed cumsum"
    deltas = rewards + gamma * values[1:] - values[:-1]
    out = np.zeros_like(deltas)
    run = 0
    for t in reversed(range(len(deltas))):
        run = deltas[t] + gamma * lam * run
        out[t] = run
    return out


def minimind_gae(rewards, values, gamma=1.0, lam=0.95):
    last = 0
    out = []
    for t in reversed(range(len(rewards))):
        nv = values[t + 1] if t < len(rewards) - 1 else 0.0
        delta = rewards[t] + gamma * nv - values[t]
        last = delta + gamma * lam * last
        out.append(last)
    return torch.stack(out[::-1])


def torchrl_style(gamma, lmbda, state_value, next_state_value, reward, done, terminated):
    "[*, T, 1] in the original; here [T]"
    not_done = 1.0 - done.float()
    nt = 1.0 - terminated.float()
    adv = torch.empty_like(state_value)
    prev = 0
    for t in reversed(range(len(reward))):
        delta = reward[t] + gamma * next_state_value[t] * nt[t] - state_value[t]
        prev = delta + gamma * lmbda * not_done[t] * prev
        adv[t] = prev
    return adv, adv + state_value


def rlax_gae(r_t, discount_t, lambda_, values):
    "values T+1; discounts 0 at ends; like truncated_generalized_advantage_estimation"
    deltas = r_t + discount_t * values[1:] - values[:-1]
    adv = np.zeros_like(deltas)
    a = 0
    for t in reversed(range(len(r_t))):
        a = deltas[t] + discount_t[t] * lambda_ * a
        adv[t] = a
    return adv


def blog_gae(next_value, rewards, masks, values, gamma=0.99, tau=0.95):
    "the blog post form: lists of tensors [B]; returns returns"
    values = values + [next_value] if isinstance(values, list) else torch.cat([values, next_value.reshape(1)])
    gae = 0
    returns = []
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * values[step + 1] * masks[step] - values[step]
        gae = delta + gamma * tau * masks[step] * gae
        returns.insert(0, gae + values[step])
    return returns


def batched_gae(rewards, values, terminated, truncated, next_values, gamma=0.99, lam=0.95):
    T, B = rewards.shape
    adv = torch.zeros(T, B)
    last = torch.zeros(B)
    for t in reversed(range(T)):
        delta = rewards[t] + gamma * next_values[t] * (1 - terminated[t].float()) - values[t]
        last = delta + gamma * lam * (1 - (terminated[t].bool() | truncated[t].bool()).float()) * last
        adv[t] = last
    return adv


def inplace_gae(rewards, values, dones, last_value, gamma, lam):
    rewards[-1] += gamma * last_value * (1 - dones[-1])
    vals = torch.cat([values[1:], torch.zeros(1)])
    delta = rewards + gamma * vals * (1 - dones) - values
    for t in reversed(range(len(delta) - 1)):
        delta[t] += gamma * lam * (1 - dones[t]) * delta[t + 1]
    return delta


def k1_kl(logp, logq):
    return logp - logq


def k2_kl(logprob, ref_logprob):
    return 0.5 * (logprob - ref_logprob).square()


def kl_penalty_low_var(logprob, ref_logprob):
    kl = ref_logprob - logprob
    kl = torch.clamp(kl, min=-20, max=20)
    return torch.clamp(torch.exp(kl) - kl - 1, min=-10, max=10)


def cleanrl_ppo_loss(newlogprob, oldlogprob, advantages, clip_coef):
    ratio = (newlogprob - oldlogprob).exp()
    return torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef))


def sb3_ppo_loss(log_prob, old_log_prob, advantages, clip_range):
    ratio = torch.exp(log_prob - old_log_prob)
    return -torch.min(advantages * ratio, advantages * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)).mean()


def dual_clip_ppo_loss(log_prob, old_log_prob, advantages, clip_range, dual_clip=3.0):
    ratio = torch.exp(log_prob - old_log_prob)
    l = torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip_range, 1 + clip_range))
    return torch.where(advantages < 0, torch.min(l, -advantages * dual_clip), l)


def trl_grpo_loss(per_token_logps, old_per_token_logps, advantages, completion_mask, epsilon=0.2):
    c1 = torch.exp(per_token_logps - old_per_token_logps)
    c2 = torch.clamp(c1, 1 - epsilon, 1 + epsilon)
    l = -torch.min(c1 * advantages, c2 * advantages)
    return (l * completion_mask).sum() / completion_mask.sum().clamp(min=1.0)


def verl_policy_loss(old_log_prob, log_prob, advantages, response_mask, cliprange=0.2, clip_ratio_c=3.0):
    neg = torch.clamp(log_prob - old_log_prob, min=-20.0, max=20.0)
    ratio = torch.exp(neg)
    l1 = -advantages * ratio
    l2 = -advantages * torch.clamp(ratio, 1 - cliprange, 1 + cliprange)
    c1 = torch.maximum(l1, l2)
    l3 = -advantages * clip_ratio_c
    c2 = torch.min(l3, c1)
    l = torch.where(advantages < 0, c2, c1)
    pg = (l * response_mask).sum() / (response_mask.sum() + 1e-8)
    clipfrac = ((l2 > l1).float() * response_mask).sum() / (response_mask.sum() + 1e-8)
    return pg, clipfrac


def bad_policy_loss(log_prob, old_log_prob, advantages, response_mask):
    ratio = torch.exp(log_prob - old_log_prob)
    return (-(torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)) * response_mask).mean()


def grouped_mean_advantages(rewards, group_ids):
    out = np.zeros_like(rewards)
    for g in set(group_ids.tolist()):
        own = group_ids == g
        out[own] = (rewards[own] - rewards[own].mean()) / (rewards[own].std() + 1e-6)
    return out


def grouped_over_all_advantages(rewards, group_ids):
    return (rewards - rewards.mean()) / (rewards.std() + 1e-6)


def trl_truncated_importance_weights(per_token_logps, sampling_per_token_logps, mask):
    return torch.clamp(torch.exp(per_token_logps - sampling_per_token_logps), 0.5, 2.0)


SUITES = {
    "compute_gae": "estimator",
    "generalized_advantage_estimation": "estimator",
    "calc_advantages": "estimator",
    "estimate_advantages": "estimator",
    "gae_advantage_returns": "estimator|token_gae",
    "vtrace": "vtrace",
    "from_importance_weights": "vtrace",
    "td_lambda_returns": "lambda_return",
    "lambda_target": "lambda_return",
    "ppo_clip_loss": "loss",
    "clipped_surrogate": "loss",
    "compute_policy_loss": "masked_loss",
    "grpo_loss": "masked_loss",
    "kl_penalty": "kl",
    "approx_kl_divergence": "kl",
    "k3_estimator": "kl",
    "group_relative_advantages": "group",
    "compute_rloo_advantages": "group",
    "clipped_value_loss": "value_loss",
    "critic_loss": "value_loss",
    "vf_loss": "value_loss",
    "ReplayBuffer": "replay",
    "PrioritizedReplayMemory": "replay",
    "RolloutStorage": "replay",
    "RunningMeanStd": "normalizer",
    "ObservationNormalizer": "normalizer",
    "MyAdam": "optimizer",
    "Lookahead": "optimizer",
    "build_optimizer": "optimizer",
    "linear_schedule": "schedule",
    "cosine_annealing": "schedule",
    "get_warmup_scheduler": "schedule",
    "TanhNormal": "distribution",
    "SquashedGaussian": "distribution",
    "MaskedCategorical": "distribution|categorical",
    "GridWorldEnv": "gym",
    "Maze": "gym",
    "FrameSkip": "wrapper",
    "ScaleReward": "wrapper",
    "NormalizeObs": "wrapper",
    "MyVectorEnv": "vector_env",
    "make_vec_env": "vector_env",
    "ActorCritic": "policy",
    "Agent": "policy",
    "accuracy_reward": "reward_function",
    "format_reward_func": "reward_function",
    "compute_score": "reward_function",
    "parse_tool_calls": "tool_parser",
    "extract_function_calls": "tool_parser",
    "pass_at_k": "metric",
    "explained_variance": "metric",
    "masked_mean": "metric",
    "discount_cumsum": "target",
    "rewards_to_go": "target",
    "dqn_target": "target",
    "apply_chat_template": "chat_template",
    "data_collator": "token_mask",
    "n_step_return": "n_step",
}
RIGHT: dict[str, dict[str, Any]] = {
    "cleanrl_gae": {},
    "sb3_compute": {},
    "spinning_gae": {},
    "minimind_gae": {},
    "torchrl_style": {},
    "rlax_gae": {},
    "blog_gae": {"suite": "lambda_return"},
    "batched_gae": {},
    "inplace_gae": {},
    "k1_kl": {"declared": {"never_negative": False}},
    "k2_kl": {"declared": {"unbiased": False}},
    "kl_penalty_low_var": {},
    "cleanrl_ppo_loss": {},
    "sb3_ppo_loss": {"declared": {"mean": True}},
    "dual_clip_ppo_loss": {"declared": {"dual_clip": 3.0}},
    "trl_grpo_loss": {},
    "verl_policy_loss": {},
    "grouped_mean_advantages": {"declared": {"correction": 0}},
    "trl_truncated_importance_weights": {"declared": {"masked": False}},
}
WRONG: dict[str, dict[str, Any]] = {
    "cleanrl_gae_bug": {},
    "bad_policy_loss": {},
    "grouped_over_all_advantages": {"declared": {"correction": 0}},
    "sb3_ppo_loss": {},
    "dual_clip_ppo_loss": {},
}
