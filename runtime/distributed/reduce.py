"""Reduction of the processes' results: sums of figures, readings in order, tensors from shards."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import torch
from attrs import fields
from torch import Tensor

from ...algorithms.language.loss import Sums, combined
from ...algorithms.language.packing import SequenceBatch
from ...core.errors import ChoiceError, message
from ...core.tree import leaves, tree_map

NAMES = tuple(field.name for field in fields(cast(Any, Sums)))
MULTIPLIER = 6364136223846793005  # of a linear congruential generator modulo 2^64


def united(found: Sequence[Sums]) -> Sums:
    """Return the sums of all parts together, added in their order, so that every process gets the same bits.

    >>> two = Sums(**{name: torch.tensor(2.0) for name in Sums.__record_fields__})
    >>> united([two, two, two]).loss, united([two, two, two]).difference
    (tensor(6.), tensor(2.))
    """
    return reduce(combined, found)


def as_row(sums: Sums) -> Tensor:
    """Return sums as one tensor [12], to send them at once; the inverse of `from_row`.

    >>> as_row(Sums(**{name: torch.tensor(2.0) for name in Sums.__record_fields__})).shape
    torch.Size([12])
    """
    return torch.stack([getattr(sums, name) for name in NAMES])


def from_row(row: Tensor) -> Sums:
    """Return the sums in a tensor [12].

    >>> from_row(torch.arange(12.0)).policy_loss
    tensor(1.)
    """
    return Sums(**dict(zip(NAMES, row.unbind(), strict=True)))


def in_order(found: Sequence[Any], parts: Sequence[SequenceBatch], number: int, width: int) -> Any:
    """Return readings of parts as columns of all `number` sequences: 0 for sequences in no part, so that shares add up.

    Each of `found` is a tree of [n, w] or [n] for the n sequences of its part. Leaves come as [number, width] or [number].

    >>> part = SequenceBatch(rows=(2, 0), width=1, cost=2)
    >>> in_order([torch.tensor([[5.0], [6.0]])], [part], 3, 2)
    tensor([[6., 0.],
            [0., 0.],
            [5., 0.]])
    """
    pairs = [(read, part) for read, part in zip(found, parts, strict=True) if part.rows]
    blank = tree_map(lambda leaf: leaf.new_zeros((number, *([width] if leaf.ndim > 1 else []))), found[0])

    def put(column: Tensor, pair: tuple[Tensor, SequenceBatch]) -> Tensor:
        leaf, part = pair
        rows = torch.tensor(part.rows, device=column.device)
        wide = torch.nn.functional.pad(leaf, (0, width - leaf.shape[1])) if leaf.ndim > 1 else leaf
        return column.index_copy(0, rows, wide)

    for read, part in pairs:
        blank = tree_map(lambda column, leaf, own=part: put(column, (leaf, own)), blank, read)
    return blank


def share_of(size: int, *, ranks: int, rank: int) -> tuple[int, int]:
    """Return the range of rows, of `size`, that a process keeps of a tensor sharded along its first axis: [first, second).

    Each process keeps ceil(size / ranks) rows while there are any; so does torch. Raises: ChoiceError.

    >>> [share_of(5, ranks=4, rank=rank) for rank in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    """
    if not 0 <= rank < ranks:
        remedy = "count ranks from 0"
        raise ChoiceError(message("share_of: rank", got=rank, wanted=f"from 0 to {ranks - 1}", remedy=remedy))
    each = -(-size // ranks)
    return min(size, rank * each), min(size, (rank + 1) * each)


def tree_hash(tree: Any) -> Tensor:
    """Return a hash of a tree of tensors, int64 []: of every bit of every leaf, and of its position.

    Two trees that differ have the same one by chance alone, about once in 2^64.

    >>> one, other = (tree_hash({"a": torch.tensor(values)}) for values in ([1.0, 2.0], [2.0, 1.0]))
    >>> bool(one == other)
    False
    """
    number = torch.zeros((), dtype=torch.int64)
    for leaf in leaves(tree):
        shape = [leaf.ndim, *leaf.shape]
        number = number * MULTIPLIER + _mixed(torch.tensor(shape)) + _mixed(_whole_numbers(leaf)).cpu()
    return number


def _whole_numbers(leaf: Tensor) -> Tensor:
    kinds: dict[int, Callable[[Tensor], Tensor]] = {
        8: lambda found: found.view(torch.int64),
        4: lambda found: found.view(torch.int32).long(),
        2: lambda found: found.view(torch.int16).long(),
        1: lambda found: found.view(torch.uint8).long(),
    }
    return kinds[leaf.element_size()](leaf.detach().contiguous().reshape(-1))


def _mixed(values: Tensor) -> Tensor:
    """Return the sum, modulo 2^64, of each value times an odd number of its position, with high and low bits mixed."""
    place = torch.arange(len(values), dtype=torch.int64, device=values.device)
    odd = (place * MULTIPLIER + 1442695040888963407) | 1
    mixed = (values + 1) * odd
    return ((mixed ^ (mixed >> 29)) * odd).sum()
