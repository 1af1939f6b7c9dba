"""Ranking metrics of scores: ranks of true atoms among negatives, MRR and Hits@k, average precision."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import keys
from ..errors import ChoiceError, choose, message
from ..keys import Key
from ..record import record, tensor

NOTHING = -1e9  # the score of a slot without a candidate
LEAST_PENALTY = 100.0


@record
class Means:
    """Means over queries [*, Q] -> [*]."""

    mean_reciprocal_rank: Tensor = tensor("*", "float")
    hits_at_1: Tensor = tensor("*", "float")
    hits_at_3: Tensor = tensor("*", "float")
    hits_at_10: Tensor = tensor("*", "float")


def penalty(moves: int, choices: int) -> float:
    """Return the penalty of a candidate without a proof, at least 100.

    It exceeds the negative log-prob of any proof of `moves` moves with `choices` choices each, if each move is the most
    probable one, so that proven candidates are ranked before the others.

    >>> penalty(10, 64), penalty(100, 64) > 100 * 4.15
    (100.0, True)
    """
    return max(LEAST_PENALTY, moves * math.log(choices) + 1.0)


def _optimistic(better: Tensor, equal: Tensor, key: Any) -> Tensor:
    del equal, key
    return 1.0 + better


def _pessimistic(better: Tensor, equal: Tensor, key: Any) -> Tensor:
    del key
    return 1.0 + better + equal


def _realistic(better: Tensor, equal: Tensor, key: Any) -> Tensor:
    del key
    return 1.0 + better + 0.5 * equal


def _random(better: Tensor, equal: Tensor, key: Any) -> Tensor:
    return 1.0 + better + torch.floor(keys.uniform(key, tuple(better.shape), dtype=torch.float64) * (equal + 1.0))


TIES: Mapping[str, Callable[[Tensor, Tensor, Any], Tensor]] = {
    "optimistic": _optimistic,
    "pessimistic": _pessimistic,
    "realistic": _realistic,
    "random": _random,
}


def ranks(scores: Tensor, present: Tensor, ties: str = "realistic", key: Key | tuple[()] = ()) -> Tensor:
    """Return the rank of candidate 0 among the present ones: scores [*, K], bool [*, K] -> float64 [*].

    1 + the number of better ones, and of b ties: none ("optimistic"), all ("pessimistic"), half of them ("realistic", the
    mean of both), or a random number from 0 to b with equal probability, by the key ("random"). NaN counts against the
    candidate: if its own score is NaN all others are better, and another one with a NaN score is better than it.
    Source: Berrendorf et al. 2020, arXiv:2002.06914; the names are those of PyKEEN. Raises: ChoiceError.

    >>> ranks(torch.tensor([1.0, 2.0, 1.0, 1.0]), torch.ones(4, dtype=torch.bool))
    tensor(3., dtype=torch.float64)
    """
    counted = choose("ranks: ties", ties, TIES)
    if ties == "random" and not isinstance(key, Tensor):
        raise ChoiceError(message("ranks: key", got="none", wanted="one for random ties", remedy="pass a key"))
    others = present[..., 1:]
    better = (~(scores[..., 1:] <= scores[..., :1]) & others).sum(-1).to(torch.float64)
    equal = ((scores[..., 1:] == scores[..., :1]) & others).sum(-1).to(torch.float64)
    return counted(better, equal, key)


def ranking(rank: Tensor) -> Means:
    """Return MRR = mean(1 / rank) and Hits@k = mean(rank <= k): float64 [*, Q] -> Means [*].

    >>> ranking(torch.tensor([1.0, 4.0])).mean_reciprocal_rank
    tensor(0.6250)
    """
    hits = [(rank <= k).to(rank.dtype).mean(-1) for k in (1, 3, 10)]
    return Means(mean_reciprocal_rank=(1.0 / rank).mean(-1), hits_at_1=hits[0], hits_at_3=hits[1], hits_at_10=hits[2])


def average_precision(scores: Tensor, positive: Tensor, present: Tensor) -> Tensor:
    """Return sum_n (R_n - R_{n-1}) P_n over decreasing thresholds, one for each different score: [N] each -> [].

    P_n and R_n are precision and recall at scores of at least the n-th threshold. 0 without a positive.
    Source: Davis and Goadrich 2006, "The relationship between precision-recall and ROC curves"; no interpolation.

    >>> yes = torch.ones(3, dtype=torch.bool)
    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]), yes)  # 1/2 + 2/3 * 1/2
    tensor(0.8333, dtype=torch.float64)
    """
    counting = torch.where(present, scores, NOTHING)
    order = torch.argsort(counting, descending=True)
    sorted_scores, counted = counting[order], present[order]
    hits = (positive[order] & counted).to(torch.float64).cumsum(-1)
    seen = counted.to(torch.float64).cumsum(-1)
    # A threshold includes all equal scores: read the cumulative sums at the last of them.
    last = torch.searchsorted(-sorted_scores.contiguous(), -sorted_scores.contiguous(), right=True) - 1
    precision = hits[last] / seen[last].clamp_min(1.0)
    gained = (positive[order] & counted).to(torch.float64)
    return (precision * gained).sum(-1) / hits[-1].clamp_min(1.0)
