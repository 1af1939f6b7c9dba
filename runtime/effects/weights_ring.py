"""How one writer and many readers share a ring of slots without waiting for each other: a sequence lock, step by step.

Publication number n (1, 2, ...) goes to slot n modulo their count. Its writer notes n in the slot, then writes the bytes,
and at last notes n as the ring's LATEST. A reader asks for LATEST, copies that slot and then looks whether the slot still
has the number it came for. If so the copy is all of one publication; if not, the reader was overtaken and tries again.
A writer that dies in the middle has touched nothing that LATEST names, as long as there are two slots.

Each step is one access, and between two of them anybody may do anything; `weights` runs them on shared memory, the laws
interleave them.

**What this relies on.** An aligned word of 8 bytes is read and written whole, and accesses are seen in the order in which
they are made. x86 promises both, the second with two exceptions that `fence` closes: a store that waits behind a later
load, and the streaming stores of large copies. Other processors promise no order without barriers that Python does not
have. There `checksum` is the guard: a sum over number, version and bytes, written beside them and compared after the copy,
holds whatever is seen in whatever order.
Source: Lamport 1977, Concurrent reading and writing; Boehm 2012, Can seqlocks get along with programming language memory
models?
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from attrs import frozen

from ...core.errors import ChoiceError, message

T = TypeVar("T")
LATEST = 0  # the word that holds the number of the last publication finished; 0 before the first
NUMBER, VERSION, CHECKSUM = 0, 1, 2  # of a slot, counted from its first word
STRIDE = 8  # words: each slot has a cache line, so has LATEST
Steps = Generator[bool, None, T]  # an access behind each yield; True: an attempt was in vain and another one begins


@frozen
class Words:
    """The words, of 64 bits, that writer and readers share; all 0 at first."""

    read: Callable[[int], int]
    write: Callable[[int, int], None]
    fence: Callable[[], None]  # what was accessed before it is accessed before what comes after


Fill = Callable[[int, int, int], Steps[int]]  # (slot, number, version): writes the bytes, gives their checksum or 0
Load = Callable[[int, int, int], Steps[tuple[Any, int]]]  # (slot, number, version): copies them, gives both


@frozen
class Ring:
    """The two procedures."""

    publication: Callable[[Words, int, int, Fill], Steps[int]]
    fetching: Callable[[Words, int, int, Load], Steps[tuple[Any, ...]]]


def place(slot: int) -> int:
    """The first word of a slot.

    >>> place(0), place(2)
    (8, 24)
    """
    return STRIDE * (slot + 1)


def publication(words: Words, slots: int, version: int, fill: Fill) -> Steps[int]:
    """Writes one publication; gives its number. Nobody else may be publishing.

    Where `fill` raises, nothing was published. Raises: ChoiceError for a version that is not above the last one.
    """
    latest = words.read(LATEST)
    yield False
    _refuse_version(words, slots, latest, version)
    number = latest + 1
    slot = number % slots
    at = place(slot)
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


def _refuse_version(words: Words, slots: int, latest: int, version: int) -> None:
    last = words.read(place(latest % slots) + VERSION) if latest else -1
    if version <= last:
        remedy = "versions never go back: count on from the last one, from 0 at first"
        raise ChoiceError(message("publish: version", got=version, wanted=f"at least {last + 1}", remedy=remedy))


def fetching(words: Words, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
    """Copies the last publication if its version is above `newer_than`; gives (version, copy), or () if it is not.

    It goes on until a copy is whole, so whoever runs it must end it in time.
    """
    while True:
        number = words.read(LATEST)
        yield False
        if number == 0:
            return ()
        slot = number % slots
        version = words.read(place(slot) + VERSION)
        yield False
        total = seen = words.read(place(slot) + CHECKSUM)
        words.fence()
        yield False
        newer, copy = version > newer_than, ()
        if newer:
            copy, seen = yield from load(slot, number, version)
        words.fence()
        if words.read(place(slot) + NUMBER) == number and seen == total:
            return (version, copy) if newer else ()
        yield True


def complete(steps: Steps[T], in_vain: Callable[[], None] = lambda: None) -> T:
    """Runs all steps in a row and gives what they give; calls `in_vain` after each attempt that was.

    >>> def two():
    ...     yield True
    ...     return 2
    >>> complete(two(), lambda: print("once more"))
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
