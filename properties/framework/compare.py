"""Equality that reports where it fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

from ...core.tree import leaf_names
from .law import Broken, Unlike


@frozen
class Tolerance:
    """Allowed difference of two floats: |got - wanted| <= absolute + relative |wanted|. Other dtypes must be equal."""

    name: str
    relative: float = 0.0
    absolute: float = 0.0


PLAIN = (int, str, bool)
EXACT = Tolerance("exact")
ULPS = 64  # of rounding errors that an equation may collect where equal bits are not promised
ROUNDING = Tolerance("rounding", 1e-5, 1e-6)  # float32, another order of sums or another kernel's exp, sin, tanh
DOUBLE = Tolerance("double", 1e-9, 1e-10)  # float64 expectations and linear solves
CURVATURE = Tolerance("curvature", 1e-3, 1e-5)  # finite differences in float64


_rounded: ContextVar[bool] = ContextVar("purestep_rounded", default=False)


@contextmanager
def rounding() -> Iterator[None]:
    """Let floats of numeric laws differ by rounding inside a `with` block: EXACT then allows ULPS units of the last place.

    The unit is that of the largest finite number on either side, since a sum rounds as its largest term does.
    """
    token = _rounded.set(True)
    try:
        yield
    finally:
        _rounded.reset(token)


def _arithmetic(got: Tensor, wanted: Tensor) -> Tolerance:
    largest = max([float(x[x.isfinite()].abs().max()) for x in (got, wanted) if bool(x.isfinite().any())] + [1.0])
    return Tolerance("arithmetic", absolute=ULPS * torch.finfo(wanted.dtype).eps * largest)


def bits_of(tensor: Tensor) -> Tensor:
    """Return the tensor as integers, so that NaN equals itself and -0.0 differs from 0.0.

    >>> bits_of(torch.tensor([1.0, -0.0]))
    tensor([ 1065353216, -2147483648], dtype=torch.int32)
    """
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    tensor = tensor.detach().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(sizes[tensor.element_size()])


def unequal(got: Tensor, wanted: Tensor, tolerance: Tolerance = EXACT) -> Tensor:
    """Return where two tensors of one shape and dtype differ: bool [*]. 0.0 equals -0.0, and NaN equals NaN."""
    if not got.is_floating_point():
        return got != wanted
    if tolerance is EXACT and _rounded.get():
        tolerance = _arithmetic(got, wanted)
    same = (got == wanted) | (got.isnan() & wanted.isnan())
    if tolerance.relative or tolerance.absolute:
        same = same | ((got - wanted).abs() <= tolerance.absolute + tolerance.relative * wanted.abs())
    return ~same


def same(claim: str, got: Any, wanted: Any, tolerance: Tolerance = EXACT) -> None:
    """Raise Broken at the first leaf in which two trees differ: structure, shape, dtype, then values.

    >>> same("the sum", torch.tensor([1, 2]), torch.tensor([1, 3]))
    Traceback (most recent call last):
    purestep.properties.framework.law.Broken: the sum: got 2, wanted 3 at [1] (got [1, 2], wanted [1, 3])
    """
    if _plainly_same(got, wanted):
        return
    (ours, structure), (theirs, expected) = pytree.tree_flatten(got), pytree.tree_flatten(wanted)
    if structure != expected:
        raise Unlike(f"{claim}: got the structure {leaf_names(got)}, wanted {leaf_names(wanted)}")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not _alike(a, b, tolerance):
            name = leaf_names(got)[number]  # names are needed for a message alone
            _refuse_leaf(f"{claim}{name and f' at {name}'}", a, b, tolerance)


def _plainly_same(got: Any, wanted: Any) -> bool:
    """Return whether both are equal ints, strings or bools, or lists or tuples of them: a fast path for the common case."""
    kind = type(got)
    if kind is not type(wanted):
        return False
    if kind in PLAIN:
        return bool(got == wanted)
    rows = kind in (list, tuple) and len(got) == len(wanted)
    return rows and all(type(a) is type(b) and type(a) in PLAIN and a == b for a, b in zip(got, wanted, strict=True))


def _alike(got: Any, wanted: Any, tolerance: Tolerance) -> bool:
    if not (isinstance(got, Tensor) and isinstance(wanted, Tensor)):
        equal: Any = got == wanted if type(got) is type(wanted) else False
        return bool(equal.all() if hasattr(equal, "all") else equal)  # arrays of numpy or JAX
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return False
    return not bool(unequal(got.detach(), wanted.detach(), tolerance).any())


def _refuse_leaf(where: str, got: Any, wanted: Any, tolerance: Tolerance) -> None:
    if not (isinstance(got, Tensor) and isinstance(wanted, Tensor)):
        kind = f"{type(got).__name__} " if isinstance(wanted, Tensor) else ""
        raise Unlike(f"{where}: got {kind}{got!r}, wanted {wanted!r}")
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        other = Unlike(f"{where}: got {list(got.shape)} {got.dtype}, wanted {list(wanted.shape)} {wanted.dtype}")
        other.got, other.wanted = got.detach(), wanted.detach()
        raise other
    got, wanted = got.detach(), wanted.detach()
    index = tuple(int(i) for i in unequal(got, wanted, tolerance).nonzero()[0])
    text = f"{where}: got {_number(got[index])}, wanted {_number(wanted[index])}"
    if index:
        text += f" at {list(index)}"
        if got.numel() <= 8:
            text += f" (got {_numbers(got)}, wanted {_numbers(wanted)})"
    broken = Broken(text)
    broken.got, broken.wanted = got, wanted
    raise broken


def require(condition: Any, claim: str) -> None:
    """Raise Broken unless the condition (a bool, or all entries of a bool tensor) holds."""
    if not (bool(condition.all()) if isinstance(condition, Tensor) else condition):
        raise Broken(claim)


def _number(value: Tensor) -> str:
    return repr(value.item())


def _numbers(value: Tensor) -> str:
    return repr(value.tolist())
