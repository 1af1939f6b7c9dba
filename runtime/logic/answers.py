"""Answers of open queries with their scores: the proofs that a search has found, joined by noisy-or or by the best of them."""

from typing import Literal

import torch
from attrs import frozen
from torch import Tensor

from ...core.logic.corrupt import HEAD, replaced
from ...core.logic.evidence import best_first, noisy_or
from ...core.logic.terms import Vocabulary
from .search import ProofsFound

TINY = 1e-300  # above 0: a proof is better than none
Join = Literal["noisy_or", "max", "probability"]  # the last one is that of the guide: of any of the proofs found


@frozen
class Answers:
    """The distinct answers of Q queries, by query and then by constant."""

    owner: Tensor  # int64 [N]: number of the query
    constant: Tensor  # int64 [N]: of the open argument
    score: Tensor  # float64 [N], above 0: comparable within a query
    probability: Tensor  # float64 [N]: by noisy-or, or of the best proof
    proof_of: Tensor  # int64 [P]: the answer of each proof


def opened_query(names: Vocabulary, queries: Tensor, argument: int) -> Tensor:
    """Return the queries with a variable as that argument: int64 [Q, 3] -> [Q, 3].

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> opened_query(game.names, world.queries, HEAD)
    tensor([[2, 7, 2],
            [2, 7, 2]])
    """
    side = torch.full_like(queries[:, 0], argument)
    return replaced(queries, side, torch.full_like(side, len(names.constants) + 1))


def answers(names: Vocabulary, found: ProofsFound, argument: int, join: Join) -> Answers:
    """Return the answers of the proofs found, for queries of which `argument` is open.

    >>> from ...core.logic.borders import borders
    >>> from .search import Bounds, roomy, search
    >>> game, world = borders()  # in(X, Z) :- borders(X, Y), in(Y, Z)
    >>> names, base = roomy(game.names, world.base, 2)
    >>> asked = opened_query(names, world.queries[1:], HEAD)  # in(X, europe)
    >>> told = answers(names, search(names, base, torch.tensor([0.5]), asked, Bounds()), HEAD, "noisy_or")
    >>> told.constant, told.probability  # france is known, spain needs the rule once, portugal twice
    (tensor([3, 5, 6]), tensor([1.0000, 0.2500, 0.5000], dtype=torch.float64))
    """
    constants = len(names.constants) + 1
    mark = found.owner * constants + found.answer[:, argument]
    distinct, proof_of = torch.unique(mark, return_inverse=True)
    owner, count = distinct // constants, distinct.shape[0]
    if join == "noisy_or":
        score = noisy_or(found.log_weight, proof_of, count)
        probability = -torch.expm1(-score)
    elif join == "probability":
        probability = torch.zeros(count, dtype=torch.float64, device=proof_of.device)
        probability = probability.index_add(0, proof_of, torch.exp(found.log_prob))
        score = probability + TINY
    else:
        score = best_first(found.log_weight, proof_of, count, owner)
        lowest = torch.full((count,), -torch.inf, dtype=torch.float64, device=score.device)
        probability = torch.exp(lowest.scatter_reduce(0, proof_of, found.log_weight, "amax"))
    return Answers(owner, distinct % constants, score, probability, proof_of)


def dense(names: Vocabulary, told: Answers, count: int) -> Tensor:
    """Return the scores of all constants, 0 where there is no proof: float64 [count, n + 1], column 0 unused.

    >>> nothing = torch.zeros(1, dtype=torch.int64)
    >>> from ...core.logic.borders import borders
    >>> dense(borders()[0].names, Answers(nothing, nothing + 2, nothing + 0.5, nothing + 0.5, nothing), 1)
    tensor([[0.0000, 0.0000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]])
    """
    table = told.score.new_zeros(count, len(names.constants) + 1)
    return table.index_put((told.owner, told.constant), told.score)
