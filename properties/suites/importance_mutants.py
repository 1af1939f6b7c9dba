"""Importance weights as people get them wrong: each an edit of f(log_prob, sampler_log_prob, mask) -> [N, L]."""

from collections.abc import Callable

import torch
from torch import Tensor

Weighting = Callable[[Tensor, Tensor, Tensor], Tensor]
Edit = Callable[[Weighting], Weighting]


def probability(weighting: Weighting) -> Weighting:
    """Forgets the sampler."""
    return lambda log_prob, sampler, mask: weighting(log_prob, torch.zeros_like(sampler), mask)


def live(weighting: Weighting) -> Weighting:
    """Learns to be weighed less."""
    return lambda log_prob, sampler, mask: (
        weighting(log_prob, sampler, mask) + torch.where(mask, log_prob - log_prob.detach(), 0.0)
    )


def believes_the_sampler(weighting: Weighting) -> Weighting:
    """Takes -inf and NaN for log-probs."""
    return lambda log_prob, sampler, mask: torch.where(
        mask & ~torch.isfinite(log_prob - sampler), torch.nan, weighting(log_prob, sampler, mask)
    )


def multiplies_by_mask(weighting: Weighting) -> Weighting:
    """0 times infinity is NaN."""
    return lambda log_prob, sampler, mask: (
        weighting(log_prob, sampler, mask) + torch.exp(log_prob - sampler) * ~mask * 0.0
    )


def unbounded(weighting: Weighting) -> Weighting:
    """Lets every weight through."""

    def wrong(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        kept = weighting(log_prob, sampler, mask)
        return torch.where(mask, kept + torch.nan_to_num(log_prob - sampler, 0.0, 0.0, 0.0).clamp(min=0.0), 0.0)

    return wrong


def turned_round(weighting: Weighting) -> Weighting:
    """Divides the sampler's probability by the trainer's."""
    return lambda log_prob, sampler, mask: weighting(sampler, log_prob, mask)


def whole_batch(weighting: Weighting) -> Weighting:
    """Takes the batch for one sequence."""

    def wrong(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        flat = [x.reshape(1, -1) for x in (log_prob, sampler, mask)]
        return weighting(flat[0], flat[1].mean(-1, keepdim=True).expand(flat[1].shape), flat[2]).reshape(mask.shape)

    return wrong


MUTANTS: dict[str, Edit] = {"takes the batch for one sequence": whole_batch}
