"""Replay buffer: `experience_rules` selects the samples, a TensorDict stores them, in files if there are many."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen
from tensordict import TensorDict
from torch import Tensor

from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.record import from_tensordict, to_tensordict
from ...core.tree import same_structure, tree_map
from .experience_rules import BufferState, Limit, add, draw, empty, expire


@frozen
class ReplayBuffer:
    """A replay buffer of records; thread-safe.

    `add(samples, versions)` takes a record with leading axis n and the versions [n] of the weights that made them.
    `draw(key, count, version)` returns (samples, versions), a copy with leading axis count, or () if there are too few.
    `size(version)` counts the samples that can be drawn.
    `state()` is (shelf, TensorDict): the whole state, for a checkpoint; `restore` loads it.
    """

    add: Callable[[Any, Tensor], None]
    draw: Callable[[Key, int, int], tuple[Any, ...]]
    size: Callable[[int], int]
    state: Callable[[], tuple[BufferState, TensorDict]]
    restore: Callable[[BufferState, TensorDict], None]


def replay_buffer(
    like: Any, capacity: int, *, max_age: Limit = (), uses: Limit = (), folder: Path | None = None
) -> ReplayBuffer:
    """Return an empty replay buffer for records like the one sample `like`.

    Samples are drawn uniformly without replacement, at most `uses` times each (1: consumed by being drawn), and none more
    than `max_age` versions old; the oldest are overwritten. With a `folder` they are stored in memory-mapped files there.
    Raises: ChoiceError, StructureError (a sample of another structure).

    >>> import torch
    >>> from ...core.keys import key
    >>> from ...core.record import record, tensor
    >>> @record
    ... class Point:
    ...     x: Tensor = tensor("*", "float")
    >>> kept = replay_buffer(Point(x=torch.tensor(0.0)), 4, uses=1)
    >>> kept.add(Point(x=torch.tensor([7.0])), torch.tensor([3]))
    >>> kept.draw(key(0), 1, 3), kept.draw(key(0), 1, 3)
    ((Point(x=tensor([7.])), tensor([3])), ())
    """
    for name, limit, least in (("max_age", max_age, 0), ("uses", uses, 1)):
        if isinstance(limit, int) and limit < least:
            where, remedy = f"replay_buffer: {name}", "pass () for no limit"
            raise ChoiceError(message(where, got=limit, wanted=f"at least {least}", remedy=remedy))
    shelf, rows, lock = empty(capacity), _rows(like, capacity, folder), threading.Lock()

    def add_(samples: Any, versions: Tensor) -> None:
        nonlocal shelf
        new = to_tensordict(samples, versions.shape)
        same_structure("add: a sample", tree_map(lambda leaf: leaf.new_empty(leaf.shape[1:]), samples), like)
        with lock:
            after, places = add(shelf, versions)
            rows[places] = new
            shelf = after

    def draw_(key: Key, count: int, version: int) -> tuple[Any, ...]:
        nonlocal shelf
        with lock:
            after, places, enough = draw(shelf, version, key, count, max_age=max_age, uses=uses)
            samples = rows[places].clone() if bool(enough) else TensorDict()
            shelf = after
        return (from_tensordict(like, samples), after.version[places]) if bool(enough) else ()

    def size(version: int) -> int:
        with lock:
            return int(expire(shelf, version, max_age).held.sum())

    def state() -> tuple[BufferState, TensorDict]:
        with lock:
            return shelf, rows.clone()

    def restore(saved: BufferState, samples: TensorDict) -> None:
        nonlocal shelf
        with lock:
            rows.update_(samples)
            shelf = saved

    return ReplayBuffer(add_, draw_, size, state, restore)


def _rows(like: Any, capacity: int, folder: Path | None) -> TensorDict:
    wide = to_tensordict(like).expand(capacity)
    return wide.clone().zero_() if folder is None else wide.memmap_like(str(folder))
