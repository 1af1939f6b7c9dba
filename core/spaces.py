"""Spaces of observations and actions, as plain values, with `contains`, `clip_to_space` and `sample`."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .errors import DtypeError, ShapeError, StructureError, at_least, message
from .keys import Key

A = TypeVar("A")
MOST_VALUES = 1 << 30  # of whole numbers that are drawn with equal probabilities; more are rounded floats
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@frozen
class Discrete:
    """Integers 0..n-1, int64 []. Raises: ChoiceError."""

    n: int

    def __attrs_post_init__(self) -> None:
        at_least("Discrete: n", self.n, 1)


@frozen
class MultiDiscrete:
    """K integers, the k-th from 0..sizes[k]-1, int64 [K]. Raises: StructureError, ChoiceError."""

    sizes: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.sizes, tuple) or not self.sizes:
            got, remedy = repr(self.sizes), "write (3, 3) for two digits of three values"
            raise StructureError(message("MultiDiscrete: sizes", got=got, wanted="a tuple of sizes", remedy=remedy))
        for size in self.sizes:
            at_least("MultiDiscrete: a size", size, 1)


@frozen
class MultiBinary:
    """n numbers, each 0 or 1, int64 [n]; of observations also bool [n]. Raises: ChoiceError."""

    n: int

    def __attrs_post_init__(self) -> None:
        at_least("MultiBinary: n", self.n, 1)


@frozen
class Box:
    """Tensors of one shape with low <= x <= high; a bound is one number for all entries, or a tuple with one per entry.

    `dtype` is that of a sample and, for whole numbers, of an action that `clip_to_space` returns; observations may have any.
    Raises: ShapeError, StructureError, DtypeError.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def __repr__(self) -> str:
        whole = f", dtype={self.dtype}" if self.dtype != torch.float32 else ""
        return f"Box(low={self.low}, high={self.high}, shape={self.shape}{whole})"

    def __attrs_post_init__(self) -> None:
        if self.dtype not in (torch.float32, *WHOLE):
            got, remedy = repr(self.dtype), "leave it out for float32"
            raise DtypeError(message("Box: dtype", got=got, wanted="torch.float32 or an integer type", remedy=remedy))
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
    """Records or dicts with a space for each named field; an action is a dict."""

    spaces: tuple[tuple[str, "Space"], ...]


@frozen
class Tuple:
    """Tuples with a space for each position."""

    spaces: tuple["Space", ...]


Space = Discrete | MultiDiscrete | MultiBinary | Box | Fields | Tuple


def field(value: Any, name: str | int) -> Any:
    """Return a record's attribute, or an entry of a dict or tuple.

    >>> field({"speed": 3}, "speed"), field((4, 5), 1)
    (3, 5)
    """
    entries: Any = value
    return entries[name] if isinstance(value, dict | tuple) else getattr(value, str(name))


def parts(space: Fields | Tuple) -> tuple[tuple[str | int, Space], ...]:
    """Return the spaces inside, each with its name or position, by which `field` finds a value's part.

    >>> parts(Tuple((Discrete(2), MultiBinary(3))))
    ((0, Discrete(n=2)), (1, MultiBinary(n=3)))
    """
    return space.spaces if isinstance(space, Fields) else tuple(enumerate(space.spaces))


def assembled(space: Fields | Tuple, values: Sequence[Any]) -> Any:
    """Return the values of the parts as one: a dict for Fields, a tuple for a Tuple.

    >>> assembled(Fields((("gear", Discrete(2)), ("speed", Box(0.0, 1.0, ())))), [1, 0.5])
    {'gear': 1, 'speed': 0.5}
    """
    if isinstance(space, Tuple):
        return tuple(values)
    return {name: value for (name, _), value in zip(space.spaces, values, strict=True)}


def tree_of(space: Space, leaf: Any) -> Any:
    """Return a tree with the structure of an action, with `leaf` in the place of each tensor.

    >>> tree_of(Tuple((Discrete(2), Fields((("speed", Box(0.0, 1.0, ())),)))), 7)
    (7, {'speed': 7})
    """
    if isinstance(space, Fields | Tuple):
        return assembled(space, [tree_of(inner, leaf) for _, inner in parts(space)])
    return leaf


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
    if isinstance(space, MultiDiscrete | MultiBinary):
        sizes = sizes_of(space)
        if value.is_floating_point() or value.shape[-1:] != (len(sizes),):
            return torch.zeros((), dtype=torch.bool, device=value.device)
        below = torch.stack([one < size for one, size in zip(value.unbind(-1), sizes, strict=True)], -1)
        each: Tensor = (value >= 0) & below
        return each.all(-1)
    if isinstance(space, Box):
        lead = value.ndim - len(space.shape)
        if lead < 0 or tuple(value.shape[lead:]) != space.shape:
            return torch.zeros((), dtype=torch.bool, device=value.device)
        dtype = value.dtype if value.is_floating_point() else torch.float64  # integers have no infinite bound
        low, high = (_bound(space, bound, dtype, value.device) for bound in (space.low, space.high))
        inside: Tensor = (value >= low) & (value <= high)
        return inside.reshape((*value.shape[:lead], -1)).all(-1)
    checks = [contains(inner, field(value, name)) for name, inner in parts(space)]
    if not checks:
        return torch.ones((), dtype=torch.bool)
    result = checks[0]
    for check in checks[1:]:
        result = result & check
    return result


def shape_of(space: Discrete | MultiDiscrete | MultiBinary | Box) -> tuple[int, ...]:
    """Return the shape of one value of a space of tensors.

    >>> shape_of(Discrete(3)), shape_of(MultiBinary(3))
    ((), (3,))
    """
    if isinstance(space, Box):
        return space.shape
    return () if isinstance(space, Discrete) else (len(sizes_of(space)),)


def sizes_of(space: MultiDiscrete | MultiBinary) -> tuple[int, ...]:
    """Return how many values each number of the space has.

    >>> sizes_of(MultiBinary(3))
    (2, 2, 2)
    """
    return space.sizes if isinstance(space, MultiDiscrete) else (2,) * space.n


def _bound(space: Box, bound: float | tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if isinstance(bound, tuple):
        return torch.tensor(bound, dtype=dtype, device=device).reshape(space.shape)
    return torch.full(space.shape, bound, dtype=dtype, device=device)


def clip_to_space(space: Space, action: A) -> A:
    """Return the nearest action in the space: [*, *shape] -> [*, *shape]; only a Box has bounds to clip to, and NaN stays NaN.

    Where the Box is of whole numbers, a float is rounded to the nearest one, half a number to the even one.
    Raises: ShapeError.

    >>> clip_to_space(Box((0.0, -math.inf), 1.0, (2,)), torch.tensor([[-3.0, -3.0], [0.5, 2.0]]))
    tensor([[ 0.0000, -3.0000],
            [ 0.5000,  1.0000]])
    >>> clip_to_space(Box(0, 3, (2,), torch.int64), torch.tensor([1.6, 9.0]))
    tensor([2, 3])
    """
    if isinstance(space, Fields | Tuple):
        clipped: Any = assembled(space, [clip_to_space(inner, field(action, name)) for name, inner in parts(space)])
    elif isinstance(space, Box) and isinstance(action, Tensor) and action.dtype != torch.bool:
        clipped = _clipped(space, action)
    else:
        clipped = action
    inside: A = clipped
    return inside


def _clipped(space: Box, action: Tensor) -> Tensor:
    lead = action.ndim - len(space.shape)
    if lead < 0 or tuple(action.shape[lead:]) != space.shape:
        wanted = f"[*, {str(list(space.shape))[1:-1]}]" if space.shape else "[*]"
        remedy = "make the model for the env's action_space"
        raise ShapeError(message("clipped: action", got=list(action.shape), wanted=wanted, remedy=remedy))
    if space.dtype in WHOLE and action.is_floating_point():
        action = torch.round(action.to(torch.float64)).clamp(-(2.0**53), 2.0**53).to(torch.int64)
    low, high = (_limit(space, bound, action, end) for bound, end in ((space.low, math.ceil), (space.high, math.floor)))
    if isinstance(low, Tensor) == isinstance(high, Tensor):
        clipped = action if low is None and high is None else torch.clamp(action, low, high)
    else:  # torch takes no number beside a tensor
        clipped = action if low is None else torch.clamp(action, min=low)
        clipped = clipped if high is None else torch.clamp(clipped, max=high)
    return clipped.to(space.dtype) if space.dtype in WHOLE else clipped


def _limit(space: Box, bound: float | tuple[float, ...], action: Tensor, end: Callable[[float], int]) -> Any:
    """Return a bound for `torch.clamp` of an action: a number, a tensor [*shape], or None for no bound; whole for integers."""
    numbers: Any = tuple(map(float, bound)) if isinstance(bound, tuple) else (float(bound),)
    if not any(map(math.isfinite, numbers)):
        return None
    if not action.is_floating_point():
        known = torch.iinfo(space.dtype if space.dtype in WHOLE else action.dtype)
        numbers = [
            min(max(end(one), known.min), known.max) if math.isfinite(one) else (known.min if one < 0 else known.max)
            for one in numbers
        ]
    if len(set(numbers)) == 1:
        return numbers[0]
    return torch.stack([action.new_full((), one) for one in numbers]).reshape(space.shape)


def sample(space: Space, key: Key) -> Any:
    """Return a random member of the space: key [*, 2] -> [*, *shape], a dict of them for Fields, a tuple for a Tuple.

    Of a Box: uniform if both bounds are finite, exponential from a single finite bound, normal without finite bounds; of whole
    numbers the nearest one to that, and each with the same probability where both bounds are finite.

    >>> bool(contains(Discrete(3), sample(Discrete(3), keys.key(0))))
    True
    """
    if isinstance(space, Discrete):
        return keys.randint(key, (), 0, space.n)
    if isinstance(space, MultiDiscrete | MultiBinary):
        sizes = torch.tensor(sizes_of(space), device=key.device)
        return keys.randint(key, tuple(sizes.shape), 0, sizes)
    if isinstance(space, Fields | Tuple):
        own = keys.split(key, len(space.spaces))
        return assembled(space, [sample(inner, one) for (_, inner), one in zip(parts(space), own, strict=True)])
    bounded = _finite(space.low) and _finite(space.high)
    if space.dtype in WHOLE:
        low, high = (_bound(space, bound, torch.float64, key.device) for bound in (space.low, space.high))
        if bounded and _widest(space) < MOST_VALUES:
            least, most = torch.ceil(low).to(torch.int64), torch.floor(high).to(torch.int64)
            return keys.randint(key, space.shape, least, most + 1).to(space.dtype)
        drawn = (
            low + (high - low) * keys.uniform(key, space.shape) if bounded else _unbounded(low, high, key, space.shape)
        )
        return clip_to_space(space, drawn)
    low, high = (_bound(space, bound, torch.float32, key.device) for bound in (space.low, space.high))
    if bounded:
        return low + (high - low) * keys.uniform(key, space.shape)
    return _unbounded(low, high, key, space.shape)


def _widest(space: Box) -> float:
    low, high = (bound if isinstance(bound, tuple) else (bound,) for bound in (space.low, space.high))
    return max(high, default=0.0) - min(low, default=0.0)


def learners_of(space: Space) -> str:
    """Return the names of the algorithms that take actions of the space, for messages.

    >>> learners_of(MultiDiscrete((2, 3)))
    'ppo, a2c or reinforce'
    """
    own = {Discrete: "dqn, discrete_sac, ", Box: "sac, td3, ddpg, "}.get(type(space), "")
    return f"{own}ppo, a2c or reinforce"


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
