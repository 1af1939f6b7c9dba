"""A ring of slots that one writer and many readers share without waiting for each other: a sequence lock, step by step.

Publication number n (1, 2, ...) goes to slot n modulo their count. Its writer stores n in the slot, then writes the bytes,
and finally stores n as the ring's LATEST. A reader reads LATEST, copies that slot and then checks that the slot still has the
same number. If so the copy is all of one publication; if not, the reader was overtaken and tries again. A writer that dies
in the middle has not touched the slot of LATEST, as long as there are two slots.

Each step is one access, and between two of them other processes may run any of theirs; `publisher` runs them on shared memory,
the laws interleave them.

**Assumptions.** An aligned word of 8 bytes is read and written atomically, and accesses become visible in the order in which
they are made. x86 guarantees both, the second with two exceptions that `fence` closes: a store that is delayed after a later
load, and the streaming stores of large copies. Other processors guarantee no order without barriers that Python does not
have. There `checksum` is the guard: a sum over number, version and bytes, stored with them and compared after the copy, which
is valid in any order of visibility.
Source: Lamport 1977, Concurrent reading and writing; Boehm 2012, Can seqlocks get along with programming language memory
models?
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from attrs import frozen

from .....core.errors import ChoiceError, message

T = TypeVar("T")
LATEST = 0  # the word with the number of the last finished publication; 0 before the first
NUMBER, VERSION, CHECKSUM = 0, 1, 2  # of a slot, counted from its first word
STRIDE = 8  # words: each slot has a cache line, so has LATEST
Steps = Generator[bool, None, T]  # an access after each yield; True: an attempt has failed and another one begins


@frozen
class SharedWords:
    """The words, of 64 bits, that writer and readers share; all 0 at first."""

    read: Callable[[int], int]
    write: Callable[[int, int], None]
    fence: Callable[[], None]  # completes all accesses before it ahead of those after it


Fill = Callable[[int, int, int], Steps[int]]  # (slot, number, version): writes the bytes, returns their checksum or 0
Load = Callable[[int, int, int], Steps[tuple[Any, int]]]  # (slot, number, version): returns (a copy, its checksum)


@frozen
class Ring:
    """The two procedures of a ring: to publish, and to fetch."""

    publication: Callable[[SharedWords, int, int, Fill], Steps[int]]
    fetching: Callable[[SharedWords, int, int, Load], Steps[tuple[Any, ...]]]


def slot_start(slot: int) -> int:
    """Return the first word of a slot.

    >>> slot_start(0), slot_start(2)
    (8, 24)
    """
    return STRIDE * (slot + 1)


def publication(words: SharedWords, slots: int, version: int, fill: Fill) -> Steps[int]:
    """Write one publication; return its number. There must be no other publisher.

    If `fill` raises, nothing is published. Raises: ChoiceError for a version that is not above the last one.
    """
    latest = words.read(LATEST)
    yield False
    _refuse_version(words, slots, latest, version)
    number = latest + 1
    slot = number % slots
    at = slot_start(slot)
    words.write(at + NUMBER, number)
    words.fence()
    yield False
    total = yield from fill(slot, number, version)
    words.write(at + VERSION, version)
    yield False
    words.write(at + CHECKSUM, total)
    words.fence()
    yield False
    words.write(LATEST, number)
    words.fence()
    return number


def _refuse_version(words: SharedWords, slots: int, latest: int, version: int) -> None:
    last = words.read(slot_start(latest % slots) + VERSION) if latest else -1
    if version <= last:
        remedy = "versions never go back: count on from the last one, from 0 at first"
        raise ChoiceError(message("publish: version", got=version, wanted=f"at least {last + 1}", remedy=remedy))


def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
    """Copy the last publication if its version is above `newer_than`; return (version, copy), or () if it is not.

    It repeats until a copy is consistent, so the caller must limit its time.
    """
    while True:
        number = words.read(LATEST)
        yield False
        if number == 0:
            return ()
        slot = number % slots
        version = words.read(slot_start(slot) + VERSION)
        yield False
        total = seen = words.read(slot_start(slot) + CHECKSUM)
        words.fence()
        yield False
        newer, copy = version > newer_than, ()
        if newer:
            copy, seen = yield from load(slot, number, version)
        words.fence()
        if words.read(slot_start(slot) + NUMBER) == number and seen == total:
            return (version, copy) if newer else ()
        yield True


def run_steps_in_a_row(steps: Steps[T], in_vain: Callable[[], None] = lambda: None) -> T:
    """Run all steps in a row and return their result; `in_vain` is called after each failed attempt.

    >>> def two():
    ...     yield True
    ...     return 2
    >>> run_steps_in_a_row(two(), lambda: print("once more"))
    once more
    2
    """
    while True:
        try:
            if next(steps):
                in_vain()
        except StopIteration as ended:
            given: T = ended.value
            return given


RING = Ring(publication, fetching)
