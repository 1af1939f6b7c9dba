"""What a publisher keeps to be pulled: its newest publications, each packed into one run of bytes with a table of checksums.

Who sends from a publication holds it, so that its memory is written again only when nobody does: readers, however slow,
never make the publisher wait, and never get bytes of two publications. A table is made when the first reader asks.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from attrs import field, frozen, mutable
from torch import Tensor

from ..weights_layout import Layout, text, views
from .frames import Sum, digest, sums
from .words import Inquire, Nothing, Offered, Publication, answered, shelved


@frozen
class Named:
    """A publication under one kind of checksum."""

    digest: bytes
    table: tuple[int, ...]


@mutable(eq=False)
class Kept:
    """One publication on the shelf."""

    version: int
    room: Tensor  # [bytes] uint8
    holders: int = 0
    dropped: bool = False
    names: dict[str, Named] = field(factory=dict)  # by the checksum, once a reader has asked
    naming: threading.Lock = field(factory=threading.Lock)

    @property
    def data(self) -> memoryview:
        """The packed leaves."""
        return self.room.numpy().data


class Shelf:
    """The publications kept. Any thread may make the calls."""

    def __init__(self, own: Layout, keep: int, chunk: int) -> None:
        self.own, self.keep, self.chunk, self.letters = own, keep, chunk, text(own)
        self.lock, self.writing = threading.Lock(), threading.Lock()
        self.kept: dict[int, Kept] = {}  # by version, oldest first
        self.free: list[Tensor] = []

    def _order(self, checks: str) -> tuple[Publication, ...]:
        """What is kept, oldest first; a digest is "" until somebody has asked."""
        names = [(each, each.names.get(checks, Named(b"", ()))) for each in self.kept.values()]
        return tuple(Publication(each.version, name.digest.hex(), len(name.table)) for each, name in names)

    def put(self, version: int, tensors: Sequence[Tensor]) -> None:
        """Copies the leaves into memory that nobody holds, and makes them the newest. Raises: ChoiceError."""
        with self.writing:
            with self.lock:
                stay = {each.version for each in shelved(self._order(""), Publication(version, "", 0), self.keep)}
                # zeros between the leaves: equal weights are to be equal bytes, whoever publishes them
                room = self.free.pop() if self.free else torch.zeros(self.own.size, dtype=torch.uint8)
            try:
                with torch.no_grad():
                    for target, source in zip(views(self.own, room), tensors, strict=True):
                        target.copy_(source)
            except BaseException:
                self.free.append(room)
                raise
            with self.lock:
                self.kept[version] = Kept(version, room)
                for old in self.kept.keys() - stay:
                    self._drop(self.kept.pop(old))

    def _drop(self, kept: Kept) -> None:
        kept.dropped = True
        self._reuse(kept)

    def _reuse(self, kept: Kept) -> None:
        if kept.dropped and not kept.holders and len(self.free) < self.keep:
            self.free.append(kept.room)

    @contextmanager
    def _held(self, kept: Kept) -> Iterator[Kept]:
        """One whose holders were counted up."""
        try:
            yield kept
        finally:
            with self.lock:
                kept.holders -= 1
                self._reuse(kept)

    @contextmanager
    def holding(self, digest: bytes) -> Iterator[Kept | None]:
        """The publication of that digest, whose bytes stay as they are meanwhile; None where it is not kept any more."""
        with self.lock:
            named = (each for each in self.kept.values() if any(name.digest == digest for name in each.names.values()))
            found = next(named, None)
            if found:
                found.holders += 1
        if found is None:
            yield None
            return
        with self._held(found) as kept:
            yield kept

    def answer(self, asked: Inquire, checks: str, how: Sum) -> tuple[Offered | Nothing, tuple[int, ...]]:
        """What there is for an inquiry, and the table of what is offered, of checksums made `how`."""
        while True:
            with self.lock:
                newest = next(reversed(self.kept.values()), None)
                if newest is None or newest.version <= asked.newer_than:
                    return answered(self._order(checks), asked), ()
                newest.holders += 1
            with self._held(newest):
                self._name(newest, checks, how)
            with self.lock:
                named = tuple(each for each in self._order(checks) if each.digest)
                if named and named[-1].version >= newest.version:  # else it was dropped while its table was made
                    found = answered(named, asked)
                    wanted = self.kept[found.publication.version] if isinstance(found, Offered) else None
                    return found, wanted.names[checks].table if wanted else ()

    def _name(self, kept: Kept, checks: str, how: Sum) -> None:
        """Makes the table, once."""
        with kept.naming:
            if checks in kept.names:
                return
            table = sums(kept.data, self.chunk, how)
            name = digest(kept.version, self.letters, self.chunk, checks, table)
            with self.lock:
                kept.names[checks] = Named(name, table)
