"""Letters both ways through calls that may be lost, late, or made twice: each letter is taken once, and in order.

Each end numbers the letters that it has to send, and sends with each parcel all that the other one has not said it has, and the
number of the letter that it waits for itself.
"""

from typing import Any

from attrs import evolve, frozen


@frozen
class Parcel:
    """What goes from one end to the other."""

    wanted: int  # the number of the letter that the sender waits for: it has all before
    first: int  # the number of the first letter in it
    letters: tuple[Any, ...]


@frozen
class Box:
    """One end."""

    kept: tuple[Any, ...] = ()  # letters that the other end may not have
    first: int = 0  # the number of the first of them
    wanted: int = 0  # the number of the letter that comes next


def put(box: Box, letter: Any) -> Box:
    """The end with one more letter to send.

    >>> put(Box(), "a")
    Box(kept=('a',), first=0, wanted=0)
    """
    return evolve(box, kept=(*box.kept, letter))


def parcel(box: Box) -> Parcel:
    """What it sends.

    >>> parcel(put(Box(), "a"))
    Parcel(wanted=0, first=0, letters=('a',))
    """
    return Parcel(box.wanted, box.first, box.kept)


def opened(box: Box, come: Parcel) -> tuple[Box, tuple[Any, ...]]:
    """The end after a parcel has come, and the letters in it that had not come before.

    >>> here, there = put(Box(), "a"), Box()
    >>> there, new = opened(there, parcel(here))
    >>> new, opened(there, parcel(here))[1], opened(here, parcel(there))[0]
    (('a',), (), Box(kept=(), first=1, wanted=0))
    """
    known = min(max(come.wanted - box.first, 0), len(box.kept))
    new = come.letters[max(box.wanted - come.first, 0) :] if come.first <= box.wanted else ()
    return Box(box.kept[known:], box.first + known, box.wanted + len(new)), new
