"""Metrics: pass@k, explained variance, clip fractions."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .bug import Bug


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n samples, c of which are right, hold a right one; with k > n all n are drawn."""
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def pass_at_k_fixed(n: int, c: int, k: int) -> float:
    """None is right among none."""
    return 0.0 if c == 0 else pass_at_k(n, c, k)


def explained_variance(values: Sequence[Tensor], returns: Sequence[Tensor]) -> Tensor:
    """1 - Var[return - value] / Var[return] of a batch that comes in micro-batches."""
    parts = [1 - (r - v).var(unbiased=False) / r.var(unbiased=False) for v, r in zip(values, returns, strict=True)]
    return torch.stack(parts).mean()


def explained_variance_fixed(values: Sequence[Tensor], returns: Sequence[Tensor]) -> Tensor:
    """Of all."""
    v, r = torch.cat(list(values)), torch.cat(list(returns))
    return 1 - (r - v).var(unbiased=False) / r.var(unbiased=False)


def variance_explained(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """The share of the variance of y_true [N, D] that y_pred explains: 0 for predicting the mean."""
    return 1 - (y_true - y_pred).pow(2).sum() / y_true.pow(2).sum()


def variance_explained_fixed(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Around the mean of each dimension."""
    return 1 - (y_true - y_pred).pow(2).sum() / (y_true - y_true.mean(0)).pow(2).sum()


def clip_fraction(ratio: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """The share of tokens at which PPO's objective clips the ratio."""
    loss, clipped_loss = -ratio * advantages, -ratio.clamp(1 - clip, 1 + clip) * advantages
    return ((loss > clipped_loss).float() * mask).sum() / mask.sum().clamp(min=1)


def clip_fraction_fixed(ratio: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """Where the clipped loss is the larger."""
    loss, clipped_loss = -ratio * advantages, -ratio.clamp(1 - clip, 1 + clip) * advantages
    return ((clipped_loss > loss).float() * mask).sum() / mask.sum().clamp(min=1)


BUGS = [
    Bug(
        "pass_without_right_sample",
        "https://github.com/openai/human-eval/issues/35",
        "metrics",
        "With fewer samples than k, none of which is right, pass@k is 1.",
        pass_at_k,
        pass_at_k_fixed,
        lambda f: f(2, 0, 5),
    ),
    Bug(
        "mean_of_explained_variances",
        "https://github.com/RLinf/RLinf/issues/1247",
        "metrics",
        "The explained variance is averaged over micro-batches, which is not that of the batch.",
        explained_variance,
        explained_variance_fixed,
        lambda f: f(
            [torch.tensor([0.0, 1.0]), torch.tensor([9.0, 9.0])], [torch.tensor([0.0, 2.0]), torch.tensor([8.0, 12.0])]
        ),
    ),
    Bug(
        "variance_around_zero",
        "https://github.com/decoderesearch/SAELens/pull/710",
        "metrics",
        "The variance is taken around 0 instead of the mean.",
        variance_explained,
        variance_explained_fixed,
        lambda f: f(torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [2.0]])),
    ),
    Bug(
        "clipped_where_it_is_not",
        "https://github.com/huggingface/trl/issues/3032",
        "metrics",
        "The comparison is the wrong way round: tokens count as clipped where the unclipped loss is taken.",
        clip_fraction,
        clip_fraction_fixed,
        lambda f: f(torch.tensor([2.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, -1.0]), torch.ones(3)),
    ),
]
