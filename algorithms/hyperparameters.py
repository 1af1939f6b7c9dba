"""Hyper-parameters of algorithms: plain numbers, or tensors so that a population with different values is one vmap."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from ..core.errors import ChoiceError, StructureError, at_least, choose, message
from ..core.numbers import Number as Number
from ..core.numbers import check_number as check_number
from .kinds import KINDS, LARGEST, Kind

Fraction = Annotated[Number, KINDS["Fraction"]]
Weight = Annotated[Number, KINDS["Weight"]]
Coefficient = Annotated[Number, KINDS["Coefficient"]]
Clip = Annotated[Number | tuple[Number, Number], KINDS["Clip"]]
Limit = Annotated[Number, KINDS["Limit"]]
Count = Annotated[int, KINDS["Count"]]
Steps = Annotated[Number, KINDS["Steps"]]
Numbers = Mapping[str, Number]  # hyper-parameters of an update by name; plain numbers are tensors [] of its state


def bounded(x: Tensor, low: Number = -math.inf, high: Number = math.inf) -> Tensor:
    """Return min(max(x, low), high) in the dtype of x; its gradient is that of x within or on the bounds, 0 beyond: [*].

    >>> bounded(torch.tensor([0.0, 2.0, 9.0]), 1.0, torch.tensor(4.0, dtype=torch.float64))
    tensor([1., 2., 4.])
    """
    # Under vmap clamp promotes to the wider dtype of a 0-d tensor, which it does not do otherwise.
    low, high = (bound.to(x.dtype) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(torch.clamp(x, min=low), max=high)


def numbers_of(algorithm: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Number]:
    """Return the numbers among the arguments of an algorithm's function, each checked by the kind that annotates it.

    A pair of clips is `clip_low` and `clip_high`. An infinite limit is left out, as is the part of the update that reads it.
    Raises: ChoiceError, by the names of the function and its parameter.

    >>> def halving(model, *, rate: Fraction = 0.5, clip: Clip = 0.2, target: Limit = math.inf, passes: Count = 1): ...
    >>> numbers_of(halving, {"rate": 0.25, "clip": (0.1, 0.3), "target": math.inf, "passes": 2})
    {'rate': 0.25, 'clip_low': 0.1, 'clip_high': 0.3}
    >>> numbers_of(halving, {"rate": 2.0, "clip": 0.2, "target": math.inf, "passes": 2})
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: halving: rate is 2.0, wanted a number from 0.0 to 1.0; change it
    """
    numbers: dict[str, Number] = {}
    hints = get_type_hints(algorithm, include_extras=True)
    for name, value in given.items():
        where, hint = f"{algorithm.__name__}: {name}", hints.get(name)
        kind = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Kind)), None)
        if get_origin(hint) is Literal:
            choose(where, value, dict.fromkeys(get_args(hint)))
        elif kind == KINDS["Count"]:
            at_least(where, value, 1)
        elif kind == KINDS["Clip"]:
            low, high = check_clip(where, value)
            numbers |= {f"{name}_low": low, f"{name}_high": high} if isinstance(value, tuple) else {name: value}
        elif kind is not None:
            check_number(where, value, kind.low, kind.high)
            if kind != KINDS["Limit"] or isinstance(value, Tensor) or value < math.inf:
                numbers[name] = value
    return numbers


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


def stored_numbers(numbers: Numbers, device: torch.device) -> dict[str, Tensor]:
    """Return the plain numbers as tensors [] float64 for an algorithm's state; numbers given as tensors are left out.

    >>> stored_numbers({"gamma": 0.5, "clip": torch.tensor(0.25)}, torch.device("cpu"))
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


def current_numbers(where: str, names: tuple[str, ...], numbers: Any, fixed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the numbers of an update: those of its state, and those that it closes over. Raises: StructureError.

    >>> current_numbers("ppo", ("gamma",), {"gamma": torch.tensor(0.5)}, {})
    {'gamma': tensor(0.5000)}
    >>> current_numbers("ppo", ("gamma",), (), {})
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
