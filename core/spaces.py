"""Spaces of observations and actions, as plain values, with `contains`, `clip_to_space` and `sample`."""

import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .errors import ShapeError, StructureError, at_least, message
from .keys import Key


@frozen
class Discrete:
    """Integers 0..n-1, int64 []. Raises: ChoiceError."""

    n: int

    def __attrs_post_init__(self) -> None:
        at_least("Discrete: n", self.n, 1)


@frozen
class Box:
    """Tensors of one shape with low <= x <= high; a bound is one number for all entries, or a tuple with one per entry.

    Raises: ShapeError, StructureError.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if not (isinstance(self.shape, tuple) and all(isinstance(size, int) and size >= 0 for size in self.shape)):
            got, remedy = repr(self.shape), "write (4,) for four numbers"
            raise ShapeError(message("Box: shape", got=got, wanted="a tuple of whole numbers", remedy=remedy))
        for name, bound in (("low", self.low), ("high", self.high)):
            if not (isinstance(bound, tuple) or hasattr(bound, "__float__")):
                got, remedy = type(bound).__name__, "write a list or an array as a tuple"
                raise StructureError(message(f"Box: {name}", got=got, wanted="a number or a tuple", remedy=remedy))
            if isinstance(bound, tuple) and len(bound) != math.prod(self.shape):
                got, wanted = f"{len(bound)} numbers", f"{math.prod(self.shape)}, or one for all"
                raise ShapeError(message(f"Box: {name}", got=got, wanted=wanted, remedy=f"fit it to {self.shape}"))


@frozen
class Fields:
    """Records or dicts with a space for each named field."""

    spaces: tuple[tuple[str, "Space"], ...]


Space = Discrete | Box | Fields


def field(value: Any, name: str) -> Any:
    """Return a record's attribute or a dict's entry.

    >>> field({"speed": 3}, "speed")
    3
    """
    return value[name] if isinstance(value, dict) else getattr(value, name)


def contains(space: Space, value: Any) -> Tensor:
    """Return whether `value`, with any leading axes, is in the space: bool [*] (bool [] if its shape does not fit).

    >>> contains(Discrete(2), torch.tensor([0, 2]))
    tensor([ True, False])
    """
    if isinstance(space, Discrete):
        if value.is_floating_point():
            return torch.zeros_like(value, dtype=torch.bool)
        member: Tensor = (value >= 0) & (value < space.n)
        return member
    if isinstance(space, Box):
        lead = value.ndim - len(space.shape)
        if lead < 0 or tuple(value.shape[lead:]) != space.shape:
            return torch.zeros((), dtype=torch.bool, device=value.device)
        dtype = value.dtype if value.is_floating_point() else torch.float64  # integers have no infinite bound
        low, high = (_bound(space, bound, dtype, value.device) for bound in (space.low, space.high))
        inside: Tensor = (value >= low) & (value <= high)
        return inside.reshape((*value.shape[:lead], -1)).all(-1)
    checks = [contains(inner, field(value, name)) for name, inner in space.spaces]
    result = checks[0]
    for check in checks[1:]:
        result = result & check
    return result


def _bound(space: Box, bound: float | tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if isinstance(bound, tuple):
        return torch.tensor(bound, dtype=dtype, device=device).reshape(space.shape)
    return torch.full(space.shape, bound, dtype=dtype, device=device)


def clip_to_space(space: Space, action: Tensor) -> Tensor:
    """Return the nearest action in the space: [*, *shape] -> [*, *shape]; only a Box has bounds to clip to, and NaN stays NaN.

    Raises: ShapeError.

    >>> clip_to_space(Box((0.0, -math.inf), 1.0, (2,)), torch.tensor([[-3.0, -3.0], [0.5, 2.0]]))
    tensor([[ 0.0000, -3.0000],
            [ 0.5000,  1.0000]])
    """
    if not isinstance(space, Box) or action.dtype == torch.bool:
        return action
    lead = action.ndim - len(space.shape)
    if lead < 0 or tuple(action.shape[lead:]) != space.shape:
        wanted = f"[*, {str(list(space.shape))[1:-1]}]" if space.shape else "[*]"
        remedy = "make the model for the env's action_space"
        raise ShapeError(message("clipped: action", got=list(action.shape), wanted=wanted, remedy=remedy))
    low, high = (_limit(space, bound, action, end) for bound, end in ((space.low, math.ceil), (space.high, math.floor)))
    if isinstance(low, Tensor) == isinstance(high, Tensor):
        return action if low is None and high is None else torch.clamp(action, low, high)
    above = action if low is None else torch.clamp(action, min=low)  # torch takes no number beside a tensor
    return above if high is None else torch.clamp(above, max=high)


def _limit(space: Box, bound: float | tuple[float, ...], action: Tensor, end: Callable[[float], int]) -> Any:
    """Return a bound for `torch.clamp` of an action: a number, a tensor [*shape], or None for no bound; whole for integers."""
    numbers: Any = tuple(map(float, bound)) if isinstance(bound, tuple) else (float(bound),)
    if not any(map(math.isfinite, numbers)):
        return None
    if not action.is_floating_point():
        known = torch.iinfo(action.dtype)
        numbers = [
            min(max(end(one), known.min), known.max) if math.isfinite(one) else (known.min if one < 0 else known.max)
            for one in numbers
        ]
    if len(set(numbers)) == 1:
        return numbers[0]
    return torch.stack([action.new_full((), one) for one in numbers]).reshape(space.shape)


def sample(space: Space, key: Key) -> Tensor:
    """Return a random member of the space: key [*, 2] -> [*, *shape].

    Uniform if both bounds are finite, exponential from a single finite bound, normal without finite bounds.
    Raises: StructureError for Fields, which are only observations.

    >>> bool(contains(Discrete(3), sample(Discrete(3), keys.key(0))))
    True
    """
    if isinstance(space, Discrete):
        return keys.randint(key, (), 0, space.n)
    if not isinstance(space, Box):
        raise StructureError(
            message("sample: space", got="Fields", wanted="Discrete or Box", remedy="sample its parts")
        )
    low, high = (_bound(space, bound, torch.float32, key.device) for bound in (space.low, space.high))
    if _finite(space.low) and _finite(space.high):
        return low + (high - low) * keys.uniform(key, space.shape)
    return _unbounded(low, high, key, space.shape)


def is_bounded(space: Space) -> bool:
    """Return whether the space is a Box whose bounds are all finite, each low one below its high one.

    >>> is_bounded(Box(0.0, 1.0, (2,))), is_bounded(Box(0.0, math.inf, (2,))), is_bounded(Discrete(2))
    (True, False, False)
    """
    if not isinstance(space, Box) or not (_finite(space.low) and _finite(space.high)):
        return False
    low, high = (_bound(space, bound, torch.float32, torch.device("cpu")) for bound in (space.low, space.high))
    return bool((low < high).all())


def _finite(bound: float | tuple[float, ...]) -> bool:
    return all(math.isfinite(number) for number in (bound if isinstance(bound, tuple) else (bound,)))


def _unbounded(low: Tensor, high: Tensor, key: Key, shape: tuple[int, ...]) -> Tensor:
    uniform_key, normal_key = keys.split(key)
    uniform = keys.uniform(uniform_key, shape)
    exponential = -torch.log1p(-uniform)
    floor, roof = (torch.where(torch.isfinite(bound), bound, 0.0) for bound in (low, high))
    half = torch.where(torch.isfinite(low), floor + exponential, roof - exponential)
    either = torch.isfinite(low) | torch.isfinite(high)
    both = torch.isfinite(low) & torch.isfinite(high)
    edged = torch.where(both, floor + (roof - floor) * uniform, half)
    return torch.where(either, edged, keys.normal(normal_key, shape))
