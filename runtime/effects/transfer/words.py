"""What a reader of weights and the link to its publisher tell each other, and what a publisher answers: see `rules`."""

from attrs import frozen

from ....core.errors import ChoiceError, message


@frozen
class Publication:
    """What is offered."""

    version: int
    digest: str  # of version, architecture and all bytes: equal digests are equal publications
    chunks: int


NONE = Publication(-1, "", 0)


@frozen
class Fetch:
    """Somebody wants what is newer than this version."""

    newer_than: int


@frozen
class Leave:
    """Nobody wants it any more; what came is kept."""


@frozen
class Linked:
    """There is a link to a publisher of the same architecture."""


@frozen
class Cut:
    """The link is gone, or was silent for too long, or what came over it cannot be read."""


@frozen
class Closed:
    """The publisher said that it ended, and nobody is in its place."""


@frozen
class Offered:
    """The publisher has this, it says to the inquiry of that number."""

    inquiry: int
    publication: Publication


@frozen
class Nothing:
    """The publisher has nothing newer; its newest version, -1 for none at all."""

    inquiry: int
    version: int


@frozen
class Coming:
    """The bytes of a chunk come next."""

    digest: str
    chunk: int


@frozen
class Came:
    """The bytes that went into a place are all there; whether they have the checksum of that chunk."""

    good: bool


@frozen
class Gone:
    """The publisher does not keep this any more."""

    digest: str


@frozen
class Judged:
    """Whether the whole has its digest."""

    good: bool


@frozen
class Link:
    """Make a link, and give up the one there is."""


@frozen
class Inquire:
    """Ask for the publication of this digest where it is kept, else for the newest, if newer than the version."""

    inquiry: int  # its number, so that no answer is taken for that of another
    newer_than: int
    digest: str


@frozen
class Begin:
    """Make room for this one; what came of another is worth nothing now."""

    publication: Publication


@frozen
class Ask:
    """Ask for these chunks, in this order."""

    digest: str
    chunks: tuple[int, ...]


@frozen
class Into:
    """Write the bytes that come to the place of this chunk."""

    chunk: int


@frozen
class Aside:
    """Read the bytes that come, and forget them."""


@frozen
class Check:
    """All chunks are there: look at the digest of the whole."""


@frozen
class Give:
    """The fetch ends with this; with `NONE` where nothing is newer."""

    publication: Publication


@frozen
class Refuse:
    """The fetch fails: the newest version of the publisher is below one that was given."""

    version: int


Event = Fetch | Leave | Linked | Cut | Closed | Offered | Nothing | Coming | Came | Gone | Judged
Action = Link | Inquire | Begin | Ask | Into | Aside | Check | Give | Refuse


def shelved(kept: tuple[Publication, ...], new: Publication, keep: int) -> tuple[Publication, ...]:
    """The publications kept once there is a new one: the `keep` newest, oldest first.

    Raises: ChoiceError for a version that is not above the last one.

    >>> [each.version for each in shelved((Publication(3, "a", 1), Publication(4, "b", 1)), Publication(7, "c", 1), 2)]
    [4, 7]
    """
    last = kept[-1].version if kept else -1
    if new.version <= last:
        remedy = "versions never go back: count on from the last one, from 0 at first"
        raise ChoiceError(message("publish: version", got=new.version, wanted=f"at least {last + 1}", remedy=remedy))
    return (*kept, new)[-keep:]


def answered(kept: tuple[Publication, ...], asked: Inquire) -> Offered | Nothing:
    """What a publisher that keeps these says to an inquiry.

    >>> answered((Publication(3, "a", 1), Publication(4, "b", 1)), Inquire(1, 2, "a"))
    Offered(inquiry=1, publication=Publication(version=3, digest='a', chunks=1))
    >>> answered((Publication(3, "a", 1), Publication(4, "b", 1)), Inquire(1, 4, ""))
    Nothing(inquiry=1, version=4)
    """
    newest = kept[-1] if kept else NONE
    wanted = next((each for each in kept if asked.digest and each.digest == asked.digest), newest)
    return (
        Offered(asked.inquiry, wanted) if wanted.version > asked.newer_than else Nothing(asked.inquiry, newest.version)
    )
