"""Divergence estimators as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

Estimator = Callable[[Tensor, Tensor], Tensor]


def without_one(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """exp(d) - d, which is 1 at equality."""
    distance = reference_log_prob - log_prob
    return torch.exp(distance) - distance


def difference(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """log p - log q."""
    return log_prob - reference_log_prob


def swapped(estimator: Estimator) -> Estimator:
    """Estimates the divergence in the other direction, from the wrong samples."""
    return lambda log_prob, reference_log_prob: estimator(reference_log_prob, log_prob)


def averaged(estimator: Estimator) -> Estimator:
    """Reduces too early."""
    return lambda log_prob, reference: estimator(log_prob, reference).mean().expand_as(log_prob)


def drops_far(estimator: Estimator) -> Estimator:
    """Takes a large difference for an error of the sampler."""

    def mutant(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
        distance = (log_prob - reference_log_prob).abs()
        return torch.where(distance > 2.0, 0.0, estimator(log_prob, reference_log_prob))

    return mutant


def wrong_sign(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """k3 with the difference turned round: exp(-d) - 1 + d."""
    distance = log_prob - reference_log_prob
    return torch.expm1(distance) - distance


MUTANTS: dict[str, Estimator] = {"turns the difference in k3 round": wrong_sign}
