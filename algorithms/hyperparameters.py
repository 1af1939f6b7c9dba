"""Numbers that set an algorithm: plain, or tensors so that a population with different ones is one vmap."""

import math

import torch
from torch import Tensor

from ..core.errors import check_within

Number = float | Tensor  # a tensor has no axes but those that vmap hides


def bounded(x: Tensor, low: Number = -math.inf, high: Number = math.inf) -> Tensor:
    """min(max(x, low), high) in the dtype of x, with the gradient of x up to and on the bounds and 0 beyond: [*].

    >>> bounded(torch.tensor([0.0, 2.0, 9.0]), 1.0, torch.tensor(4.0, dtype=torch.float64))
    tensor([1., 2., 4.])
    """
    # Under vmap clamp takes the wider dtype of a tensor without axes, which elsewhere does not count.
    low, high = (bound.to(x.dtype) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(torch.clamp(x, min=low), max=high)


def check_number(where: str, number: Number, low: float, high: float = math.inf) -> None:
    """Raises ChoiceError unless low <= number <= high; what a tensor holds is not looked at.

    >>> check_number("gae: gamma", 99, 0.0, 1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: gae: gamma is 99, wanted a number from 0.0 to 1.0; change it
    """
    if not isinstance(number, Tensor):
        check_within(where, number, low, high)
