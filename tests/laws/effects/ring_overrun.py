"""Laws of readers that are overrun: a fetch returns one whole version, and discarded copies are counted.

During each copy the publisher publishes a drawn number of times, sometimes until it writes to the slot being copied.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from hypothesis import strategies as st
from torch import Tensor

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Mutant, Seen
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import (
    LATEST,
    NUMBER,
    RING,
    STRIDE,
    Ring,
    SharedWords,
    publication,
)


def believes_the_copy(transfer: Any) -> Any:
    """Skip the check whether the slot was written again during the copy."""

    def reading(path: Path, like: Any, *, ring: Ring = RING) -> Any:
        def fetching(words: SharedWords, slots: int, newer_than: int, load: Any) -> Any:
            asked = list[int]()

            def read(place: int) -> int:
                if place == LATEST:
                    asked.append(words.read(place))
                return asked[-1] if place % STRIDE == NUMBER else words.read(place)

            return ring.fetching(evolve(words, read=read), slots, newer_than, load)

        return transfer.reading(path, like, ring=evolve(ring, fetching=fetching))

    return evolve(transfer, reading=reading)


GUARDS = ("sequence", "checksum")
Drawn = tuple[list[int], str, int]  # publications during each copy, the guard, slots


def filled(version: int) -> dict[str, Tensor]:
    """Three leaves filled with the version."""
    return {name: torch.full((size,), float(version)) for name, size in (("first", 3), ("middle", 8), ("last", 1))}


def interrupting(during: Callable[[], None]) -> Ring:
    """A ring whose readers call `during` after the first leaf of each copy."""

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Any) -> Any:
        def slowly(slot: int, number: int, version: int) -> Any:
            steps = load(slot, number, version)
            yield next(steps)
            during()
            return (yield from steps)

        return RING.fetching(words, slots, newer_than, slowly)

    return Ring(publication, fetching)


def lapped(transfer: Any, drawn: Drawn, seen: Seen, path: Path) -> None:
    """Fetch once, with publications during the copy."""
    counts, guard, slots = drawn
    version, during = 0, list(counts)
    with transfer.publishing(filled(0), path=path, slots=slots, guard=guard) as weights:

        def publish() -> None:
            nonlocal version
            for _ in range(during.pop(0) if during else 0):
                version += 1
                weights.publish(version, filled(version))

        weights.publish(0, filled(0))
        reader = transfer.reading(path, filled(0), ring=interrupting(publish))
        found, params = reader.fetch()
    laps, copies = 0, list(counts)
    while copies and copies[0] >= slots:  # then it has come to the slot again, which is copied once more
        laps, copies = laps + 1, copies[1:]
    wanted = sum(counts[:laps])
    seen("a copy that was overtaken", laps)
    seen("a copy with publications beside it", copies and 0 < copies[0] < slots)
    same("the version", found, wanted)
    require(version >= found, f"version {found} was not published")
    same("what was fetched", params, filled(found))
    same("copies that were thrown away", reader.overtaken(), laps)


CLAIM = "A copy that was overtaken is thrown away and counted; what is fetched is all of one publication."
INPUTS = st.tuples(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(GUARDS), st.integers(2, 3))
NEEDS = ("a copy that was overtaken", "a copy with publications beside it")
MUTANT = Mutant("takes a copy without a look at who wrote meanwhile", believes_the_copy)
