"""Layout of a tree of tensors in one buffer of bytes: each leaf at an aligned offset, under its name.

The description is text, so that a process that opens a buffer can name the leaf that differs from its own architecture.
"""

import json
import math
import zlib
from collections.abc import Iterable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from .....core.errors import PurestepError, StructureError, message
from .....core.tree import leaf_names, leaves

ALIGNMENT = 64  # bytes: a cache line, and more than any dtype needs


class WeightsError(PurestepError, RuntimeError):
    """Error for weights that are not available: of another architecture, of another publisher, or overwritten during reads."""


@frozen
class LeafLayout:
    """One leaf in the buffer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int  # in bytes

    @property
    def size(self) -> int:
        """Return the leaf's size in bytes."""
        return math.prod(self.shape) * self.element.itemsize

    @property
    def element(self) -> torch.dtype:
        """Return the leaf's torch.dtype."""
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


@frozen
class WeightLayout:
    """The position of each leaf of a tree; `size` bytes in all, a multiple of the alignment."""

    parts: tuple[LeafLayout, ...]
    size: int


def layout(tree: Any) -> WeightLayout:
    """Return the layout of a tree of dense tensors: leaf after leaf in the tree's order, each aligned.

    offset_0 = 0,   offset_i+1 = offset_i + bytes_i, rounded up to a multiple of 64

    Raises: StructureError for a leaf that is no dense tensor or whose name is taken.

    >>> layout({"a": torch.ones(3), "b": torch.ones((), dtype=torch.bfloat16)})
    WeightLayout(parts=(LeafLayout(name='a', shape=(3,), dtype='float32', offset=0), LeafLayout(name='b', shape=(), \
dtype='bfloat16', offset=64)), size=128)
    """
    parts: list[LeafLayout] = []
    end = 0
    for name, leaf in zip(leaf_names(tree), leaves(tree), strict=True):
        _refuse_leaf(name, leaf, {part.name for part in parts})
        part = LeafLayout(name, tuple(leaf.shape), str(leaf.dtype).removeprefix("torch."), end)
        parts.append(part)
        end += -(-part.size // ALIGNMENT) * ALIGNMENT
    return WeightLayout(tuple(parts), end)


def _refuse_leaf(name: str, leaf: Any, taken: set[str]) -> None:
    dense = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_quantized
    if not dense:
        got = f"{leaf.layout} tensor" if isinstance(leaf, Tensor) else type(leaf).__name__
        remedy = "keep numbers and names out of the params, and () for what is absent"
        raise StructureError(message(f"layout: {name}", got=got, wanted="a dense tensor", remedy=remedy))
    if name in taken:
        remedy = "rename the dict key, and put no dots in keys"
        raise StructureError(
            message(f"layout: {name}", got="a name that is taken", wanted="one leaf for each", remedy=remedy)
        )


def text(own: WeightLayout) -> str:
    """Return the layout as JSON in one line; equal layouts have equal texts.

    >>> text(WeightLayout((LeafLayout("a", (3,), "float32", 0),), 64))
    '[["a",[3],"float32",0]]'
    """
    rows = [[part.name, list(part.shape), part.dtype, part.offset] for part in own.parts]
    return json.dumps(rows, separators=(",", ":"))


def same_architecture(where: str, found: str, wanted: WeightLayout) -> None:
    """Raise WeightsError, naming the first leaf that differs, unless `found` is the text of `wanted`.

    >>> same_architecture("fetch", '[["a",[2],"float32",0]]', layout({"a": torch.ones(3)}))
    Traceback (most recent call last):
    purestep.runtime.effects.weight_sync.shared_memory.layout.WeightsError: fetch: a is [2] float32, wanted \
[3] float32; build the architecture that is published
    """
    if found == text(wanted):
        return
    have = {name: LeafLayout(name, tuple(shape), dtype, offset) for name, shape, dtype, offset in json.loads(found)}
    want = {part.name: part for part in wanted.parts}
    differing = [name for name in dict.fromkeys((*want, *have)) if have.get(name) != want.get(name)]
    name = differing[0] if differing else "the order of leaves"
    got, other = have.get(name, "absent"), want.get(name, "no such leaf")
    if isinstance(got, LeafLayout) and isinstance(other, LeafLayout) and str(got) == str(other):
        got, other = f"at byte {got.offset}", f"at byte {other.offset}"
    raise WeightsError(
        message(f"{where}: {name}", got=got, wanted=other, remedy="build the architecture that is published")
    )


def views(own: WeightLayout, buffer: Tensor) -> list[Tensor]:
    """Return the leaves as views of a buffer [size] of bytes (uint8), in the tree's order.

    >>> views(layout({"a": torch.ones(2)}), torch.zeros(64, dtype=torch.uint8))
    [tensor([0., 0.])]
    """
    return [
        buffer[part.offset : part.offset + part.size].view(part.element).reshape(part.shape)
        if part.size
        else torch.empty(part.shape, dtype=part.element)
        for part in own.parts
    ]


def checksum(tensors: Iterable[Tensor], start: int = 0) -> int:
    """Return the CRC-32 of the tensors' bytes, one after the other, continuing from `start`.

    >>> checksum([torch.tensor([49, 50], dtype=torch.uint8), torch.tensor(51, dtype=torch.uint8)]) == zlib.crc32(b"123")
    True
    """
    for tensor in tensors:
        if tensor.numel():
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            start = zlib.crc32(flat.numpy().data, start)
    return start
