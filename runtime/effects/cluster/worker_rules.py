"""Message exchange through calls that may be lost, late, or repeated: each message is delivered once, and in order.

Each end numbers the messages that it has to send. Each of its parcels has all messages that the other end has not acknowledged,
and the number of the next message that it expects itself.
"""

from typing import Any

from attrs import evolve, frozen


@frozen
class Parcel:
    """The content of one transmission from one end to the other."""

    wanted: int  # the number of the message that the sender expects next: it has all before
    first: int  # the number of the first message in it
    letters: tuple[Any, ...]


@frozen
class Endpoint:
    """State of one end."""

    kept: tuple[Any, ...] = ()  # messages that the other end has not acknowledged
    first: int = 0  # the number of the first of them
    wanted: int = 0  # the number of the message that is expected next


def put_letter(box: Endpoint, letter: Any) -> Endpoint:
    """Return the end with one more message to send.

    >>> put_letter(Endpoint(), "a")
    Endpoint(kept=('a',), first=0, wanted=0)
    """
    return evolve(box, kept=(*box.kept, letter))


def parcel(box: Endpoint) -> Parcel:
    """Return the parcel that this end sends.

    >>> parcel(put_letter(Endpoint(), "a"))
    Parcel(wanted=0, first=0, letters=('a',))
    """
    return Parcel(box.wanted, box.first, box.kept)


def open_parcel(box: Endpoint, come: Parcel) -> tuple[Endpoint, tuple[Any, ...]]:
    """Return the end after a parcel was received, and the messages in it that are new.

    >>> here, there = put_letter(Endpoint(), "a"), Endpoint()
    >>> there, new = open_parcel(there, parcel(here))
    >>> new, open_parcel(there, parcel(here))[1], open_parcel(here, parcel(there))[0]
    (('a',), (), Endpoint(kept=(), first=1, wanted=0))
    """
    known = min(max(come.wanted - box.first, 0), len(box.kept))
    new = come.letters[max(box.wanted - come.first, 0) :] if come.first <= box.wanted else ()
    return Endpoint(box.kept[known:], box.first + known, box.wanted + len(new)), new
