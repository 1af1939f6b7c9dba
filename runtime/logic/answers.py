"""Answers of open queries with their scores: the proofs that a search has found, joined by noisy-or or by the best of them."""

from typing import Literal

import torch
from attrs import frozen
from torch import Tensor

from ...core.logic.corrupt import replaced
from ...core.logic.evidence import best_first, noisy_or
from ...core.logic.terms import Vocabulary
from .search import ProofsFound

TINY = 1e-300  # above 0: a proof is better than none
Join = Literal["noisy_or", "max", "groundings", "probability"]
"""The evidence of an answer: noisy-or of its proofs, the best proof, noisy-or with a proof as often as it has groundings, and
the guide's probability of any of the proofs found.

"noisy_or" takes a rule's confidence for the probability of its head where its body is true for some facts, as in AnyBURL's
files. "groundings" takes it for the probability that one instance of the rule holds, as in ProbLog's programs: two neighbours
in Africa are more evidence than one. Proofs that share an instance count as independent there.
"""


@frozen
class JoinedAnswers:
    """The distinct instances of Q queries that have proofs, by query and then by their arguments."""

    owner: Tensor  # int64 [N]: number of the query
    atom: Tensor  # int64 [N, 2]: both arguments
    score: Tensor  # float64 [N], above 0: comparable within a query
    probability: Tensor  # float64 [N]: by noisy-or, or of the best proof
    proof_of: Tensor  # int64 [P]: the answer of each proof


def opened_query(names: Vocabulary, queries: Tensor, argument: int) -> Tensor:
    """Return the queries with a variable as that argument: int64 [Q, 3] -> [Q, 3].

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> opened_query(game.names, world.queries, 0)
    tensor([[2, 7, 2],
            [2, 7, 2]])
    """
    side = torch.full_like(queries[:, 0], argument)
    return replaced(queries, side, torch.full_like(side, len(names.constants) + 1))


def join_scores(names: Vocabulary, found: ProofsFound, join: Join) -> JoinedAnswers:
    """Return the answers with the scores of all their proofs together.

    >>> from ...core.logic.borders import borders
    >>> from .search import SearchLimits, roomy, search
    >>> game, world = borders()  # in(X, Z) :- borders(X, Y), in(Y, Z)
    >>> names, base = roomy(game.names, world.base, 2)
    >>> asked = opened_query(names, world.queries[1:], 0)  # in(X, europe)
    >>> told = join_scores(names, search(names, base, torch.tensor([0.5]), asked, SearchLimits()), "noisy_or")
    >>> told.atom[:, 0], told.probability  # france is known, spain needs the rule once, portugal twice
    (tensor([3, 5, 6]), tensor([1.0000, 0.2500, 0.5000], dtype=torch.float64))
    """
    constants = len(names.constants) + 1
    distinct, proof_of = torch.unique(
        (found.owner * constants + found.answer[:, 0]) * constants + found.answer[:, 1], return_inverse=True
    )
    owner, count = distinct // constants**2, distinct.shape[0]
    atom = torch.stack([distinct // constants % constants, distinct % constants], -1)
    if join in ("noisy_or", "groundings"):
        score = noisy_or(found.log_weight, proof_of, count, found.groundings if join == "groundings" else ())
        probability = -torch.expm1(-score)
    elif join == "probability":
        probability = torch.zeros(count, dtype=torch.float64, device=proof_of.device)
        probability = probability.index_add(0, proof_of, torch.exp(found.log_prob))
        score = probability + TINY
    else:
        score = best_first(found.log_weight, proof_of, count, owner)
        lowest = torch.full((count,), -torch.inf, dtype=torch.float64, device=score.device)
        probability = torch.exp(lowest.scatter_reduce(0, proof_of, found.log_weight, "amax"))
    return JoinedAnswers(owner, atom, score, probability, proof_of)


def dense(names: Vocabulary, told: JoinedAnswers, count: int, argument: int) -> Tensor:
    """Return the scores of all constants as that argument, 0 where there is no proof: float64 [count, n + 1], column 0 unused.

    >>> nothing = torch.zeros(1, dtype=torch.int64)
    >>> from ...core.logic.borders import borders
    >>> one = JoinedAnswers(nothing, torch.tensor([[2, 5]]), nothing + 0.5, nothing + 0.5, nothing)
    >>> dense(borders()[0].names, one, 1, 0)
    tensor([[0.0000, 0.0000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]])
    """
    table = told.score.new_zeros(count, len(names.constants) + 1)
    return table.index_put((told.owner, told.atom[:, argument]), told.score)
