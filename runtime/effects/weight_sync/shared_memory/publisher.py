"""Weights that processes pull when they need them: one publisher writes them into shared memory, any number of readers copy.

    with publishing(params) as weights:              # in the trainer
        weights.publish(0, params)
        ...                                          # weights.path is sent to the generators, by any means
    reader = reading(path, params)                   # in a generator; params has the architecture
    found = reader.fetch(version)                    # () or (version, params), all of one publication

A file in memory holds a ring of slots, made once and reused, so that a publication and a fetch are one copy each and neither
side waits for the other. `ring_buffer` explains why no read is torn. POSIX only.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

from .....core.errors import ChoiceError, choose, message
from .....core.tree import leaves
from ...workers.survivor import removed_afterwards
from ..packing import leaves_like
from .file import CLOSED, GUARDS, PREFIX, Mapped, default_guard, held, map_file, new_ring, remove_orphans, shared_folder
from .layout import WeightLayout, WeightsError, checksum, layout
from .ring_buffer import RING, Ring, Steps, run_steps_in_a_row


@frozen
class Publisher:
    """The only writer of a file of weights."""

    path: Path
    publish: Callable[[int, Any], None]  # (version, params); versions go up, from 0 or more


@frozen
class Reader:
    """A reader of a file of weights."""

    path: Path
    fetch: Callable[..., tuple[Any, ...]]  # see `reading`
    closed: Callable[[], bool]  # True if nothing more will be published
    overtaken: Callable[[], int]  # number of copies that were discarded, because the publisher overwrote them meanwhile


@contextmanager
def publishing(
    params: Any, *, path: Path | None = None, slots: int = 3, guard: str | None = None, ring: Ring = RING
) -> Iterator[Publisher]:
    """Yield the publisher of weights like `params`; at the end its file is removed, and marked as closed for its readers.

    With a `path`, a new publisher continues after one that died: the file, its versions and its readers stay. Without it a new
    file is made in `shared_folder()`, which is removed with its publisher, however that dies. A reader is overtaken when
    `slots` publications begin while it copies, and then copies again. `guard` "checksum" makes it check every byte. Published
    params may be on any device; they are copied. Raises: ChoiceError (a version that does not go up, slots, guard),
    StructureError, WeightsError for a file that has another publisher, that holds another architecture, or for which there is
    no memory.

    >>> with publishing({"w": torch.zeros(2)}) as weights:
    ...     weights.publish(0, {"w": torch.ones(2)})
    ...     reader = reading(weights.path, {"w": torch.zeros(2)})
    ...     reader.fetch(), reader.fetch(0)
    ((0, {'w': tensor([1., 1.])}), ())
    """
    if slots < 2:
        remedy = "one is written while the others are read"
        raise ChoiceError(message("publishing: slots", got=slots, wanted="at least 2", remedy=remedy))
    own = layout(params)
    checked = choose("publishing: guard", guard or default_guard(), GUARDS)
    if path is None:
        remove_orphans()
    place = path or shared_folder() / f"{PREFIX}{secrets.token_hex(8)}"
    with _file(place, own, slots, checked) as mapped, nullcontext() if path else removed_afterwards(place):
        mapped.head[CLOSED] = 0
        try:
            yield Publisher(place, _publish(mapped, leaves_like(params), ring))
        finally:
            mapped.head[CLOSED] = 1


@contextmanager
def _file(path: Path, own: WeightLayout, slots: int, guard: int) -> Iterator[Mapped]:
    """Yield the file, locked by this process; removed at the end, unless it turned out to be another publisher's."""
    fresh, descriptor = not path.exists(), held(path)
    try:
        try:
            mapped = new_ring(descriptor, path, own, slots, guard)
            fresh = True
            yield mapped
        finally:
            if fresh:
                with suppress(FileNotFoundError):
                    path.unlink()
    finally:
        os.close(descriptor)


def _publish(mapped: Mapped, leaves_of: Callable[[str, Any], list[Tensor]], ring: Ring) -> Callable[[int, Any], None]:
    lock = threading.Lock()

    def publish(version: int, tree: Any) -> None:
        fill = _writer(mapped, leaves_of("publish", tree))
        with lock:
            run_steps_in_a_row(ring.publication(mapped.words, len(mapped.slots), version, fill))

    return publish


def _writer(mapped: Mapped, tensors: Sequence[Tensor]) -> Callable[[int, int, int], Steps[int]]:
    def fill(slot: int, number: int, version: int) -> Steps[int]:
        room = mapped.slots[slot]
        with torch.no_grad():
            for target, source in zip(room, tensors, strict=True):
                target.copy_(source)
                yield False
        return checksum(room, _start(number, version)) if mapped.guarded else 0

    return fill


def _start(number: int, version: int) -> int:
    """Return the initial value of a checksum, which ties it to one publication."""
    return checksum([torch.tensor([number, version])])


def reading(path: Path, like: Any, *, ring: Ring = RING) -> Reader:
    """Return a reader of the weights in the file at `path`; `like` is a tree of their architecture, on the devices to fetch to.

    `fetch(newer_than=-1, into=(), seconds=60.0)` returns (version, params), all of one publication, or () if none is newer.
    Params are new tensors unless `into` is a tree to write them to: that saves the time to allocate memory, several times that
    of the copy, and requires a tree that nothing else uses; if an error is raised it holds no valid weights. The publisher
    never waits for a reader, which may fetch again at any time. Raises: WeightsError for another architecture, an unfinished
    file, or if it was overtaken for all `seconds`.
    """
    own = layout(like)
    leaves_of = leaves_like(like)
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        remedy = "publish first, and stop reading when the publisher ends"
        raise WeightsError(
            message(f"reading: {path}", got="absent", wanted="a file of weights", remedy=remedy)
        ) from None
    try:
        mapped = map_file(descriptor, path, own)
    finally:
        os.close(descriptor)

    overtaken = 0

    def fetch(newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> tuple[Any, ...]:
        deadline = time.monotonic() + seconds

        def in_vain() -> None:
            nonlocal overtaken
            overtaken += 1
            if time.monotonic() > deadline:
                remedy = "give the ring more slots, or publish less often"
                got, wanted = f"overtaken for {seconds:g} s", "time to copy once"
                raise WeightsError(message(f"fetch: {path}", got=got, wanted=wanted, remedy=remedy))

        given = leaves_of("fetch: into", into) if leaves(into) else []
        load = _loader(mapped, like, into, given)
        return run_steps_in_a_row(ring.fetching(mapped.words, len(mapped.slots), newer_than, load), in_vain)

    return Reader(path, fetch, lambda: bool(mapped.head[CLOSED]), lambda: overtaken)


def _loader(
    mapped: Mapped, like: Any, into: Any, given: list[Tensor]
) -> Callable[[int, int, int], Steps[tuple[Any, int]]]:
    def load(slot: int, number: int, version: int) -> Steps[tuple[Any, int]]:
        target = into if given else _room(like)
        tensors = given or leaves(target)
        with torch.no_grad():
            for place, source in zip(tensors, mapped.slots[slot], strict=True):
                place.copy_(source)
                yield False
        return target, checksum(tensors, _start(number, version)) if mapped.guarded else 0

    return load


def _room(like: Any) -> Any:
    return pytree.tree_map(lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device), like)
