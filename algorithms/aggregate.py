"""Reductions of a loss [*, L] per token to one number, each with an explicit denominator.

Each is a numerator, a sum over sequences, divided by a denominator, a number that depends on the mask alone:

    name                 numerator               denominator (the default)           default of
    token_sum            token_sum               1                                   tinker (the server sums)
    token_mean           token_sum               token_count(mask)                   DAPO, verl, AReaL, prime-rl
    sequence_mean        sum_of_sequence_means   sequence_count(mask)                GRPO
    sequence_sum_mean    token_sum               sequence_count(mask)                ludic
    constant_length      token_sum               sequences x length                  Dr. GRPO

The numerators of parts add up to the numerator of the whole. So micro-batches and shards, split between sequences, give
exactly the whole batch's value and gradient when each is divided by the *whole* batch's denominator and the results are
summed: pass it as `denominator`. Where the parts are averaged over P processes instead, pass that number divided by P.
Without it each part divides by its own count, and the result depends on the split. Count tokens before some are filtered
out (by importance weights, for example); otherwise the remaining ones weigh more. A denominator of 0 is replaced by 1, so
that a fully masked batch has the loss 0, with a gradient of 0 and an autograd graph.

Shapes: loss [*, L], mask bool [*, L]; the last axis is the sequence. Padding may hold anything. In these terms TRL's
`loss_type`, for M summed micro-batches of B sequences each, is:

    grpo       sequence_mean(loss, mask, denominator=B * M)            (an empty sequence counts there)
    bnpo       token_mean(loss, mask) / M                              (depends on the split)
    dr_grpo    constant_length(loss, mask, length=max_completion_length, denominator=B * M * max_completion_length)
    dapo       token_mean(loss, mask, denominator=tokens of one accumulation of gradients / processes)
    cispo      as dapo, with another loss

Sources: Shao et al. 2024, arXiv:2402.03300 (GRPO); Yu et al. 2025, arXiv:2503.14476 (DAPO); Liu et al. 2025,
arXiv:2503.20783 (Dr. GRPO).
"""

import math

import torch
from torch import Tensor

from ..core.shapes import boolean
from .hyperparameters import Number, check_number
from .language.masking import mean_of_tokens, neutral

Denominator = Number | tuple[()]  # () if this batch is the whole batch


def token_sum(loss: Tensor, mask: Tensor) -> Tensor:
    """Return the masked sum, sum_i sum_t m_it l_it: [*, L], bool [*, L] -> []. Raises: ShapeError, DtypeError.

    >>> token_sum(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), torch.tensor([[True, True], [True, False]]))
    tensor(7.)
    """
    return neutral(mask, loss)[0].sum()


def sum_of_sequence_means(loss: Tensor, mask: Tensor) -> Tensor:
    """Return sum_i (sum_t m_it l_it / sum_t m_it): [*, L], bool [*, L] -> []; an empty sequence adds 0.

    Raises: ShapeError, DtypeError.

    >>> sum_of_sequence_means(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), torch.tensor([[True, True], [True, False]]))
    tensor(5.5000)
    """
    return mean_of_tokens(loss, mask).sum()


def token_count(mask: Tensor) -> Tensor:
    """Return the number of tokens in the mask: bool [*, L] -> int64 []. Raises: DtypeError.

    >>> token_count(torch.tensor([[True, True], [True, False]]))
    tensor(3)
    """
    boolean("token_count", mask=mask)
    return mask.sum()


def sequence_count(mask: Tensor) -> Tensor:
    """Return the number of sequences with at least one token in the mask: bool [*, L] -> int64 []. Raises: DtypeError.

    >>> sequence_count(torch.tensor([[True, True], [False, False]]))
    tensor(1)
    """
    boolean("sequence_count", mask=mask)
    return mask.any(-1).sum()


def token_mean(loss: Tensor, mask: Tensor, *, denominator: Denominator = ()) -> Tensor:
    """Return sum_i sum_t m_it l_it / denominator, by default token_count(mask): every token has the same weight.

    Shapes: [*, L], bool [*, L] -> []. Raises: ShapeError, DtypeError, ChoiceError.

    >>> loss, mask = torch.tensor([[1.0, 2.0], [6.0, 8.0]]), torch.tensor([[True, True], [True, False]])
    >>> token_mean(loss, mask), token_mean(loss, mask, denominator=6)
    (tensor(3.), tensor(1.5000))
    """
    return divided(token_sum(loss, mask), _given(denominator, token_count(mask)))


def sequence_mean(loss: Tensor, mask: Tensor, *, denominator: Denominator = ()) -> Tensor:
    """Return sum_i (mean over the tokens of sequence i) / denominator, by default sequence_count(mask).

    Every sequence has the same weight.
    Shapes: [*, L], bool [*, L] -> []. Raises: ShapeError, DtypeError, ChoiceError.

    >>> loss, mask = torch.tensor([[1.0, 2.0], [6.0, 8.0]]), torch.tensor([[True, True], [True, False]])
    >>> sequence_mean(loss, mask)
    tensor(3.7500)
    """
    return divided(sum_of_sequence_means(loss, mask), _given(denominator, sequence_count(mask)))


def sequence_sum_mean(loss: Tensor, mask: Tensor, *, denominator: Denominator = ()) -> Tensor:
    """Return sum_i sum_t m_it l_it / denominator, by default sequence_count(mask).

    Longer sequences have more weight.
    Shapes: [*, L], bool [*, L] -> []. Raises: ShapeError, DtypeError, ChoiceError.

    >>> loss, mask = torch.tensor([[1.0, 2.0], [6.0, 8.0]]), torch.tensor([[True, True], [True, False]])
    >>> sequence_sum_mean(loss, mask)
    tensor(4.5000)
    """
    return divided(token_sum(loss, mask), _given(denominator, sequence_count(mask)))


def constant_length(loss: Tensor, mask: Tensor, *, length: Number, denominator: Denominator = ()) -> Tensor:
    """Return sum_i sum_t m_it l_it / denominator, by default `length` times the number of sequences, including empty ones.

    `length` is the maximum length of a sequence, a constant: the weight of a token does not depend on the lengths.
    Shapes: [*, L], bool [*, L] -> []. Raises: ShapeError, DtypeError, ChoiceError.

    >>> loss, mask = torch.tensor([[1.0, 2.0], [6.0, 8.0]]), torch.tensor([[True, True], [True, False]])
    >>> constant_length(loss, mask, length=3)
    tensor(1.5000)
    """
    check_number("constant_length: length", length, 0.0)
    return divided(token_sum(loss, mask), _given(denominator, math.prod(mask.shape[:-1]) * length))


def divided(numerator: Tensor, denominator: Number) -> Tensor:
    """Return numerator / denominator; a denominator of 0 is replaced by 1. Raises: ChoiceError for a negative denominator.

    >>> divided(torch.tensor(3.0), 2), divided(torch.tensor(0.0), torch.tensor(0))
    (tensor(1.5000), tensor(0.))
    """
    check_number("denominator", denominator, 0.0)
    if isinstance(denominator, Tensor):
        return numerator / torch.where(denominator == 0, 1, denominator).to(numerator.dtype)
    return numerator / (denominator or 1.0)


def _given(denominator: Denominator, own: Number) -> Number:
    return own if isinstance(denominator, tuple) else denominator
