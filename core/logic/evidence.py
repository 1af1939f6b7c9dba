"""The evidence of several proofs for one answer: noisy-or, and the best proof with ties broken by the next one."""

import torch
from torch import Tensor

CERTAIN = 1.0 - 1e-9  # the largest weight that is added up; one certain proof would make all others count nothing


def doubt(log_weight: Tensor) -> Tensor:
    """Return -log(1 - w) of a proof's weight w = exp(log_weight): float64 [*] -> [*].

    >>> doubt(torch.log(torch.tensor([0.0, 0.5], dtype=torch.float64)))
    tensor([0.0000, 0.6931], dtype=torch.float64)
    """
    return -torch.log1p(-torch.exp(log_weight).clamp_max(CERTAIN))


def noisy_or(log_weight: Tensor, answer: Tensor, count: int, times: Tensor | tuple[()] = ()) -> Tensor:
    """Return -log of the probability that no proof of an answer holds: float64 [N], int64 [N] -> float64 [count].

    s = -log prod_i (1 - w_i) = sum_i -log(1 - w_i),    probability = 1 - exp(-s)

    `answer` is the number of each proof's answer; an answer without proofs has 0. A proof counts as often as `times` [N] says,
    by default once. The sum keeps apart probabilities near 1.
    Weights are added in increasing order, so that the result does not depend on that of the proofs.
    Source: Pearl 1988, "Probabilistic reasoning in intelligent systems", section 4.3.

    >>> score = noisy_or(torch.log(torch.tensor([0.5, 0.5, 0.2])), torch.tensor([0, 0, 1]), 3)
    >>> 1 - torch.exp(-score)
    tensor([0.7500, 0.2000, 0.0000], dtype=torch.float64)
    >>> 1 - torch.exp(-noisy_or(torch.log(torch.tensor([0.5])), torch.tensor([0]), 1, torch.tensor([3])))
    tensor([0.8750], dtype=torch.float64)
    """
    order = torch.sort(log_weight, stable=True).indices
    parts = doubt(log_weight.to(torch.float64))
    parts = (parts if isinstance(times, tuple) else parts * times)[order]
    return torch.zeros(count, dtype=torch.float64, device=parts.device).index_add(0, answer[order], parts)


def best_first(log_weight: Tensor, answer: Tensor, count: int, group: Tensor) -> Tensor:
    """Return numbers that order the answers of each group: [N], [N], group int64 [count] -> float64 [count].

    An answer precedes another one, with a larger number, if its best proof has a larger weight; if they are equal, if its
    second best has, and so on; one with proofs left then precedes. Equal answers have equal numbers; without proofs it is 0.
    Source: Meilicke et al. 2019, "Anytime bottom-up rule learning for knowledge graph completion" (maximum, ties by the next).

    >>> weights = torch.log(torch.tensor([0.5, 0.9, 0.9, 0.1, 0.9]))
    >>> best_first(weights, torch.tensor([0, 0, 1, 1, 2]), 4, torch.zeros(4, dtype=torch.int64))
    tensor([4., 3., 2., 0.], dtype=torch.float64)
    """
    order = torch.sort(log_weight, descending=True, stable=True).indices
    order = order[torch.sort(answer[order], stable=True).indices]
    # Weights that differ by rounding only, e.g. products in another order, are equal.
    levels = _ranked((torch.exp(log_weight[order].to(torch.float64)) * 1e12).round()) + 1
    many = torch.bincount(answer, minlength=count)
    first = many.cumsum(0) - many
    group = _ranked(group)
    place, tied, number = group, many > 0, 0
    while bool(tied.any()):
        own = torch.where(tied, levels[(first + number).clamp_max(levels.shape[0] - 1)], 0)
        place = _ranked(place * (levels.shape[0] + 2) + own)
        number += 1
        tied = (many > number) & (torch.bincount(place)[place] > 1)
    lowest = torch.full_like(place, count).scatter_reduce(0, group, place, "amin")[group]
    return torch.where(many > 0, place - lowest + 1, 0).to(torch.float64)


def _ranked(values: Tensor) -> Tensor:
    """Return the place of each value among the distinct ones, from 0."""
    places: Tensor = torch.unique(values, return_inverse=True)[1]
    return places
