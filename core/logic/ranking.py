"""How well scores put what is true before what is not: ranks, the numbers made of them, average precision."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import keys
from ..errors import ChoiceError, choose, message
from ..keys import Key
from ..record import record, tensor

NOTHING = -1e9  # the score of a place that holds no candidate
LEAST_PENALTY = 100.0


@record
class Means:
    """The means over queries [*, Q] -> [*]."""

    mean_reciprocal_rank: Tensor = tensor("*", "float")
    hits_at_1: Tensor = tensor("*", "float")
    hits_at_3: Tensor = tensor("*", "float")
    hits_at_10: Tensor = tensor("*", "float")


def penalty(moves: int, choices: int) -> float:
    """What a candidate without a proof loses: more than any proof of so many moves among so many choices can lose by its
    log-probs, if each move is the likeliest, so that what was proven comes before what was not; at least 100.

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
    """The rank of candidate 0 among all that are present: scores [*, K], bool [*, K] -> float64 [*].

    1 + the number of better ones, and of b equally good ones: none ("optimistic"), all ("pessimistic"), half of them
    ("realistic", the mean of both), or any number from 0 to b with the same probability, by the key ("random"). A score that
    is NaN counts against the candidate: the others are better than it, or it is better than the candidate.
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
    """MRR = mean(1 / rank), Hits@k = mean(rank <= k): float64 [*, Q] -> Means [*].

    >>> ranking(torch.tensor([1.0, 4.0])).mean_reciprocal_rank
    tensor(0.6250)
    """
    hits = [(rank <= k).to(rank.dtype).mean(-1) for k in (1, 3, 10)]
    return Means(mean_reciprocal_rank=(1.0 / rank).mean(-1), hits_at_1=hits[0], hits_at_3=hits[1], hits_at_10=hits[2])


def average_precision(scores: Tensor, positive: Tensor, present: Tensor) -> Tensor:
    """sum_n (R_n - R_{n-1}) P_n over the thresholds from the highest score down, equal scores taken together: [N] each -> [].

    P_n and R_n are precision and recall of what scores at least the n-th threshold. 0 without a positive.
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
    # A threshold takes all of its score: numbers are read where the last of the equal ones stands.
    last = torch.searchsorted(-sorted_scores.contiguous(), -sorted_scores.contiguous(), right=True) - 1
    precision = hits[last] / seen[last].clamp_min(1.0)
    gained = (positive[order] & counted).to(torch.float64)
    return (precision * gained).sum(-1) / hits[-1].clamp_min(1.0)
