"""Building blocks of objectives: reductions by counts of the whole batch, clip bounds of ratios, dual clips."""

import torch
from torch import Tensor

from ...core.errors import choose
from ..aggregate import constant_length, sequence_mean, sequence_sum_mean, token_mean
from ..hyperparameters import Number, check_clip, check_number
from ..policy_losses import policy_gradient
from . import token_losses
from .loss import Outside, Reduction, TokenLoss
from .masking import mean_of_tokens, neutral
from .token_batch import Counts
from .token_losses import Clip


def clipped_ratio(clip: Clip) -> TokenLoss:
    """Return `token_clip` as the loss of an objective.

    >>> one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    >>> clipped_ratio(0.5)(one, 0 * one, one, mask)
    tensor([[-1.5000]])
    """
    check_clip("clipped_ratio: clip", clip)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.token_clip(log_prob, anchor, advantage, mask, clip=clip)

    return loss


def log_prob_gradient(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Return -A log p (`policy_gradient`) for tokens in the mask; the anchor is not used. All [N, L] -> [N, L].

    >>> mask = torch.tensor([[True, False]])
    >>> log_prob_gradient(torch.tensor([[-2.0, torch.nan]]), torch.zeros(1, 2), torch.ones(1, 2), mask)
    tensor([[2., 0.]])
    """
    return torch.where(mask, policy_gradient(*neutral(mask, log_prob, advantage)), 0.0)


def dual_clipped(clip: Clip, *, c: Number = 3.0) -> TokenLoss:
    """Return `dual_clip` as the loss of an objective: `attrs.evolve(grpo(), loss=dual_clipped(0.2))`.

    >>> one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    >>> dual_clipped(0.2)(9 * one, 0 * one, -one, mask)
    tensor([[3.]])
    """
    check_clip("dual_clipped: clip", clip)
    check_number("dual_clipped: c", c, 1.0)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.dual_clip(log_prob, anchor, advantage, mask, clip=clip, c=c)

    return loss


def by_token(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `token_mean` over the whole batch: every token has the same weight.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_token(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(1.)
    """
    return token_mean(loss, mask, denominator=counts.tokens)


def by_sequence(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `sequence_mean` over the whole batch: every sequence has the same weight.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_sequence(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(1.)
    """
    return sequence_mean(loss, mask, denominator=counts.sequences)


def by_sequence_sum(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `sequence_sum_mean`: the mean over sequences of the sums over their tokens.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_sequence_sum(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(2.)
    """
    return sequence_sum_mean(loss, mask, denominator=counts.sequences)


def by_constant_length(length: Number) -> Reduction:
    """Return the reduction `constant_length`: the sum over tokens / (number of sequences * `length`). Raises: ChoiceError.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> two = Counts(tokens=torch.tensor(4), sequences=torch.tensor(2))
    >>> by_constant_length(4)(torch.tensor([[1.0, 3.0]]), mask, two)
    tensor(0.5000)
    """
    check_number("by_constant_length: length", length, 1.0)

    def reduce(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
        return constant_length(loss, mask, length=length, denominator=counts.sequences * length)

    return reduce


def outside_of(clip: Clip, *, level: str = "token") -> Outside:
    """Return a test for ratios outside 1 - low .. 1 + high; `level` "sequence" uses `gspo`'s ratio. Raises: ChoiceError.

    >>> outside_of((0.5, 1.0))(torch.tensor([[0.4, 1.0, 3.0]]).log(), torch.ones(1, 3, dtype=torch.bool))
    tensor([[ True, False,  True]])
    """
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    ratio_of = choose("outside_of: level", level, {"token": _token_ratio, "sequence": _sequence_ratio})

    def outside(log_ratio: Tensor, mask: Tensor) -> Tensor:
        ratio = ratio_of(log_ratio, mask)
        return (ratio < 1 - low) | (ratio > 1 + high)

    return outside


def _token_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return log_ratio.exp()


def _sequence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return mean_of_tokens(log_ratio, mask)[..., None].exp().expand(mask.shape)
