"""Hyper-parameters: plain numbers, or tensors, so that a population with different values is one vmap."""

import math

import torch
from torch import Tensor

from .errors import ChoiceError, DtypeError, ShapeError, message

Number = float | Tensor  # a tensor is 0-d, except for axes hidden by vmap
SCHEDULED = "pass a number; a schedule goes behind an optimiser, chain(adam(1.0), scale_by_schedule(schedule))"


def check_number(where: str, number: Number, low: float, high: float = math.inf, *, below: bool = False) -> None:
    """Refuse `number` unless low <= number <= high, with `below` number < high; the values of tensors are not checked.

    Raises: ChoiceError, for a tensor ShapeError and DtypeError.

    >>> check_number("gae: gamma", 99, 0.0, 1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: gae: gamma is 99, wanted a number from 0.0 to 1.0; change it
    """
    if isinstance(number, Tensor):
        if number.ndim:
            remedy = "for a population, map over it with torch.vmap"
            raise ShapeError(message(where, got=list(number.shape), wanted="a number, []", remedy=remedy))
        if number.is_complex() or number.dtype == torch.bool:
            raise DtypeError(message(where, got=number.dtype, wanted="a real number", remedy="convert it"))
        return
    plain = hasattr(number, "__float__") and not isinstance(number, bool)
    if not plain or not (low <= number < high if below else low <= number <= high):
        span = f"from {low} " + ("up, finite" if below and math.isinf(high) else f"to {'below ' * below}{high}")
        got = number if plain else repr(number) if isinstance(number, str | bool | None) else type(number).__name__
        remedy = "change it" if plain else SCHEDULED if callable(number) else "pass a number"
        raise ChoiceError(message(where, got=got, wanted=f"a number {span}", remedy=remedy))
