"""Strategies: keys, dyadic tensors, masks, log-prob pairs and whole records.

Tensors come from one `binary` draw, which is fast and shrinks towards zeros. Values are multiples of 1/4, so that sums and
products are exact and laws can require equal bits. Sizes come from a few buckets, so that a subject compiles only a few times.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core import keys as core_keys
from ...core.errors import ShapeError, StructureError, message

R = TypeVar("R")

LENGTHS = (1, 2, 5)  # of the time axis
POISON = (math.nan, math.inf, -math.inf, 1e30)


def seeds(limit: int = 1 << 16) -> SearchStrategy[int]:
    """Small integers to make keys from; they print and shrink better than keys."""
    return st.integers(0, limit - 1)


def keys(shape: tuple[int, ...] = ()) -> SearchStrategy[Tensor]:
    """Keys [*shape, 2]; different entries are independent."""

    def make(seed: int) -> Tensor:
        key = core_keys.key(seed)
        return core_keys.split(key, math.prod(shape)).reshape(*shape, 2) if shape else key

    return seeds().map(make)


def _integers(data: bytes, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    if not data:
        return torch.zeros(tuple(shape), dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(tuple(shape)).clone()


def _binary(shape: Sequence[int], width: int = 1) -> SearchStrategy[bytes]:
    size = math.prod(shape) * width
    return st.binary(min_size=size, max_size=size)


def dyadic(
    shape: Sequence[int] = (), *, limit: float = 8.0, dtype: torch.dtype = torch.float32
) -> SearchStrategy[Tensor]:
    """Multiples of 1/4 in [-limit, limit), limit at most 32: sums and products of a few are exact in float32."""
    if not 0 < limit <= 32:
        raise ShapeError(message("dyadic: limit", got=limit, wanted="0 < limit <= 32", remedy="scale the tensor"))
    steps = int(4 * limit)

    def make(data: bytes) -> Tensor:
        raw = _integers(data, torch.int8, shape).to(torch.int64)
        return (((raw + steps) % (2 * steps) - steps).to(dtype)) / 4

    return _binary(shape).map(make)


def raw(shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> SearchStrategy[Tensor]:
    """Tensors of any bits that this dtype can have, including NaN, infinity, -0 and subnormal numbers. Not for bool."""
    return _binary(shape, dtype.itemsize).map(lambda data: _integers(data, dtype, shape))


def smooth(shape: Sequence[int] = (), *, limit: float = 2.0) -> SearchStrategy[Tensor]:
    """Float64 numbers in (-limit, limit) that miss every multiple of limit/32768 by at least half of that.

    Kinks (a zero, a clip bound, a tie) lie on such multiples; finite differences must not straddle one.
    """

    def make(data: bytes) -> Tensor:
        return (_integers(data, torch.int16, shape).to(torch.float64) + 0.5) * (limit / 32768)

    return _binary(shape, 2).map(make)


def flags(shape: Sequence[int] = ()) -> SearchStrategy[Tensor]:
    """Bool tensors, each entry true about one time in four."""
    return _binary(shape).map(lambda data: _integers(data, torch.uint8, shape) > 191)


def integers(shape: Sequence[int], low: int, high: int) -> SearchStrategy[Tensor]:
    """int64 in [low, high), high - low at most 256."""
    return _binary(shape).map(lambda data: _integers(data, torch.uint8, shape).to(torch.int64) % (high - low) + low)


def masks(batch: int, length: int, *, side: str = "right", least: int = 0) -> SearchStrategy[Tensor]:
    """Bool [batch, length], one run of true of a drawn length in each row, with padding on the `side` given."""

    def make(lengths: list[int]) -> Tensor:
        place = torch.arange(length)
        place = place if side == "right" else place.flip(0)
        return place[None, :] < torch.tensor(lengths)[:, None]

    return st.lists(st.integers(least, length), min_size=batch, max_size=batch).map(make)


@st.composite
def log_prob_pairs(draw: DrawFn, shape: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    """(log_prob, behaviour_log_prob), dyadic and at most 0: equal one time in four, else up to 2 apart."""
    log_prob = -draw(dyadic(shape, limit=2)).abs()
    if draw(st.integers(0, 3)) == 3:
        return log_prob, log_prob.clone()
    return log_prob, (log_prob + draw(dyadic(shape, limit=2))).clamp(max=0)


@st.composite
def probabilities(
    draw: DrawFn, shape: Sequence[int], *, parts: int = 16, zeros: bool = True, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Distributions over the last axis whose entries are multiples of 1/parts: exact when `parts` is a power of two."""
    least, size = int(not zeros), shape[-1]
    if parts < size:
        raise ShapeError(
            message("probabilities: parts", got=parts, wanted=f"at least {size}", remedy="pass more parts")
        )
    free = parts - least * size
    cuts = draw(integers((*shape[:-1], size - 1), 0, free + 1)).sort(-1).values
    low, high = torch.nn.functional.pad(cuts, (1, 0)), torch.nn.functional.pad(cuts, (0, 1), value=free)
    return (high - low + least).to(dtype) / parts


KINDS: dict[str, Callable[[tuple[int, ...]], SearchStrategy[Tensor]]] = {
    "float": dyadic,
    "": dyadic,
    "bool": flags,
    "int": lambda shape: integers(shape, 0, 8),
    "key": lambda shape: keys(shape[:-1]),
}


def from_record(cls: type[R], **given: Any) -> SearchStrategy[R]:
    """Records of a class, read from its fields: `from_record(Transition, T=5, B=3, action=integers((5, 3), 0, 2))`.

    T and B, if given, are the leading axes `*`; other numbers are the sizes that the fields name; strategies and values
    replace a field. A field that declares nothing (a tree) is drawn as a dyadic tensor over the leading axes.
    Raises: StructureError for a name that is neither a size nor a field, ShapeError for a size that is not given.
    """
    if not hasattr(cls, "__record_fields__"):
        raise StructureError(message("from_record: cls", got=cls, wanted="a record class", remedy="use @record"))
    fields = {f.name: f for f in attrs.fields(cast(Any, cls))}
    sizes = {name: value for name, value in given.items() if name not in fields and isinstance(value, int)}
    unknown = sorted(set(given) - set(sizes) - set(fields))
    if unknown:
        where = f"from_record: {cls.__name__}"
        raise StructureError(message(where, got=unknown, wanted=f"fields {sorted(fields)}", remedy="check the names"))
    lead = tuple(sizes[name] for name in ("T", "B") if name in sizes)
    parts = {}
    for name, f in fields.items():
        if name in given:
            parts[name] = given[name] if isinstance(given[name], SearchStrategy) else st.just(given[name])
        elif not f.metadata.get("static"):
            words = f.metadata.get("shape", "*").split()
            parts[name] = KINDS[f.metadata.get("kind", "")](_shape(f"{cls.__name__}.{name}", words, lead, sizes))
    return st.builds(cls, **parts)


def _shape(where: str, words: list[str], lead: tuple[int, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for word in words:
        if word != "*" and not word.isdigit() and word not in sizes:
            raise ShapeError(message(where, got="of unknown size", wanted=f"{word}=...", remedy="give the size"))
        shape += lead if word == "*" else (int(word) if word.isdigit() else sizes[word],)
    return shape


def register(cls: type[R], **given: Any) -> None:
    """Register the record for hypothesis, which then draws it by type: `st.builds`, `@given(x=...)`, the ghostwriter."""
    st.register_type_strategy(cls, from_record(cls, **given))
