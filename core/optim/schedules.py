"""Schedules: numbers as functions of the number n of updates done, int64 [] -> float64 []."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import StructureError, at_least, message
from ..numbers import check_number

Schedule = Callable[[Tensor], Tensor]


def constant(value: float) -> Schedule:
    """Return the schedule `value` for every n.

    >>> constant(0.5)(torch.tensor(7))
    tensor(0.5000, dtype=torch.float64)
    """
    _numbers("constant", value=value)
    return lambda count: torch.full_like(count, value, dtype=torch.float64)


def linear(start: float, end: float, steps: int) -> Schedule:
    """Return the schedule start + (end - start) n / steps up to n = steps, then `end`. Raises: ChoiceError.

    >>> linear(1.0, 0.0, 10)(torch.tensor(4))
    tensor(0.6000, dtype=torch.float64)
    """
    _numbers("linear", start=start, end=end)
    at_least("linear: steps", steps, 1)
    return lambda count: start + (end - start) * _fraction(count, steps)


def cosine(start: float, end: float, steps: int) -> Schedule:
    """Return the schedule end + (start - end) (1 + cos(pi n / steps)) / 2 up to n = steps, then `end`. Raises: ChoiceError.

    Source: Loshchilov and Hutter 2016, arXiv:1608.03983, without restarts.

    >>> cosine(1.0, 0.0, 3)(torch.tensor(1))
    tensor(0.7500, dtype=torch.float64)
    """
    _numbers("cosine", start=start, end=end)
    at_least("cosine: steps", steps, 1)
    return lambda count: end + (start - end) * 0.5 * (1.0 + torch.cos(math.pi * _fraction(count, steps)))


def warmup(steps: int, then: Schedule) -> Schedule:
    """Return the schedule then(0) (n + 1) / (steps + 1) for n < steps, and then(n - steps) from n = steps on.

    The warm-up starts above 0. Raises: ChoiceError.

    >>> [float(warmup(3, constant(1.0))(torch.tensor(n))) for n in (0, 1, 3, 4)]
    [0.25, 0.5, 1.0, 1.0]
    """
    at_least("warmup: steps", steps, 1)
    if not callable(then):
        remedy = "for a number that stays, constant(number)"
        raise StructureError(message("warmup: then", got=repr(then), wanted="a schedule", remedy=remedy))

    def schedule(count: Tensor) -> Tensor:
        rise = ((count + 1).to(torch.float64) / (steps + 1)).clamp_max(1.0)
        return rise * then((count - steps).clamp_min(0))

    return schedule


def _fraction(count: Tensor, steps: int) -> Tensor:
    return (count.to(torch.float64) / steps).clamp(0.0, 1.0)


def _numbers(where: str, **numbers: float) -> None:
    for name, number in numbers.items():
        check_number(f"{where}: {name}", number, -math.inf)
