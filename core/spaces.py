"""Which observations and actions an environment has: plain values, two functions."""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .errors import StructureError, message
from .keys import Key


@frozen
class Discrete:
    """Integers 0..n-1, int64 []."""

    n: int


@frozen
class Box:
    """Tensors of one shape with low <= x <= high; the bounds are numbers for all entries or a tuple, one for each."""

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: tuple[int, ...]


@frozen
class Fields:
    """Records or dicts with a space for each named field."""

    spaces: tuple[tuple[str, "Space"], ...]


Space = Discrete | Box | Fields


def field(value: Any, name: str) -> Any:
    """A record's attribute or a dict's entry."""
    return value[name] if isinstance(value, dict) else getattr(value, name)


def contains(space: Space, value: Any) -> Tensor:
    """Whether `value`, of any leading axes, lies in the space: bool [*].

    >>> contains(Discrete(2), torch.tensor([0, 2]))
    tensor([ True, False])
    """
    if isinstance(space, Discrete):
        if value.is_floating_point():
            return torch.zeros(value.shape, dtype=torch.bool)
        member: Tensor = (value >= 0) & (value < space.n)
        return member
    if isinstance(space, Box):
        low = torch.as_tensor(space.low, dtype=value.dtype, device=value.device)
        high = torch.as_tensor(space.high, dtype=value.dtype, device=value.device)
        inside: Tensor = (value >= low) & (value <= high)
        lead = value.ndim - len(space.shape)
        if lead < 0 or tuple(value.shape[lead:]) != space.shape:
            return torch.zeros((), dtype=torch.bool)
        return inside.reshape((*value.shape[:lead], -1)).all(-1)
    checks = [contains(inner, field(value, name)) for name, inner in space.spaces]
    result = checks[0]
    for check in checks[1:]:
        result = result & check
    return result


def sample(space: Space, key: Key) -> Tensor:
    """A uniform member; an unbounded box gives normal numbers: key [*, 2] -> [*, *shape].

    Raises: StructureError for Fields, which are observations, never actions.
    """
    if isinstance(space, Discrete):
        return keys.randint(key, (), 0, space.n)
    if isinstance(space, Box):
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        if not bool(torch.isfinite(high - low).all()):
            return keys.normal(key, space.shape)
        return low + (high - low) * keys.uniform(key, space.shape)
    raise StructureError(message("sample: space", got="Fields", wanted="Discrete or Box", remedy="sample its parts"))
