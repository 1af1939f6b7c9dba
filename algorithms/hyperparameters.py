"""Hyper-parameters of algorithms: plain numbers, or tensors so that a population with different values is one vmap."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core.errors import ChoiceError, StructureError, message
from ..core.numbers import Number as Number
from ..core.numbers import check_number as check_number

LARGEST = 1e30  # below the largest float32, with a margin
Clip = Number | tuple[Number, Number]  # how far a ratio may leave 1, or how far below and how far above
Numbers = Mapping[str, Number]  # hyper-parameters of an update by name; plain numbers are tensors [] of its state


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


def stored(numbers: Numbers, device: torch.device) -> dict[str, Tensor]:
    """Return the plain numbers as tensors [] float64 for an algorithm's state; numbers given as tensors are left out.

    >>> stored({"gamma": 0.5, "clip": torch.tensor(0.25)}, torch.device("cpu"))
    {'gamma': tensor(0.5000, dtype=torch.float64)}
    """
    plain = {name: number for name, number in numbers.items() if not isinstance(number, Tensor)}
    return {name: torch.tensor(number, dtype=torch.float64, device=device) for name, number in plain.items()}


def given_as_tensors(numbers: Numbers) -> dict[str, Tensor]:
    """Return the numbers that are tensors: an algorithm closes over these, and has the others in its state.

    >>> given_as_tensors({"gamma": 0.5, "clip": torch.tensor(0.25)})
    {'clip': tensor(0.2500)}
    """
    return {name: number for name, number in numbers.items() if isinstance(number, Tensor)}


def current(where: str, names: tuple[str, ...], numbers: Any, fixed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the numbers of an update: those of its state, and those that it closes over. Raises: StructureError.

    >>> current("ppo", ("gamma",), {"gamma": torch.tensor(0.5)}, {})
    {'gamma': tensor(0.5000)}
    >>> current("ppo", ("gamma",), (), {})
    Traceback (most recent call last):
    purestep.core.errors.StructureError: ppo: numbers of the state is without ['gamma'], wanted ['gamma']; make the state \
with the algorithm's `init`
    """
    known = {**(numbers or {}), **fixed}
    missing = [name for name in names if name not in known]
    if missing:
        got, remedy = f"without {missing}", "make the state with the algorithm's `init`"
        raise StructureError(message(f"{where}: numbers of the state", got=got, wanted=list(names), remedy=remedy))
    return {name: known[name] for name in names}


def scaled(coefficient: Number, term: Tensor) -> Tensor:
    """Return coefficient * term in the dtype of the term, also where both have no axes.

    >>> scaled(torch.tensor(0.5, dtype=torch.float64), torch.tensor(3.0))
    tensor(1.5000)
    """
    return (coefficient.to(term.dtype) if isinstance(coefficient, Tensor) else coefficient) * term
