"""Importance weights of tokens whose sampler differs from the trainer: another inference engine, or older weights.

    D_t = log p(token) under the trainer, when the data arrived - log-prob that the sampler reported
    w_t = exp(D_t)                            `level` "token"
    w_t = exp(sum of D over the sequence)     "sequence", at each of its tokens: unbiased, high variance
    w_t = exp(mean of D over the sequence)    "geometric", at each of its tokens: independent of the length

A weight multiplies the loss of its token after any clip. It is a constant, always finite, and 0 in the padding, whatever
its content. If D_t is not finite (the sampler reports -inf or NaN), D_t is set to 0 and the token's weight is 1. Truncation
and masking may use different levels, so both take the log-probs: `truncated_weights(...) * within(..., level="geometric")`
is OpenRLHF's seq-mask-tis.

Sources: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (truncated, token);
Liu et al. 2025, "When speed kills stability" (masked; sequences); Ling Team 2025, arXiv:2510.18855 (IcePop).
"""

import math

import torch
from torch import Tensor

from ..core.errors import choose
from ..core.shapes import boolean, same_shape
from .hyperparameters import Number, bounded, check_number
from .language.masking import mean_of_tokens, neutral


def importance_weights(log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, level: str = "token") -> Tensor:
    """Return w without truncation: [*, L], [*, L], bool [*, L] -> [*, L], at most about the largest number of its dtype.

    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([2.0, 8.0, 9.0]).log(), torch.tensor([True, True, False])
    >>> importance_weights(log_prob, torch.zeros(3), mask, level="geometric")
    tensor([4., 4., 0.])
    """
    same_shape("importance_weights", log_prob=log_prob, sampler_log_prob=sampler_log_prob, mask=mask)
    boolean("importance_weights", mask=mask)
    difference = log_prob.detach() - sampler_log_prob.detach()
    (known,) = neutral(mask & torch.isfinite(difference), difference)
    log_weight = choose("importance_weights: level", level, LEVELS)(known, mask)
    ceiling = math.log(torch.finfo(log_weight.dtype).max) - 1.0
    return torch.where(mask, torch.exp(bounded(log_weight, high=ceiling)), 0.0)


def truncated_weights(
    log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, high: Number, low: Number = 0.0, level: str = "token"
) -> Tensor:
    """Truncated importance sampling: min(max(w, low), high) for tokens in the mask; [*, L] each -> [*, L].

    Most systems have `high` only (2 is usual); OpenRLHF and slime have `low` as well.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([0.5, 8.0, 9.0]).log(), torch.tensor([True, True, False])
    >>> truncated_weights(log_prob, torch.zeros(3), mask, high=2.0)
    tensor([0.5000, 2.0000, 0.0000])
    """
    check_number("truncated_weights: low", low, 0.0)
    check_number("truncated_weights: high", high, low if not isinstance(low, Tensor) else 0.0)
    weight = importance_weights(log_prob, sampler_log_prob, mask, level=level)
    return torch.where(mask, bounded(weight, low, high), 0.0)


def masked_weights(
    log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, high: Number, low: Number = 0.0, level: str = "token"
) -> Tensor:
    """Masked importance sampling: w where low <= w <= high, else 0; [*, L] each -> [*, L].

    IcePop at level "token" (for example with 0.5 and 5); at the other levels whole sequences are masked. Take the
    denominator of the reduction from the original mask: masked tokens must not increase the weight of the others.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([0.5, 8.0, 9.0]).log(), torch.tensor([True, True, False])
    >>> masked_weights(log_prob, torch.zeros(3), mask, high=2.0)
    tensor([0.5000, 0.0000, 0.0000])
    """
    weight = importance_weights(log_prob, sampler_log_prob, mask, level=level)
    kept = within_bounds(log_prob, sampler_log_prob, mask, high=high, low=low, level=level)
    return torch.where(kept, weight, 0.0)


def within_bounds(
    log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, high: Number, low: Number = 0.0, level: str = "token"
) -> Tensor:
    """Return the mask of tokens in `mask` with low <= w <= high: bool [*, L].

    "geometric" masks whole sequences that are unlikely under the trainer's policy.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([[0.5, 8.0], [1.0, 1.0]]).log(), torch.tensor([[True, True], [True, False]])
    >>> within_bounds(log_prob, torch.zeros(2, 2), mask, low=0.5, high=1.5, level="geometric")
    tensor([[False, False],
            [ True, False]])
    """
    check_number("within: low", low, 0.0)
    check_number("within: high", high, low if not isinstance(low, Tensor) else 0.0)
    weight = importance_weights(log_prob, sampler_log_prob, mask, level=level)
    return mask & (weight >= low) & (weight <= high)


def effective_sample_size(weight: Tensor, mask: Tensor) -> Tensor:
    """Return the effective sample size, (sum w)^2 / sum w^2, between 1 and the number of tokens, or 0.

    It is the number of equally weighted tokens whose mean has the same variance.
    Shapes: [*], bool [*] -> []; 0 if all weights are 0. Raises: ShapeError, DtypeError.
    Source: Kish 1965, Survey Sampling, section 11.7.

    >>> effective_sample_size(torch.tensor([1.0, 1.0, 2.0, 9.0]), torch.tensor([True, True, True, False]))
    tensor(2.6667)
    """
    (quiet,) = neutral(mask, weight.detach())
    largest = quiet.abs().amax()
    share = quiet / torch.where(largest == 0, 1.0, largest)  # otherwise the squares of large weights would overflow
    squares = share.square().sum()
    return share.sum().square() / torch.where(squares == 0, 1.0, squares)


def effective_fraction(weight: Tensor, mask: Tensor) -> Tensor:
    """Return the effective sample size per token in the mask: (sum w)^2 / (n sum w^2), in [0, 1]; 0 for an empty mask.

    PipelineRL uses this form; verl's 1 / mean((w / mean w)^2) is the same number.
    Shapes: [*], bool [*] -> []. Raises: ShapeError, DtypeError.

    >>> effective_fraction(torch.tensor([1.0, 1.0, 2.0, 9.0]), torch.tensor([True, True, True, False]))
    tensor(0.8889)
    """
    return effective_sample_size(weight, mask) / mask.sum().clamp(min=1)


def _token(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return log_ratio


def _sequence(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return log_ratio.sum(-1, keepdim=True).expand(log_ratio.shape)


def _geometric(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return mean_of_tokens(log_ratio, mask)[..., None].expand(log_ratio.shape)


LEVELS = {"token": _token, "sequence": _sequence, "geometric": _geometric}
