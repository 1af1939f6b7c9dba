"""Losses of link prediction as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from purestep.algorithms.link_prediction import plausibility
from purestep.core.logic.embedding import Embedding

Loss = Callable[[Embedding, Tensor, Tensor, str], Tensor]


def without_the_fact(loss: Loss) -> Loss:
    """Leaves the fact out of the sum that it is compared with."""
    del loss

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        others = plausibility(params, negatives, form)
        return torch.logsumexp(others, -1) - plausibility(params, facts, form)

    return mutant


def averaged(loss: Loss) -> Loss:
    """Takes the mean over the batch."""

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        each = loss(params, facts, negatives, form)
        return each.mean().expand(each.shape)

    return mutant


def with_one_negative(loss: Loss) -> Loss:
    """Looks at the first negative only."""

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        return loss(params, facts, negatives[:, :1], form)

    return mutant


MUTANTS: dict[str, Callable[[Loss], Loss]] = {"looks at the first negative only": with_one_negative}
