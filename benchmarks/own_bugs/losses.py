"""Policy losses: clipping, ratios, KL penalties and how losses are averaged."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .bug import Bug


def ppo_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float = 0.2) -> Tensor:
    """The clipped objective of PPO, to be minimised."""
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(clip, 1 + clip)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def ppo_loss_fixed(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float = 0.2) -> Tensor:
    """Between 1 - clip and 1 + clip."""
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def composite_loss(
    log_probs: Mapping[str, Tensor], old_log_probs: Mapping[str, Tensor], advantages: Tensor, clip: float = 0.2
) -> Tensor:
    """PPO's loss for an action of several parts, whose log-probs add."""
    parts = [(log_probs[key] - old_log_probs[key]) for key in log_probs]
    low, high = torch.log(torch.tensor(1 - clip)), torch.log(torch.tensor(1 + clip))
    log_ratio = torch.stack(parts).sum(0)
    clipped = torch.stack([part.clamp(low, high) for part in parts]).sum(0)
    return -torch.min(log_ratio.exp() * advantages, clipped.exp() * advantages).mean()


def composite_loss_fixed(
    log_probs: Mapping[str, Tensor], old_log_probs: Mapping[str, Tensor], advantages: Tensor, clip: float = 0.2
) -> Tensor:
    """Clips the sum."""
    log_ratio = torch.stack([log_probs[key] - old_log_probs[key] for key in log_probs]).sum(0)
    ratio = log_ratio.exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def grpo_loss(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, mask: Tensor, clip_eps: float = 0.2
) -> Tensor:
    """GRPO's loss over tokens [B, L], one advantage [B] for each completion."""
    del behaviour_logprobs
    ratio = (logprobs - logprobs.detach()).exp()
    surrogate = torch.min(
        ratio * advantages.unsqueeze(1), ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages.unsqueeze(1)
    )
    return -((surrogate * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def grpo_loss_fixed(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, mask: Tensor, clip_eps: float = 0.2
) -> Tensor:
    """The ratio to the policy that sampled."""
    ratio = (logprobs - behaviour_logprobs).exp()
    surrogate = torch.min(
        ratio * advantages.unsqueeze(1), ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages.unsqueeze(1)
    )
    return -((surrogate * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def approx_kl(log_probs: Tensor, log_probs_base: Tensor) -> Tensor:
    """The estimate of KL(policy || base) of each token that the policy sampled: never negative, and unbiased."""
    log_ratio = log_probs - log_probs_base
    return log_ratio.exp() - 1 - log_ratio


def approx_kl_fixed(log_probs: Tensor, log_probs_base: Tensor) -> Tensor:
    """In the ratio base / policy."""
    log_ratio = log_probs_base - log_probs
    return log_ratio.exp() - 1 - log_ratio


def kl_estimate(log_probs: Tensor, log_probs_base: Tensor, kl_estimator: str = "k1") -> Tensor:
    """The estimators k1, k2 and k3 of KL(policy || base)."""
    log_ratio = log_probs - log_probs_base
    if kl_estimator == "k2":
        log_ratio = log_ratio**2 / 2
    if kl_estimator in ("k2", "k3"):
        log_ratio = -log_ratio
        log_ratio = log_ratio.exp() - 1 - log_ratio
    return log_ratio


def kl_estimate_fixed(log_probs: Tensor, log_probs_base: Tensor, kl_estimator: str = "k1") -> Tensor:
    """One of them."""
    log_ratio = log_probs - log_probs_base
    if kl_estimator == "k2":
        return log_ratio**2 / 2
    if kl_estimator == "k3":
        return (-log_ratio).exp() - 1 + log_ratio
    return log_ratio


def kl_penalty(logprobs: Tensor, logprobs_ref: Tensor, mask: Tensor) -> Tensor:
    """The mean quadratic estimate (k2) of the KL to a reference."""
    log_ratio = logprobs - logprobs_ref
    return (log_ratio.pow(2) * mask).sum() / mask.sum().clamp(min=1)


def kl_penalty_fixed(logprobs: Tensor, logprobs_ref: Tensor, mask: Tensor) -> Tensor:
    """Half the square."""
    log_ratio = logprobs - logprobs_ref
    return (0.5 * log_ratio.pow(2) * mask).sum() / mask.sum().clamp(min=1)


def sampling_ratio(logits: Tensor, tokens: Tensor, sampler_logprobs: Tensor, temperature: float = 1.0) -> Tensor:
    """Importance ratios [B, L] of logits [B, L, V] to a sampler that drew at `temperature`."""
    del temperature
    logprobs = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return (logprobs - sampler_logprobs).exp()


def sampling_ratio_fixed(logits: Tensor, tokens: Tensor, sampler_logprobs: Tensor, temperature: float = 1.0) -> Tensor:
    """Both sides at one temperature."""
    logprobs = (logits / temperature).log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return (logprobs - sampler_logprobs).exp()


def accumulated_loss(token_losses: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """The mean loss of all tokens of a batch that is worked off in micro-batches [B, L]."""
    steps = len(token_losses)
    parts = [(loss * mask).sum() / mask.sum().clamp(min=1) for loss, mask in zip(token_losses, masks, strict=True)]
    return torch.stack(parts).sum() / steps


def accumulated_loss_fixed(token_losses: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """One denominator for all."""
    total = torch.stack([mask.sum() for mask in masks]).sum().clamp(min=1)
    return torch.stack([(loss * mask).sum() for loss, mask in zip(token_losses, masks, strict=True)]).sum() / total


def dapo_gradient(scale: Tensor, token_losses: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """The gradient in `scale` of the token-mean loss, over accumulation steps."""
    total = torch.stack([mask.sum() for mask in masks]).sum().clamp(min=1)
    grad = torch.zeros_like(scale)
    for loss, mask in zip(token_losses, masks, strict=True):
        part = (scale * loss * mask).sum() / total
        grad = grad + torch.autograd.grad(part / len(token_losses), scale)[0]
    return grad


def dapo_gradient_fixed(scale: Tensor, token_losses: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """The denominator counts all steps already."""
    total = torch.stack([mask.sum() for mask in masks]).sum().clamp(min=1)
    grad = torch.zeros_like(scale)
    for loss, mask in zip(token_losses, masks, strict=True):
        grad = grad + torch.autograd.grad((scale * loss * mask).sum() / total, scale)[0]
    return grad


ONE, TWO = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[4.0, 9.0, 9.0]])
MASK_ONE, MASK_TWO = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])

BUGS = [
    Bug(
        "clipped_from_epsilon",
        "https://github.com/ChenmienTan/RL2/pull/21",
        "policy_losses",
        "The ratio is clipped between epsilon and 1 + epsilon instead of 1 - epsilon and 1 + epsilon.",
        ppo_loss,
        ppo_loss_fixed,
        lambda f: f(torch.tensor([-1.5]), torch.tensor([-1.0]), torch.tensor([-1.0])),
    ),
    Bug(
        "each_part_clipped",
        "https://github.com/pytorch/rl/pull/2791",
        "policy_losses",
        "The log-ratio of each part of an action is clipped, not their sum.",
        composite_loss,
        composite_loss_fixed,
        lambda f: f(
            {"a": torch.tensor([0.5]), "b": torch.tensor([-0.5])},
            {"a": torch.tensor([0.0]), "b": torch.tensor([-0.4])},
            torch.tensor([1.0]),
        ),
    ),
    Bug(
        "ratio_to_itself",
        "https://github.com/meta-pytorch/torchforge/pull/571",
        "policy_losses",
        "The ratio is that of the policy to itself, always 1, where the sampler's log-probs are given.",
        grpo_loss,
        grpo_loss_fixed,
        lambda f: f(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), torch.tensor([1.0]), torch.tensor([[1.0]])),
    ),
    Bug(
        "kl_the_other_way",
        "https://github.com/hpcaitech/ColossalAI/issues/3696",
        "kl",
        "The estimate of the KL takes the ratio the wrong way round for samples of the policy.",
        approx_kl,
        approx_kl_fixed,
        lambda f: f(torch.tensor([-1.0]), torch.tensor([-2.0])),
    ),
    Bug(
        "estimators_fall_through",
        "https://github.com/areal-project/AReaL/pull/408",
        "kl",
        "The choice of k2 goes on to apply k3 to it.",
        kl_estimate,
        kl_estimate_fixed,
        lambda f: f(torch.tensor([-1.0]), torch.tensor([-2.0]), "k2"),
    ),
    Bug(
        "square_not_halved",
        "https://github.com/one-covenant/grail/pull/42",
        "kl",
        "The penalty is the whole squared log-ratio: twice the quadratic estimate of the KL.",
        kl_penalty,
        kl_penalty_fixed,
        lambda f: f(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), torch.ones(1, 1)),
    ),
    Bug(
        "temperature_on_one_side",
        "https://github.com/marin-community/marin/issues/1741",
        "importance",
        "The sampler's log-probs are at its temperature, the policy's at 1.",
        sampling_ratio,
        sampling_ratio_fixed,
        lambda f: f(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0]]), torch.tensor([[-0.3]]), 0.5),
    ),
    Bug(
        "mean_of_means",
        "https://github.com/ml-explore/mlx-lm/pull/1413",
        "aggregation",
        "Micro-batches are averaged whatever number of tokens they have.",
        accumulated_loss,
        accumulated_loss_fixed,
        lambda f: f([ONE, TWO], [MASK_ONE, MASK_TWO]),
    ),
    Bug(
        "divided_by_steps_again",
        "https://github.com/modelscope/ms-swift/issues/10117",
        "aggregation",
        "A loss over the tokens of all accumulation steps is divided by their number once more.",
        dapo_gradient,
        dapo_gradient_fixed,
        lambda f: f(torch.tensor(1.0, requires_grad=True), [ONE, TWO], [MASK_ONE, MASK_TWO]),
    ),
]
