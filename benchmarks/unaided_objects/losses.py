"""Losses and estimators of divergences."""

import numpy as np
import torch
import torch.nn.functional as F


def ppo_policy_loss(logratio, advantages, clip_coef=0.2):
    """CleanRL's two terms, from the log of the ratio; a mean."""
    ratio = logratio.exp()
    return torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)).mean()


def clipped_surrogate(new_log_probs, old_log_probs, advantages, clip_range=0.2):
    """The objective to maximise, of each step."""
    ratio = torch.exp(new_log_probs - old_log_probs)
    return torch.min(ratio * advantages, torch.clamp(ratio, 1.0 - clip_range, 1.0 + clip_range) * advantages)


def ppo_loss(advantage, log_prob, old_log_prob, *, eps_clip=0.2):
    """The loss of each step, advantage first."""
    ratio = (log_prob - old_log_prob.detach()).exp()
    bounded = ratio.clip(1 - eps_clip, 1 + eps_clip)
    return -torch.minimum(ratio * advantage, bounded * advantage)


def policy_loss_asymmetric(logp, old_logp, advantage, eps_low=0.2, eps_high=0.28):
    """Bounds of its own above and below; one number."""
    ratio = torch.exp(logp - old_logp)
    clipped = torch.clamp(ratio, 1 - eps_low, 1 + eps_high)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


def dual_clip_policy_loss(log_prob, old_log_prob, advantages, clip_ratio=0.2, clip_ratio_c=3.0):
    """With a bound for bad actions."""
    ratio = torch.exp(log_prob - old_log_prob)
    first = -advantages * ratio
    second = -advantages * torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    worse = torch.max(first, second)
    return torch.where(advantages < 0, torch.min(worse, -advantages * clip_ratio_c), worse).mean()


class ClipLoss(torch.nn.Module):
    """A module whose constructor has the clip."""

    def __init__(self, clip_eps=0.2):
        super().__init__()
        self.clip_eps = clip_eps

    def forward(self, log_probs, old_log_probs, advantages):
        """The mean loss."""
        r = torch.exp(log_probs - old_log_probs)
        return -torch.min(r * advantages, r.clamp(1 - self.clip_eps, 1 + self.clip_eps) * advantages).mean()


def grpo_loss(per_token_logps, old_per_token_logps, advantages, completion_mask, epsilon=0.2):
    """One advantage for each completion [B], token log-probs [B, L]; the mean over completions of means over tokens."""
    ratio = torch.exp(per_token_logps - old_per_token_logps)
    adv = advantages.unsqueeze(1)
    per_token = -torch.min(ratio * adv, torch.clamp(ratio, 1 - epsilon, 1 + epsilon) * adv)
    mask = completion_mask.to(per_token.dtype)
    return ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def dapo_loss(log_probs, old_log_probs, advantages, response_mask, clip_low=0.2, clip_high=0.28):
    """Averaged over all tokens of the batch."""
    ratio = (log_probs - old_log_probs).exp()
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high))
    mask = response_mask.to(loss.dtype)
    return (loss * mask).sum() / mask.sum().clamp(min=1)


def gspo_loss(logps, old_logps, advantages, mask, eps=3e-4):
    """A ratio for each sequence."""
    m = mask.to(logps.dtype)
    seq = torch.exp(((logps - old_logps) * m).sum(-1) / m.sum(-1).clamp(min=1))
    loss = -torch.min(seq * advantages, seq.clamp(1 - eps, 1 + eps) * advantages)
    return loss.mean()


def reinforce_loss(log_probs, returns):
    """Of a batch."""
    return -(log_probs * returns.detach()).mean()


def a2c_policy_loss(logp, advantage, entropy, ent_coef=0.01):
    """With the bonus."""
    return -(logp * advantage).mean() - ent_coef * entropy.mean()


def dpo_loss(policy_chosen_logps, policy_rejected_logps, reference_chosen_logps, reference_rejected_logps, beta=0.1):
    """Of each pair."""
    margin = (policy_chosen_logps - reference_chosen_logps) - (policy_rejected_logps - reference_rejected_logps)
    return -F.logsigmoid(beta * margin)


def value_loss(values, returns):
    """Half the squared error, averaged."""
    return 0.5 * ((returns - values) ** 2).mean()


def clipped_value_loss(new_values, old_values, returns, clip_range_vf=0.2):
    """PPO2's."""
    near = old_values + torch.clamp(new_values - old_values, -clip_range_vf, clip_range_vf)
    return 0.5 * torch.max((new_values - returns) ** 2, (near - returns) ** 2).mean()


def value_function_loss(vpreds, value_targets, old_vpreds, cliprange_value=0.5):
    """Each step's, without the half."""
    clipped = torch.minimum(torch.maximum(vpreds, old_vpreds - cliprange_value), old_vpreds + cliprange_value)
    return torch.max(torch.square(vpreds - value_targets), torch.square(clipped - value_targets))


def critic_mse(v_pred, v_target, coef=0.5):
    """With a coefficient."""
    return coef * F.mse_loss(v_pred, v_target)


def huber_td_loss(q_values, target_values, delta=1.0):
    """Of temporal-difference errors."""
    error = (q_values - target_values).abs()
    return torch.where(error <= delta, 0.5 * error**2, delta * (error - 0.5 * delta)).mean()


def quantile_huber_loss(quantiles, target_quantiles, kappa=1.0):
    """quantiles [B, N], targets [B, M]; midpoints for levels."""
    count = quantiles.shape[1]
    levels = (torch.arange(count, dtype=quantiles.dtype) + 0.5) / count
    error = target_quantiles.unsqueeze(1) - quantiles.unsqueeze(2)
    huber = torch.where(error.abs() <= kappa, 0.5 * error.pow(2), kappa * (error.abs() - 0.5 * kappa))
    weight = (levels.view(1, -1, 1) - (error.detach() < 0).to(error.dtype)).abs()
    return (weight * huber / kappa).sum(1).mean()


def kl_k1(logp, ref_logp):
    """The plain difference."""
    return logp - ref_logp


def kl_k2_penalty(logprobs, ref_logprobs):
    """Half the square."""
    return 0.5 * (logprobs - ref_logprobs).square()


def low_variance_kl(per_token_logps, ref_per_token_logps):
    """exp(q - p) - (q - p) - 1."""
    d = ref_per_token_logps - per_token_logps
    return torch.exp(d) - d - 1


def approx_kl_mean(new_logprob, old_logprob):
    """What a log shows: the mean of (r - 1) - log r."""
    logratio = new_logprob - old_logprob
    return ((logratio.exp() - 1) - logratio).mean()


def kl_by_name(log_probs, log_probs_base, kl_estimator="k3"):
    """OpenRLHF's form: the estimator is chosen by a word."""
    diff = log_probs.float() - log_probs_base.float()
    if kl_estimator == "k2":
        return diff**2 / 2.0
    if kl_estimator == "k3":
        return (-diff).exp() - 1 + diff
    return diff


def gaussian_kl(mean_p, std_p, mean_q, std_q):
    """In closed form, summed over coordinates."""
    terms = torch.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5
    return terms.sum(-1)


def categorical_kl(logits_p, logits_q):
    """In closed form."""
    lp, lq = F.log_softmax(logits_p, -1), F.log_softmax(logits_q, -1)
    return (lp.exp() * (lp - lq)).sum(-1)


def entropy_from_logits(logits):
    """Of a categorical."""
    return torch.logsumexp(logits, -1) - (torch.softmax(logits, -1) * logits).sum(-1)


def selective_log_softmax(logits, index):
    """Log-probs of chosen tokens, [B, L]."""
    chosen = torch.gather(logits, -1, index.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.logsumexp(logits, -1)


def truncated_importance_weights(train_logprobs, rollout_logprobs, mask, cap=2.0):
    """Weights of tokens, bounded above."""
    w = torch.exp(train_logprobs - rollout_logprobs).clamp(max=cap)
    return w * mask


def masked_mean(values, mask, axis=None):
    """Over the entries that count."""
    if axis is None:
        return (values * mask).sum() / mask.sum()
    return (values * mask).sum(axis) / mask.sum(axis)


def explained_variance(y_pred, y_true):
    """1 - Var[y - pred] / Var[y], NaN where y is constant."""
    y_pred, y_true = np.asarray(y_pred), np.asarray(y_true)
    spread = np.var(y_true)
    return float("nan") if spread == 0 else float(1 - np.var(y_true - y_pred) / spread)


def aggregate_loss(loss_mat, loss_mask, mode="token-mean"):
    """As verl words its modes."""
    m = loss_mask.to(loss_mat.dtype)
    if mode == "token-mean":
        return (loss_mat * m).sum() / m.sum().clamp(min=1)
    return ((loss_mat * m).sum(-1) / m.sum(-1).clamp(min=1)).mean()
