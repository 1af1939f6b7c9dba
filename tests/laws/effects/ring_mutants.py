"""Rings as people get them wrong: each an edit of the writer or of the reader."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.weights_ring import (
    CHECKSUM,
    LATEST,
    NUMBER,
    VERSION,
    Fill,
    Load,
    Ring,
    Steps,
    Words,
    place,
)

Edit = Callable[[Any], Any]


def _with_words(ring: Ring, reader: Callable[[Words, int], Words]) -> Ring:
    def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(reader(words, slots), slots, newer_than, load)

    return evolve(ring, fetching=fetching)


def looks_once(ring: Ring) -> Ring:
    """Trusts that a copy made is a copy of what was asked for."""

    def blind(words: Words, slots: int) -> Words:
        asked: list[int] = [0]

        def read(index: int) -> int:
            if index == LATEST:
                asked[0] = words.read(LATEST)
                return asked[0]
            number = any(index == place(slot) + NUMBER for slot in range(slots))
            return asked[0] if number else words.read(index)

        return evolve(words, read=read)

    return _with_words(ring, blind)


def version_of_latest(ring: Ring) -> Ring:
    """Counts versions beside the bytes."""

    def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        found = yield from ring.fetching(words, slots, newer_than, load)
        yield False
        latest = words.read(LATEST)
        return (words.read(place(latest % slots) + VERSION), found[1]) if found else ()

    return evolve(ring, fetching=fetching)


def any_version(ring: Ring) -> Ring:
    """Leaves it to the caller to count."""

    def publication(words: Words, slots: int, version: int, fill: Fill) -> Steps[int]:
        def forgetful(index: int) -> int:
            versions = [place(slot) + VERSION for slot in range(slots)]
            return -1 if index in versions else words.read(index)

        return ring.publication(evolve(words, read=forgetful), slots, version, fill)

    return evolve(ring, publication=publication)


def counts_first(ring: Ring) -> Ring:
    """Takes its number before it has anything to show for it."""

    def publication(words: Words, slots: int, version: int, fill: Fill) -> Steps[int]:
        def announced(slot: int, number: int, label: int) -> Steps[int]:
            words.write(place(slot) + VERSION, label)
            words.write(LATEST, number)
            yield False
            return (yield from fill(slot, number, label))

        return ring.publication(words, slots, version, announced)

    return evolve(ring, publication=publication)


def one_behind(ring: Ring) -> Ring:
    """Keeps away from the slot that was written last."""

    def reader(words: Words, slots: int) -> Words:
        def read(index: int) -> int:
            value = words.read(index)
            return max(value - 1, min(value, 1)) if index == LATEST else value

        return evolve(words, read=read)

    return _with_words(ring, reader)


def one_slot(ring: Ring) -> Ring:
    """Saves memory."""

    def publication(words: Words, slots: int, version: int, fill: Fill) -> Steps[int]:
        return ring.publication(words, 1, version, fill)

    def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(words, 1, newer_than, load)

    return Ring(publication, fetching)


def zero_is_none(ring: Ring) -> Ring:
    """Asks `if version`."""

    def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(words, slots, max(newer_than, 0), load)

    return evolve(ring, fetching=fetching)


def no_checksum(ring: Ring) -> Ring:
    """Believes in the order of stores everywhere."""

    def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        total: list[int] = [0]
        sums = [place(slot) + CHECKSUM for slot in range(slots)]

        def read(index: int) -> int:
            value = words.read(index)
            if index in sums:
                total[0] = value
            return value

        def trusting(slot: int, number: int, version: int) -> Steps[tuple[Any, int]]:
            found, _ = yield from load(slot, number, version)
            return found, total[0]

        return ring.fetching(evolve(words, read=read), slots, newer_than, trusting)

    return evolve(ring, fetching=fetching)


def stubborn(ring: Ring) -> Ring:
    """Asks for the latest number once."""

    def reader(words: Words, slots: int) -> Words:
        first: list[int] = []

        def read(index: int) -> int:
            if index != LATEST:
                return words.read(index)
            if not first:
                first.append(words.read(LATEST))
            return first[0]

        return evolve(words, read=read)

    return _with_words(ring, reader)


def numbers_afterwards(ring: Ring) -> Ring:
    """Notes a slot's number when the bytes are there, not before."""

    def publication(words: Words, slots: int, version: int, fill: Fill) -> Steps[int]:
        late: list[tuple[int, int]] = []
        numbers = [place(slot) + NUMBER for slot in range(slots)]

        def write(index: int, value: int) -> None:
            if index in numbers:
                late.append((index, value))
                return
            if index == LATEST:
                for kept in late:
                    words.write(*kept)
            words.write(index, value)

        return ring.publication(evolve(words, write=write), slots, version, fill)

    return evolve(ring, publication=publication)


def few_bits(ring: Ring) -> Ring:
    """Compares whether numbers are odd or even, as a lock for one reader would."""

    def reader(words: Words, slots: int) -> Words:
        asked: list[int] = [0]

        def read(index: int) -> int:
            value = words.read(index)
            if index == LATEST:
                asked[0] = value
            if any(index == place(slot) + NUMBER for slot in range(slots)) and (value - asked[0]) % 2 == 0:
                return asked[0]
            return value

        return evolve(words, read=read)

    return _with_words(ring, reader)


MUTANTS: dict[str, Edit] = {
    "notes a slot's number behind the bytes": numbers_afterwards,
    "compares only whether numbers are odd": few_bits,
}
