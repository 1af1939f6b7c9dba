"""Weights for tokens that a sampler drew whose probabilities are not quite the trainer's: another engine, older weights.

    D_t = log p(token) under the trainer, when the data came in - log-prob the sampler reported
    w_t = exp(D_t)                            `level` "token"
    w_t = exp(sum of D over the sequence)     "sequence", at each of its tokens: unbiased, and wide
    w_t = exp(mean of D over the sequence)    "geometric", at each of its tokens: its length does not count

A weight multiplies the loss of its token after any clip. It is a constant, always finite, and 0 in the padding, whatever
stood there. Where D_t is not finite (a sampler that reports -inf, or no number) nothing is known: D_t counts as 0 and a
token's weight is 1. Weights need not be truncated at the level at which tokens are left out, so both take the log-probs:
`truncated_weights(...) * within(..., level="geometric")` is OpenRLHF's seq-mask-tis.

Sources: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (truncated, token);
Liu et al. 2025, "When speed kills stability" (masked; sequences); Ling Team 2025, arXiv:2510.18855 (IcePop).
"""

import math

import torch
from torch import Tensor

from ..core.errors import choose
from ..core.shapes import boolean, same_shape
from .hyperparameters import Number, bounded, check_number
from .masking import mean_of_tokens, neutral


def importance_weights(log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, level: str = "token") -> Tensor:
    """w as it is: [*, L], [*, L], bool [*, L] -> [*, L], at most about the largest number of its dtype.

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
    """Truncated importance sampling: min(max(w, low), high) where the token counts; [*, L] each -> [*, L].

    Most systems know `high` alone (2 is usual); OpenRLHF and slime have `low` as well.
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

    IcePop at level "token" (with 0.5 and 5, say); at another level whole sequences are left out. Take the denominator of the
    reduction from the mask before: what is left out must not make the rest weigh more.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([0.5, 8.0, 9.0]).log(), torch.tensor([True, True, False])
    >>> masked_weights(log_prob, torch.zeros(3), mask, high=2.0)
    tensor([0.5000, 0.0000, 0.0000])
    """
    weight = importance_weights(log_prob, sampler_log_prob, mask, level=level)
    kept = within(log_prob, sampler_log_prob, mask, high=high, low=low, level=level)
    return torch.where(kept, weight, 0.0)


def within(
    log_prob: Tensor, sampler_log_prob: Tensor, mask: Tensor, *, high: Number, low: Number = 0.0, level: str = "token"
) -> Tensor:
    """Which tokens count and have low <= w <= high: bool [*, L], a mask no wider than the one given.

    "geometric" leaves out whole sequences that the trainer would hardly have written.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> log_prob, mask = torch.tensor([[0.5, 8.0], [1.0, 1.0]]).log(), torch.tensor([[True, True], [True, False]])
    >>> within(log_prob, torch.zeros(2, 2), mask, low=0.5, high=1.5, level="geometric")
    tensor([[False, False],
            [ True, False]])
    """
    check_number("within: low", low, 0.0)
    check_number("within: high", high, low if not isinstance(low, Tensor) else 0.0)
    weight = importance_weights(log_prob, sampler_log_prob, mask, level=level)
    return mask & (weight >= low) & (weight <= high)


def effective_sample_size(weight: Tensor, mask: Tensor) -> Tensor:
    """Of how many equally weighed tokens the mean would be as certain: (sum w)^2 / sum w^2, from 0 or 1 to their number.

    Shapes: [*], bool [*] -> []; 0 where nothing weighs. Raises: ShapeError, DtypeError.
    Source: Kish 1965, Survey Sampling, section 11.7.

    >>> effective_sample_size(torch.tensor([1.0, 1.0, 2.0, 9.0]), torch.tensor([True, True, True, False]))
    tensor(2.6667)
    """
    (quiet,) = neutral(mask, weight.detach())
    largest = quiet.abs().amax()
    share = quiet / torch.where(largest == 0, 1.0, largest)  # the squares of large weights would overflow
    squares = share.square().sum()
    return share.sum().square() / torch.where(squares == 0, 1.0, squares)


def effective_fraction(weight: Tensor, mask: Tensor) -> Tensor:
    """The effective sample size in parts of the tokens that count: (sum w)^2 / (n sum w^2), in [0, 1]; 0 of nothing.

    PipelineRL writes it so; verl writes 1 / mean((w / mean w)^2), which is the same number.
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
