"""Replay buffer of records: `BufferState` selects the samples, a TensorDict stores them, in files if there are many.

The state is pure tensors. Each sample that was added is in exactly one state: held, overwritten, expired (too old), or consumed
(drawn `uses` times).
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from tensordict import TensorDict
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.record import from_tensordict, record, replace, tensor, to_tensordict
from ...core.tree import same_structure, tree_map

Limit = int | tuple[()]  # () for none


@record
class BufferState:
    """State of a ring buffer of N slots.

    added = held + overwritten + expired + consumed
    """

    held: Tensor = tensor("* N", "bool")  # the slot holds a sample that may be drawn
    version: Tensor = tensor("* N", "int")  # of the weights that made it
    uses: Tensor = tensor("* N", "int")  # how often it was drawn
    next: Tensor = tensor("*", "int")  # the slot to be written next
    added: Tensor = tensor("*", "int")
    overwritten: Tensor = tensor("*", "int")
    expired: Tensor = tensor("*", "int")
    consumed: Tensor = tensor("*", "int")


def empty_buffer(capacity: int) -> BufferState:
    """Return a shelf of so many empty slots. Raises: ChoiceError.

    >>> empty_buffer(2).held
    tensor([False, False])
    """
    if capacity < 1:
        raise ChoiceError(
            message("replay_buffer: capacity", got=capacity, wanted="at least 1", remedy="make some room")
        )
    zero = torch.zeros((), dtype=torch.int64)
    row = torch.zeros(capacity, dtype=torch.int64)
    return BufferState(
        held=row.bool(),
        version=row,
        uses=row.clone(),
        next=zero,
        added=zero.clone(),
        overwritten=zero.clone(),
        expired=zero.clone(),
        consumed=zero.clone(),
    )


def add_samples(shelf: BufferState, version: Tensor) -> tuple[BufferState, Tensor]:
    """Put samples of these versions [*, n] in the next n slots, over the old ones; return the shelf and the slots, int [*, n].

    Raises: ChoiceError for more samples than slots.

    >>> shelf, places = add_samples(empty_buffer(3), torch.tensor([4, 5]))
    >>> places, shelf.held, add_samples(shelf, torch.tensor([6, 7]))[1]
    (tensor([0, 1]), tensor([ True,  True, False]), tensor([2, 0]))
    """
    capacity, count = shelf.held.shape[-1], version.shape[-1]
    if count > capacity:
        remedy = "add fewer at once: some would be lost before anybody saw them"
        raise ChoiceError(message("add: samples", got=count, wanted=f"at most {capacity}", remedy=remedy))
    places = (shelf.next[..., None] + torch.arange(count, device=version.device)) % capacity
    lost = shelf.held.gather(-1, places).sum(-1)
    after = replace(
        shelf,
        held=shelf.held.scatter(-1, places, True),
        version=shelf.version.scatter(-1, places, version),
        uses=shelf.uses.scatter(-1, places, 0),
        next=(shelf.next + count) % capacity,
        added=shelf.added + count,
        overwritten=shelf.overwritten + lost,
    )
    return after, places


def expire(shelf: BufferState, version: Tensor | int, max_age: Limit) -> BufferState:
    """Return the shelf without samples more than `max_age` versions before `version`.

    >>> shelf, _ = add_samples(empty_buffer(3), torch.tensor([0, 1, 2]))
    >>> expire(shelf, 2, 1).held
    tensor([False,  True,  True])
    """
    if not isinstance(max_age, int):
        return shelf
    present = version[..., None] if isinstance(version, Tensor) else version
    old = shelf.held & (present - shelf.version > max_age)
    return replace(shelf, held=shelf.held & ~old, expired=shelf.expired + old.sum(-1))


def draw(
    shelf: BufferState, version: Tensor | int, key: Key, count: int, *, max_age: Limit = (), uses: Limit = ()
) -> tuple[BufferState, Tensor, Tensor]:
    """Return the shelf, slots [*, count] drawn uniformly without replacement, and whether there were enough samples, bool [*].

    Samples that are too old are removed first. If there are fewer than `count`, none is drawn. A sample that was drawn `uses`
    times is removed (1: consumed at once). Raises: ChoiceError.

    >>> from ...core.keys import key
    >>> shelf, _ = add_samples(empty_buffer(3), torch.tensor([0, 1]))
    >>> shelf, places, enough = draw(shelf, 1, key(0), 2, uses=1)
    >>> sorted(places.tolist()), enough, shelf.consumed, draw(shelf, 1, key(0), 1)[2]
    ([0, 1], tensor(True), tensor(2), tensor(False))
    """
    capacity = shelf.held.shape[-1]
    if not 1 <= count <= capacity:
        wanted, remedy = f"1 to the capacity {capacity}", "more would never be there"
        raise ChoiceError(message("draw: count", got=count, wanted=wanted, remedy=remedy))
    kept = expire(shelf, version, max_age)
    order = keys.permutation(key, capacity)
    first = torch.sort((~kept.held).gather(-1, order).to(torch.int8), dim=-1, stable=True).indices[..., :count]
    places = order.gather(-1, first)
    enough = kept.held.sum(-1) >= count
    used = kept.uses.scatter_add(-1, places, enough[..., None].expand_as(places).to(torch.int64))
    gone = kept.held & (used >= uses) if isinstance(uses, int) else torch.zeros_like(kept.held)
    after = replace(kept, uses=used, held=kept.held & ~gone, consumed=kept.consumed + gone.sum(-1))
    return after, places, enough


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

    >>> from ...core.keys import key
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
    shelf, lock = empty_buffer(capacity), threading.Lock()
    wide = to_tensordict(like).expand(capacity)
    rows = wide.clone().zero_() if folder is None else wide.memmap_like(str(folder))

    def add_(samples: Any, versions: Tensor) -> None:
        nonlocal shelf
        new = to_tensordict(samples, versions.shape)
        same_structure("add: a sample", tree_map(lambda leaf: leaf.new_empty(leaf.shape[1:]), samples), like)
        with lock:
            after, places = add_samples(shelf, versions)
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
