"""Losses of masked steps as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from .loss_mutants import reference


def masked_reference(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """The mean over real steps; the inputs of the others are neutralised before the loss."""
    return (_neutral(log_prob, behaviour_log_prob, advantage, mask)).sum() / mask.sum().clamp(min=1)


def _neutral(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    quiet = [torch.where(mask, x, 0.0) for x in (log_prob, behaviour_log_prob, advantage)]
    return torch.where(mask, reference(*quiet, clip=0.25), 0.0)


def multiplies_by_mask(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """0 times NaN is NaN."""
    losses = reference(log_prob, behaviour_log_prob, advantage, clip=0.25)
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def masks_afterwards(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Hides the value of a padded step, not its gradient."""
    losses = reference(log_prob, behaviour_log_prob, advantage, clip=0.25)
    return torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)


def mean_over_all(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Shrinks the loss with the padding."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).mean()


def divides_by_count(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """0 / 0."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).sum() / mask.sum()


def first_row_denominator(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Reads the number of real steps from the first row."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).sum() / (mask[0].sum() * len(mask)).clamp(min=1)


Masked = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


MASKED: dict[str, Masked] = {"masks the losses after an infinite ratio has made them": masks_afterwards}
