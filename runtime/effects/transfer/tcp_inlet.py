"""The reader's end of `tcp_outlet`: pulls a publication chunk by chunk, straight into the memory that it hands out.

`rules` decides what is asked for; this performs it over one link, and makes another when that breaks. What has come stays,
within a fetch and between two, as long as the publisher offers the same publication.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import evolve, frozen
from torch import Tensor

from ....core.errors import message
from ..weights_layout import WeightsError, layout, same_architecture
from . import words as word
from .frames import (
    ASK,
    BYE,
    CHUNK,
    GONE,
    HELLO,
    INQUIRE,
    NOTHING,
    OFFER,
    WELCOME,
    Head,
    LinkError,
    Sum,
    digest,
    known,
    packed,
    said,
    summing,
)
from .interface import Inlet
from .rules import pull, step
from .sockets import Wire, body_of, enter, heard, key_of, next_head, place_of, receive, send, skip
from .trees import handed, room_of, same

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds before a link is tried again; the last one from then on
UNREACHABLE = "start its publisher, and see that this machine reaches it"


@contextmanager
def tcp_inlet(address: str, like: Any, *, key: bytes, window: int = 8, patience: float = 30.0) -> Iterator[Inlet]:
    """The inlet for tcp://HOST:PORT; `like` is a tree of the architecture, on the devices to fetch to.

    `window` chunks are asked for ahead; a link on which nothing moves for `patience` seconds is given up for a new one.
    A tree that was fetched and is passed as `into` of a later fetch is received into without another copy.
    A fetch from a publisher that is gone, and has not said that it ended, waits for another in its place.
    Raises: ChoiceError; WeightsError, at the first fetch, for another key or architecture.
    """
    puller = _Puller(address, like, key_of(key, address), window, patience)
    try:
        yield Inlet("tcp", puller.fetch, lambda: puller.ended)
    finally:
        puller.unlink()


@frozen
class _Terms:
    """What a publisher said when it was met."""

    layout: str
    chunk: int
    checks: str
    sum: Sum


class _Puller:
    """A reader: the state of its rules, its link, and the memory that it fills."""

    def __init__(self, address: str, like: Any, key: bytes, window: int, patience: float) -> None:
        self.address, self.place, self.key, self.patience = address, place_of(address), key, patience
        self.like, self.own, self.same = like, layout(like), same(like)
        self.lock, self.state, self.ended = threading.Lock(), pull(window), False
        self.wire: Wire | None = None
        self.terms = _Terms("", 1, "", lambda data: 0)
        self.room: Tensor | None = None  # for what is being pulled, or kept for the next
        self.offered: tuple[int, ...] = ()  # the table of the publication offered last
        self.table: tuple[int, ...] = ()  # of the one that is being pulled
        self.sums: dict[int, int] = {}  # of the chunks that came
        self.head = Head(CHUNK, b"", 0, 0, 0)  # of the chunk that comes
        self.why = ""  # the last link broke

    def fetch(self, newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> tuple[Any, ...]:
        """See `Inlet`."""
        given = self.same("fetch: into", into) if pytree.tree_leaves(into) else []
        lent = room_of(self.own, given) if given else None
        with self.lock:
            try:
                found = self._pulled(newer_than, lent, time.monotonic() + seconds)
            except TimeoutError:
                self._left(lent)
                raise self._late(seconds) from None
            except BaseException:
                self._left(lent)
                raise
            if found == word.NONE:
                return ()
            room = self._room(None)
            self.room = None if room is lent or not given else room
            return found.version, handed(self.own, room, self.like, given)

    def _left(self, lent: Tensor | None) -> None:
        """Ends a fetch that failed: what came is kept, in memory that is nobody's."""
        self.unlink()
        self.state, _ = step(step(self.state, word.Leave())[0], word.Cut())
        if lent is not None and self.room is lent:
            self.room = lent.clone()

    def _late(self, seconds: float) -> WeightsError:
        came = f"{self.state.have.bit_count():,} of {self.state.goal.chunks:,} chunks came"
        why = f" ({self.why})" if self.why else ""
        got = f"not whole after {seconds:g} s, {came}{why}"
        remedy = "fetch again, what came is kept" if self.state.have else UNREACHABLE
        return WeightsError(message(f"fetch: {self.address}", got=got, wanted="weights in time", remedy=remedy))

    def _pulled(self, newer_than: int, lent: Tensor | None, until: float) -> word.Publication:
        """Feeds events and performs actions until the fetch ends."""
        self.state, actions = step(self.state, word.Fetch(newer_than))
        todo = deque(actions)
        while True:
            try:
                if not todo:
                    event = self._heard(until)
                else:
                    action = todo.popleft()
                    if isinstance(action, word.Give):
                        return action.publication
                    event = self._performed(action, lent, until)
            except LinkError as error:
                self.why, event = str(error), word.Cut()
                todo.clear()
            if event is not None:
                self.state, actions = step(self.state, event)
                todo.extend(actions)

    def _performed(self, action: word.Action, lent: Tensor | None, until: float) -> word.Event | None:
        """Performs an action; gives what comes of it at once, if anything."""
        if isinstance(action, word.Link):
            return self._linked(until)
        if isinstance(action, word.Refuse):
            remedy = "let it count on from the last version, or open a new inlet"
            wanted = f"at least {self.state.last}"
            raise WeightsError(
                message(f"fetch: {self.address}: version", got=action.version, wanted=wanted, remedy=remedy)
            )
        if isinstance(action, word.Inquire):
            asked = {"inquiry": action.inquiry, "newer_than": action.newer_than, "digest": action.digest}
            send(self._wire(until), packed(INQUIRE, said(asked)))
        elif isinstance(action, word.Ask):
            send(self._wire(until), packed(ASK, said({"chunks": action.chunks}), digest=bytes.fromhex(action.digest)))
        elif isinstance(action, word.Begin):
            self.table, self.sums = self.offered, {}
            self.room = self._room(lent)
        elif isinstance(action, word.Into):
            return word.Came(self._received(action.chunk, until))
        elif isinstance(action, word.Aside):
            skip(self._wire(until), self.head.length)
        elif isinstance(action, word.Check):
            return word.Judged(self._digest() == self.state.goal.digest)
        return None

    def _room(self, lent: Tensor | None) -> Tensor:
        if lent is not None:
            return lent
        return torch.empty(self.own.size, dtype=torch.uint8) if self.room is None else self.room

    def _wire(self, until: float) -> Wire:
        if self.wire is None:
            raise LinkError("there is no link")
        return evolve(self.wire, until=until)

    def _received(self, chunk: int, until: float) -> bool:
        """Writes the bytes that come to their place; whether they are those of that chunk."""
        place = self._room(None).numpy().data[chunk * self.terms.chunk :][: self.head.length]
        receive(self._wire(until), place)
        self.sums[chunk] = self.terms.sum(place)
        return self.sums[chunk] == self.table[chunk]

    def _digest(self) -> str:
        """That of what came."""
        came = [self.sums[chunk] for chunk in range(self.state.goal.chunks)]
        return self._named(self.state.goal.version, came)

    def _named(self, version: int, table: Sequence[int]) -> str:
        return digest(version, self.terms.layout, self.terms.chunk, self.terms.checks, table).hex()

    def _heard(self, until: float) -> word.Event | None:
        """The next frame as an event."""
        head = next_head(self._wire(until))
        if head.kind == CHUNK:
            here = head.chunk * self.terms.chunk
            if not here < self.own.size or head.length != min(self.terms.chunk, self.own.size - here):
                raise LinkError(f"chunk {head.chunk} came with {head.length:,} bytes")
            self.head = head
            return word.Coming(head.digest.hex(), head.chunk)
        says = body_of(self._wire(until), head)
        if head.kind == GONE:
            return word.Gone(head.digest.hex())
        if head.kind == BYE:
            self.ended = True
            raise LinkError("the publisher ended")
        inquiry, version = says.get("inquiry"), says.get("version")
        if isinstance(inquiry, int) and isinstance(version, int):
            if head.kind == NOTHING:
                return word.Nothing(inquiry, version)
            if head.kind == OFFER:
                return word.Offered(inquiry, self._offer(head, version, says.get("table")))
        raise LinkError(f"a publisher sent a frame of kind {head.kind}")

    def _offer(self, head: Head, version: int, table: Any) -> word.Publication:
        count = -(-self.own.size // self.terms.chunk)
        if not isinstance(table, list) or len(table) != count or self._named(version, table) != head.digest.hex():
            raise LinkError("an offer that is not whole")
        self.offered = tuple(table)
        return word.Publication(version, head.digest.hex(), count)

    def _linked(self, until: float) -> word.Event:
        """Tries to make a link until there is one; once, where the publisher has said that it ended."""
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            self.unlink()
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
            try:
                self._meet(until)
                self.ended = False
                return word.Linked()
            except LinkError as error:
                self.why = str(error)
                if self.ended:
                    return word.Closed()
        raise AssertionError

    def _meet(self, until: float) -> None:
        """Makes a link, proves the key, and hears what is published there."""
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            link = socket.create_connection(self.place, timeout=min(left, self.patience))
        except OSError as cause:
            raise LinkError(f"no link: {cause.strerror or cause}") from cause
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire = Wire(link, self.patience)
        enter(self._wire(until), self.key, self.address)
        send(self._wire(until), packed(HELLO, said({"checks": known()})))
        says = heard(self._wire(until), WELCOME)
        letters, chunk, checks = says.get("layout"), says.get("chunk"), says.get("checks")
        if not isinstance(letters, str) or not isinstance(chunk, int) or chunk < 1:
            raise LinkError("a greeting that cannot be read")
        same_architecture(f"fetch: {self.address}", letters, self.own)
        self.terms = _Terms(letters, chunk, str(checks), summing(str(checks), self.address))

    def unlink(self) -> None:
        """Gives up the link."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.socket.close()
