"""Gymnasium's spaces as ours and back, and the values in them: numpy there, tensors here.

| Gymnasium | here |
|---|---|
| Discrete(n, start) | Discrete(n): its number a is our a - start |
| MultiDiscrete(nvec, start) | MultiDiscrete of all sizes in one axis: its numbers a are our a - start |
| MultiBinary(n) | MultiBinary of all bits in one axis, int64 |
| Box(low, high) | Box(low, high): floats become float32, integers int64, but uint8 and bool stay |
| Dict | Fields, in the order of its names; observations are dicts there, dicts or records here |
| Tuple | Tuple |

Every conversion copies, so that no two owners share memory.
"""

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....core.errors import StructureError, message
from ....core.spaces import (
    Box,
    Discrete,
    Fields,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    field,
)

try:
    import gymnasium as gymnasium
    from gymnasium import spaces as spaces
    from gymnasium.vector import AutoresetMode as AutoresetMode  # the youngest of the names needed, of version 1.1
except ImportError:
    text = message("gymnasium", got="absent or too old", wanted=">= 1.1", remedy="pip install 'purestep[gym]'")
    raise ModuleNotFoundError(text, name="gymnasium") from None

PyTree = Any
Array = NDArray[Any]
Foreign = spaces.Space[Any]


def from_gymnasium(space: Foreign, where: str = "space") -> Space:
    """Return our space for Gymnasium's. Raises: StructureError for one that has no counterpart.

    >>> from_gymnasium(spaces.Dict(gear=spaces.Discrete(5, start=1), speed=spaces.Box(-1.0, 1.0, (2,))))
    Fields(spaces=(('gear', Discrete(n=5)), ('speed', Box(low=-1.0, high=1.0, shape=(2,)))))
    """
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscrete(tuple(int(size) for size in space.nvec.flatten()))
    if isinstance(space, spaces.MultiBinary):
        return MultiBinary(math.prod(space.shape))
    if isinstance(space, spaces.Box):
        kind = space.dtype.kind
        whole = {"f": torch.float32, "b": torch.float32}.get(
            kind, torch.uint8 if space.dtype == np.uint8 else torch.int64
        )
        return Box(_bound(space.low), _bound(space.high), tuple(space.shape), whole)
    if isinstance(space, spaces.Dict):
        return Fields(tuple((name, from_gymnasium(part, f"{where}.{name}")) for name, part in space.spaces.items()))
    if isinstance(space, spaces.Tuple):
        return Tuple(tuple(from_gymnasium(part, f"{where}.{place}") for place, part in enumerate(space.spaces)))
    wanted = "Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple"
    remedy = "wrap the env, for observations in gymnasium.wrappers.FlattenObservation"
    raise StructureError(message(f"gymnasium: {where}", got=type(space).__name__, wanted=wanted, remedy=remedy))


def _bound(bound: Array) -> float | tuple[float, ...]:
    if bound.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, that is, no bound
            bound = bound.astype(np.float32)
    numbers = tuple(float(number) for number in bound.flatten())
    return numbers[0] if len(set(numbers)) == 1 else numbers


def to_gymnasium(space: Space, like: PyTree) -> Foreign:
    """Return Gymnasium's space for ours; `like` is a value in it, whose dtypes a Box takes on.

    >>> space = Fields((("gear", Discrete(5)), ("lights", Box(0.0, 1.0, (2,)))))
    >>> to_gymnasium(space, {"gear": torch.tensor(1), "lights": torch.tensor([True, False])})
    Dict('gear': Discrete(5), 'lights': Box(False, True, (2,), bool))
    """
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, Box):
        dtype = to_numpy(like).dtype
        low, high = (_bounds(bound, space.shape, dtype) for bound in (space.low, space.high))
        return spaces.Box(low, high, space.shape, dtype)
    if isinstance(space, MultiDiscrete):
        return cast(Foreign, spaces.MultiDiscrete(list(space.sizes)))
    if isinstance(space, MultiBinary):
        return cast(Foreign, spaces.MultiBinary(space.n))
    if isinstance(space, Tuple):
        return spaces.Tuple([to_gymnasium(part, one) for part, one in zip(space.spaces, like, strict=True)])
    return spaces.Dict([(name, to_gymnasium(part, field(like, name))) for name, part in space.spaces])


def _bounds(bound: float | tuple[float, ...], shape: tuple[int, ...], dtype: Any) -> Array:
    numbers = np.array(bound, np.float64)
    array = numbers.reshape(shape) if numbers.ndim else np.full(shape, numbers)
    return array.astype(dtype) if dtype.kind == "f" else array  # Gymnasium itself converts infinite bounds of integers


def to_numpy(tensor: Tensor) -> Array:
    """Return a copy of the tensor as an array.

    >>> to_numpy(torch.tensor([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    array: Array = np.array(tensor.detach().cpu().numpy())
    return array


def to_arrays(space: Foreign, value: PyTree) -> Any:
    """Return our value [*, ...] as Gymnasium takes it in `space`, with that space's dtypes and names.

    >>> to_arrays(spaces.Discrete(5, start=1), torch.tensor([0, 4]))
    array([1, 5])
    """
    if isinstance(space, spaces.Dict):
        return {name: to_arrays(part, field(value, name)) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(to_arrays(part, one) for part, one in zip(space.spaces, value, strict=True))
    array = to_numpy(value)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        array = array.reshape(*array.shape[:-1], *space.shape)
        return (array + (space.start if isinstance(space, spaces.MultiDiscrete) else 0)).astype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return (array + space.start).astype(space.dtype)[()]  # there, a single number is a scalar and not an array
    return array.astype(space.dtype)


def to_tensors(space: Foreign, value: Any, device: torch.device | str | None = None) -> PyTree:
    """Return our value [*, ...] for Gymnasium's in `space`.

    >>> to_tensors(spaces.Dict(gear=spaces.Discrete(5, start=1)), {"gear": 5})
    {'gear': tensor(4)}
    """
    if isinstance(space, spaces.Dict):
        return {name: to_tensors(part, value[name], device) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(to_tensors(part, one, device) for part, one in zip(space.spaces, value, strict=True))
    array = np.asarray(value)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        whole = array.astype(np.int64) - (space.start if isinstance(space, spaces.MultiDiscrete) else 0)
        return torch.tensor(whole.reshape(*whole.shape[: whole.ndim - len(space.shape)], -1), device=device)
    if isinstance(space, spaces.Discrete):
        return torch.tensor(array.astype(np.int64) - int(space.start), device=device)
    if array.dtype.kind != "b" and array.dtype != np.uint8:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    return torch.tensor(array, device=device)
