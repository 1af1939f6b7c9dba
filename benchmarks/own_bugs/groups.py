"""Advantages of groups of completions."""

import torch
from torch import Tensor

from .bug import Bug


def normalized_by_stride(rewards: Tensor, prompt_ids: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """GRPO's advantages [B]: rewards by mean and deviation of their prompt's group, of at most `group_size`."""
    del prompt_ids
    found = torch.zeros_like(rewards)
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        spread = group.std(unbiased=False) if len(group) > 1 else torch.zeros(())
        found[start : start + group_size] = (group - group.mean()) / (spread + eps)
    return found


def normalized_by_stride_fixed(rewards: Tensor, prompt_ids: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """By whose they are."""
    del group_size
    found = torch.zeros_like(rewards)
    for prompt in prompt_ids.unique():
        rows = prompt_ids == prompt
        group = rewards[rows]
        found[rows] = (group - group.mean()) / (group.std(unbiased=False) + eps)
    return found


def normalized(rewards: Tensor, group_size: int, eps: float = 1e-5) -> Tensor:
    """Rewards by mean and deviation of each run of `group_size`; the last may be shorter."""
    mean, std = torch.zeros_like(rewards), torch.zeros_like(rewards)
    for group in range(len(rewards) // group_size):
        rows = slice(group * group_size, (group + 1) * group_size)
        mean[rows], std[rows] = rewards[rows].mean(), rewards[rows].std(unbiased=False)
    return (rewards - mean) / (std + eps)


def normalized_fixed(rewards: Tensor, group_size: int, eps: float = 1e-5) -> Tensor:
    """The rest is a group, too."""
    mean, std = torch.zeros_like(rewards), torch.zeros_like(rewards)
    for start in range(0, len(rewards), group_size):
        rows = slice(start, start + group_size)
        mean[rows], std[rows] = rewards[rows].mean(), rewards[rows].std(unbiased=False)
    return (rewards - mean) / (std + eps)


def length_penalty_advantages(rewards: Tensor, n_samples: int) -> Tensor:
    """Advantages of `n_samples` completions for each prompt, by the deviation with Bessel's correction."""
    groups = rewards.view(-1, n_samples)
    centered = groups - groups.mean(-1, keepdim=True)
    return (centered / (groups.std(-1, keepdim=True) + 1e-6)).flatten()


def length_penalty_advantages_fixed(rewards: Tensor, n_samples: int) -> Tensor:
    """A completion alone has none."""
    groups = rewards.view(-1, n_samples)
    centered = groups - groups.mean(-1, keepdim=True)
    if n_samples == 1:
        return centered.flatten()
    return (centered / (groups.std(-1, keepdim=True) + 1e-6)).flatten()


def masked_normalize(values: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Each row [B, L] by mean and deviation of its masked entries; 0 elsewhere."""
    count = mask.sum(1)
    mean = (values * mask).sum(1) / count
    centered = values - mean
    variance = (centered**2 * mask).sum(1) / count
    return centered * (variance + eps).rsqrt() * mask


def masked_normalize_fixed(values: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Statistics of a row for that row."""
    count = mask.sum(1, keepdim=True).clamp(min=1)
    centered = (values - (values * mask).sum(1, keepdim=True) / count) * mask
    variance = (centered**2).sum(1, keepdim=True) / count
    return centered * (variance + eps).rsqrt()


def nan_rewards_advantages(rewards_per_func: Tensor, num_generations: int, eps: float = 1e-4) -> Tensor:
    """Advantages [B] of the sum of several rewards [B, F]; NaN is a function that abstains; a row of NaN has none."""
    rewards = rewards_per_func.nansum(1)
    groups = rewards.view(-1, num_generations)
    centered = groups - groups.mean(1, keepdim=True)
    return (centered / (groups.std(1, keepdim=True, unbiased=False) + eps)).flatten()


def nan_rewards_advantages_fixed(rewards_per_func: Tensor, num_generations: int, eps: float = 1e-4) -> Tensor:
    """Leaves rows of NaN out of their group's statistics, and gives them 0."""
    scored = ~rewards_per_func.isnan().all(1).view(-1, num_generations)
    groups = rewards_per_func.nansum(1).view(-1, num_generations)
    count = scored.sum(1, keepdim=True).clamp(min=1)
    centered = (groups - (groups * scored).sum(1, keepdim=True) / count) * scored
    deviation = (centered.square().sum(1, keepdim=True) / count).sqrt()
    return (centered / (deviation + eps)).flatten()


BUGS = [
    Bug(
        "groups_of_fixed_stride",
        "https://github.com/areal-project/AReaL/issues/1419",
        "group_advantages",
        "Groups are cut by a fixed stride, although some have fewer completions.",
        normalized_by_stride,
        normalized_by_stride_fixed,
        lambda f: f(torch.tensor([0.0, 1.0, 5.0, 7.0, 9.0]), torch.tensor([0, 0, 1, 1, 1]), 3),
    ),
    Bug(
        "rest_divided_by_epsilon",
        "https://github.com/areal-project/AReaL/pull/1673",
        "group_advantages",
        "Completions after the last whole group have mean and deviation 0: they are divided by epsilon.",
        normalized,
        normalized_fixed,
        lambda f: f(torch.tensor([1.0, 2.0, 3.0]), 2),
    ),
    Bug(
        "single_completion_is_nan",
        "https://github.com/radixark/miles/pull/1573",
        "group_advantages",
        "The unbiased deviation of one completion is NaN.",
        length_penalty_advantages,
        length_penalty_advantages_fixed,
        lambda f: f(torch.tensor([1.0, 2.0]), 1),
    ),
    Bug(
        "row_statistics_along_columns",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1250",
        "group_advantages",
        "Statistics of rows [B] broadcast along the tokens: each row is normalised by other rows.",
        masked_normalize,
        masked_normalize_fixed,
        lambda f: f(torch.tensor([[1.0, 2.0], [5.0, 9.0]]), torch.ones(2, 2)),
    ),
    Bug(
        "abstained_counts_as_zero",
        "https://github.com/huggingface/trl/pull/5773",
        "group_advantages",
        "A completion that no function scored enters its group's statistics as a reward of 0.",
        nan_rewards_advantages,
        nan_rewards_advantages_fixed,
        lambda f: f(torch.tensor([[1.0], [3.0], [torch.nan]]), 3),
    ),
]
