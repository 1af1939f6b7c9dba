"""Replay as a pure value of tensors: rows in the order in which they were stored, drawn uniformly or by priority.

A compiled loop writes into the buffer in place (`runtime/inductor/in_place.py`), so that storing a few rows does not copy it.
`runtime/effects/replay_buffer.py` is the buffer of an effect.
"""

import math
from typing import Any

import torch
from torch import Tensor

from . import keys
from .errors import ShapeError, at_least, message
from .keys import Key
from .numbers import Number
from .record import record, replace, take, tensor
from .tree import leaves, tree_map


@record
class Replay:
    """The last N rows that were stored: row number r, counted from the first one ever, is at place r mod N."""

    rows: Any  # [N, ...]
    stored: Tensor = tensor("*", "int")  # rows stored so far, lost ones included
    sums: Any = ()  # sum tree of the rows' priorities; () where rows are drawn uniformly
    highest: Any = ()  # [], the priority of a new row: the highest one that a row ever had


def empty_replay(row: Any, size: int, *, prioritised: bool = False) -> Replay:
    """Return a buffer of `size` rows like `row`, a tree of tensors without the leading axis. Raises: ChoiceError.

    >>> empty_replay({"reward": torch.zeros(())}, 4).rows["reward"].shape
    torch.Size([4])
    """
    at_least("empty_replay: size", size, 1)
    device = leaves(row)[0].device
    rows = tree_map(lambda leaf: leaf.new_zeros((size, *leaf.shape)), row)
    stored = torch.zeros((), dtype=torch.int64, device=device)
    if not prioritised:
        return Replay(rows=rows, stored=stored)
    return Replay(rows=rows, stored=stored, sums=empty_sums(size, device=device), highest=torch.ones((), device=device))


def store(replay: Replay, rows: Any) -> Replay:
    """Return the buffer with rows [K, ...] in place of its K oldest, K <= N. Raises: ShapeError.

    >>> replay = store(empty_replay(torch.zeros(()), 3), torch.tensor([1.0, 2.0]))
    >>> store(replay, torch.tensor([3.0, 4.0])).rows
    tensor([4., 2., 3.])
    """
    size, count = replay_size(replay), leaves(rows)[0].shape[0]
    if count > size:
        remedy = "make the buffer larger than an iteration"
        raise ShapeError(
            message("store: rows", got=count, wanted=f"at most {size}, those of the buffer", remedy=remedy)
        )
    places = (replay.stored + torch.arange(count, device=replay.stored.device)) % size
    after = tree_map(lambda old, new: old.index_copy(0, places, new.to(old.dtype)), replay.rows, rows)
    sums = replay.sums
    if isinstance(sums, Tensor):
        sums = set_priorities(sums, places, replay.highest.expand(count))
    return replace(replay, rows=after, stored=replay.stored + count, sums=sums)


def replay_size(replay: Replay) -> int:
    """Return the number of rows that the buffer can hold.

    >>> replay_size(empty_replay(torch.zeros(()), 3))
    3
    """
    size: int = leaves(replay.rows)[0].shape[0]
    return size


def held(replay: Replay) -> Tensor:
    """Return the number of rows that the buffer holds: int64 [].

    >>> held(store(empty_replay(torch.zeros(()), 3), torch.ones(2)))
    tensor(2)
    """
    return torch.clamp(replay.stored, max=replay_size(replay))


def draw(replay: Replay, key: Key, count: int) -> Tensor:
    """Return the numbers of `count` rows among those held: int64 [count]; an empty buffer gives row 0, of zeros.

    Each is uniform over the rows, or one from each of `count` equal parts of the sum of priorities.

    >>> replay = store(empty_replay(torch.zeros(()), 3, prioritised=True), torch.zeros(3))
    >>> draw(set_priority(replay, torch.tensor([0, 1, 2]), torch.tensor([2.0, 0.0, 1.0])), keys.key(0), 3)
    tensor([0, 0, 2])
    """
    oldest = replay.stored - held(replay)
    if not isinstance(replay.sums, Tensor):
        return oldest + keys.randint(key, (count,), 0, torch.clamp(held(replay), min=1))
    parts = torch.arange(count, device=replay.sums.device)
    places = find(replay.sums, (parts + keys.uniform(key, (count,))) / count)
    return oldest + (places - oldest) % replay_size(replay)


def rows_at(replay: Replay, numbers: Tensor) -> Any:
    """Return the rows with these numbers: int64 [*] -> [*, ...].

    >>> rows_at(store(empty_replay(torch.zeros(()), 3), torch.tensor([5.0, 6.0, 7.0])), torch.tensor([[2, 1]]))
    tensor([[7., 6.]])
    """
    return take(replay.rows, numbers % replay_size(replay))


def importance_weights(replay: Replay, numbers: Tensor, exponent: Number) -> Tensor:
    """Return (P(i) M)^-exponent of drawn rows by the largest one, M rows held, P(i) the probability of row i: [K] -> [K].

    Exponent 1 takes the whole bias of a draw by priority away; all weights are 1 where rows are drawn uniformly. Source: Schaul
    et al. 2016, arXiv:1511.05952, section 3.4, with the largest weight of the batch.

    >>> replay = store(empty_replay(torch.zeros(()), 2, prioritised=True), torch.zeros(2))
    >>> replay = set_priority(replay, torch.tensor([0, 1]), torch.tensor([1.0, 3.0]))
    >>> importance_weights(replay, torch.tensor([0, 1]), 1.0)
    tensor([1.0000, 0.3333])
    """
    if not isinstance(replay.sums, Tensor):
        return torch.ones(numbers.shape, device=numbers.device)
    priorities = priority_at(replay.sums, numbers % replay_size(replay)).clamp_min(torch.finfo(replay.sums.dtype).tiny)
    power = exponent.to(priorities.dtype) if isinstance(exponent, Tensor) else exponent
    return (priorities / priorities.min()) ** -power


def set_priority(replay: Replay, numbers: Tensor, priorities: Tensor) -> Replay:
    """Return the buffer with new priorities [K] of the rows with these numbers, which it must hold; a uniform one unchanged.

    >>> replay = store(empty_replay(torch.zeros(()), 2, prioritised=True), torch.zeros(2))
    >>> set_priority(replay, torch.tensor([0, 1]), torch.tensor([1.0, 3.0])).highest
    tensor(3.)
    """
    if not isinstance(replay.sums, Tensor):
        return replay
    sums = set_priorities(replay.sums, numbers % replay_size(replay), priorities)
    return replace(replay, sums=sums, highest=torch.maximum(replay.highest, priorities.max()))


# --- priorities: a binary tree of sums in one vector, whose second half are the leaves ---


def empty_sums(size: int, *, device: torch.device | None = None) -> Tensor:
    """Return the sum tree of `size` priorities of 0: [2 L], L the next power of two; place 1 holds the sum of all.

    >>> empty_sums(3).shape
    torch.Size([8])
    """
    return torch.zeros(2 * _leaves(size), device=device)


def _leaves(size: int) -> int:
    return 1 << math.ceil(math.log2(max(size, 2)))


def set_priorities(sums: Tensor, places: Tensor, priorities: Tensor) -> Tensor:
    """Return the tree with new priorities [K] >= 0 at places [K], and the sums above them; one place twice has one priority.

    Each sum is computed from its two parts, so that no error of rounding adds up over updates.

    >>> set_priorities(empty_sums(4), torch.tensor([1, 3]), torch.tensor([5.0, 2.0]))
    tensor([0., 7., 5., 2., 0., 5., 0., 2.])
    """
    nodes = places + sums.shape[0] // 2
    sums = sums.index_copy(0, nodes, priorities.to(sums.dtype))
    for _ in range(int(math.log2(sums.shape[0])) - 1):
        nodes = nodes // 2
        sums = sums.index_copy(0, nodes, sums[2 * nodes] + sums[2 * nodes + 1])
    return sums


def priority_at(sums: Tensor, places: Tensor) -> Tensor:
    """Return the priorities at places: int64 [*] -> [*].

    >>> priority_at(set_priorities(empty_sums(4), torch.tensor([1]), torch.tensor([5.0])), torch.tensor([0, 1]))
    tensor([0., 5.])
    """
    return sums[places + sums.shape[0] // 2]


def find(sums: Tensor, fractions: Tensor) -> Tensor:
    """Return the place at each fraction of the sum of all: fraction u in [0, 1) -> int64, both [*].

    Place i is returned with probability priority_i / sum for a uniform u, and never with priority 0.
    Source: Schaul et al. 2016, arXiv:1511.05952, appendix B.2.1.

    >>> sums = set_priorities(empty_sums(3), torch.tensor([0, 1, 2]), torch.tensor([2.0, 0.0, 2.0]))
    >>> find(sums, torch.tensor([0.0, 0.49, 0.5, 0.99]))
    tensor([0, 0, 2, 2])
    """
    nodes, left = torch.ones_like(fractions, dtype=torch.int64), fractions * sums[1]
    for _ in range(int(math.log2(sums.shape[0])) - 1):
        first, second = sums[2 * nodes], sums[2 * nodes + 1]
        # Rounding may leave a mass beyond all parts; a part of 0 is never entered.
        right = (left >= first) & (second > 0)
        nodes, left = 2 * nodes + right, torch.where(right, left - first, left)
    return nodes - sums.shape[0] // 2
