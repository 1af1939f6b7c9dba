"""Hyper-parameters of algorithms: plain numbers, or tensors so that a population with different values is one vmap."""

import math

import torch
from torch import Tensor

from ..core.errors import ChoiceError, message
from ..core.numbers import Number as Number
from ..core.numbers import check_number as check_number

LARGEST = 1e30  # below the largest float32, with a margin
Clip = Number | tuple[Number, Number]  # how far a ratio may leave 1, or how far below and how far above


def bounded(x: Tensor, low: Number = -math.inf, high: Number = math.inf) -> Tensor:
    """Return min(max(x, low), high) in the dtype of x; its gradient is that of x within or on the bounds, 0 beyond: [*].

    >>> bounded(torch.tensor([0.0, 2.0, 9.0]), 1.0, torch.tensor(4.0, dtype=torch.float64))
    tensor([1., 2., 4.])
    """
    # Under vmap clamp promotes to the wider dtype of a 0-d tensor, which it does not do otherwise.
    low, high = (bound.to(x.dtype) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(torch.clamp(x, min=low), max=high)


def check_clip(where: str, clip: Clip) -> tuple[Number, Number]:
    """Return `clip` as a pair (low, high). Raises: ChoiceError.

    >>> check_clip("ppo: clip", 0.2)
    (0.2, 0.2)
    """
    if isinstance(clip, tuple) and len(clip) != 2:
        remedy = "pass one number, or how far below 1 and how far above"
        raise ChoiceError(message(where, got=f"{len(clip)} numbers", wanted="one or two", remedy=remedy))
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    check_number(f"{where} below", low, 0.0)
    check_number(f"{where} above", high, 0.0)
    return low, high


def check_coefficients(where: str, **coefficients: Number) -> None:
    """Raise ChoiceError unless each coefficient of a loss term is a finite number.

    >>> check_coefficients("ppo", entropy_coefficient=float("nan"))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: ppo: entropy_coefficient is nan, wanted a number from -1e+30 to 1e+30; change it
    """
    for name, number in coefficients.items():
        check_number(f"{where}: {name}", number, -LARGEST, LARGEST)
