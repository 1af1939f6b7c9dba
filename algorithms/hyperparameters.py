"""Numbers that set an algorithm: plain, or tensors so that a population with different ones is one vmap."""

import math

import torch
from torch import Tensor

from ..core.errors import ChoiceError, message
from ..core.numbers import Number as Number
from ..core.numbers import check_number as check_number

LARGEST = 1e30  # what float32 holds, with room
Clip = Number | tuple[Number, Number]  # how far a ratio may leave 1, or how far below and how far above


def bounded(x: Tensor, low: Number = -math.inf, high: Number = math.inf) -> Tensor:
    """min(max(x, low), high) in the dtype of x, with the gradient of x up to and on the bounds and 0 beyond: [*].

    >>> bounded(torch.tensor([0.0, 2.0, 9.0]), 1.0, torch.tensor(4.0, dtype=torch.float64))
    tensor([1., 2., 4.])
    """
    # Under vmap clamp takes the wider dtype of a tensor without axes, which elsewhere does not count.
    low, high = (bound.to(x.dtype) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(torch.clamp(x, min=low), max=high)


def check_clip(where: str, clip: Clip) -> tuple[Number, Number]:
    """Returns the pair that `clip` stands for. Raises: ChoiceError.

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
    """Raises ChoiceError unless each, which a part of a loss is multiplied by, is a finite number.

    >>> check_coefficients("ppo", entropy_coefficient=float("nan"))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: ppo: entropy_coefficient is nan, wanted a number from -1e+30 to 1e+30; change it
    """
    for name, number in coefficients.items():
        check_number(f"{where}: {name}", number, -LARGEST, LARGEST)
