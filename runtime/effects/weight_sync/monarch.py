"""Weights by Monarch's RDMABuffer: an actor sends the handles, and readers read the bytes without the publisher's help.

Both ends live in processes of Monarch, or in its client; a thread of an actor's process reads in the context of that actor,
`contextvars.copy_context()`. Without a device for RDMA, Monarch falls back to TCP and warns once. Reads are not synchronised,
so the publisher may overwrite the bytes that are being read: each chunk is compared with its checksum after the read, and a
read that was overwritten is repeated. Buffers occupy memory of both processes until they are dropped explicitly, which the end
of a publisher does. Monarch's own keys and networks apply; there is no other key.
"""

import base64
import importlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from attrs import field, frozen, mutable
from torch import Tensor

from ....core.errors import ChoiceError, message
from ....core.tree import leaves
from ..cluster.local.member_program import describe_failure
from ..cluster.version import installed
from .checksums import agreed, known, publication_digest, summing, sums
from .interface import WeightPublisher, WeightReader, refuse_closed
from .packing import handed, leaves_like, room_of
from .shared_memory.layout import WeightLayout, WeightsError, layout, same_architecture, text, views

SCHEME = "monarch://"
CHUNK_BYTES = 1 << 23
ASK_SECONDS = 10.0  # for the actor to answer that it is there
_DESKS: dict[str, "_Slots"] = {}  # the publishers of this process, for their actors, which run in it too
_numbers = itertools.count()


@mutable(eq=False)
class _Slot:
    """Memory for one publication, and the handles by which other processes read it."""

    room: Tensor
    handles: tuple[Any, ...]
    number: int = 0  # of the publication, changed before its first byte is written
    version: int = -1
    tables: dict[str, tuple[int, ...]] = field(factory=dict)


@frozen
class _Offer:
    """The actor's answer: a version, and how to read and check its bytes."""

    version: int
    layout: str
    chunk: int
    checks: str
    table: tuple[int, ...]
    digest: bytes
    handles: tuple[Any, ...]


class _Slots:
    """The publisher's side: slots written in turn."""

    def __init__(self, own: WeightLayout, slots: int, chunk: int, buffer: Any) -> None:
        self.own, self.chunk, self.letters = own, chunk, text(own)
        self.lock, self.writing, self.closed = threading.Lock(), threading.Lock(), False
        self.slots, self.newest = [_slot(own, chunk, buffer) for _ in range(slots)], -1

    def put(self, version: int, tensors: list[Tensor]) -> None:
        """Copy the leaves into the slot that was written longest ago."""
        with self.writing:
            refuse_closed(self.closed)
            last = self.slots[self.newest].version if self.newest >= 0 else -1
            if version <= last:
                remedy = "versions never go back: count on from the last one, from 0 at first"
                raise ChoiceError(
                    message("publish: version", got=version, wanted=f"at least {last + 1}", remedy=remedy)
                )
            place = (self.newest + 1) % len(self.slots)
            slot = self.slots[place]
            with self.lock:
                slot.number, slot.tables = slot.number + 1, {}
            with torch.no_grad():
                for target, source in zip(views(self.own, slot.room), tensors, strict=True):
                    target.copy_(source)
            with self.lock:
                slot.version, self.newest = version, place

    def offer(self, newer_than: int, has: tuple[str, ...]) -> _Offer | tuple[()]:
        """Return the newest publication, or () if it is not newer."""
        checks = agreed(has)
        while True:
            with self.lock:
                if self.closed or self.newest < 0 or self.slots[self.newest].version <= newer_than:
                    return ()
                slot = self.slots[self.newest]
                number, version, table = slot.number, slot.version, slot.tables.get(checks)
            if table is None:
                table = sums(slot.room.numpy().data, self.chunk, summing(checks))
            with self.lock:
                if slot.number == number:  # else it was overwritten while its checksums were computed
                    slot.tables[checks] = table
                    name = publication_digest(version, self.letters, self.chunk, checks, table)
                    return _Offer(version, self.letters, self.chunk, checks, table, name, slot.handles)

    def close(self) -> None:
        """Drop the buffers."""
        with self.lock:
            self.closed, slots, self.slots = True, self.slots, []
        for handle in itertools.chain.from_iterable(slot.handles for slot in slots):
            with suppress(Exception):
                handle.drop().get(timeout=ASK_SECONDS)


def _slot(own: WeightLayout, chunk: int, buffer: Any) -> _Slot:
    room = torch.zeros(own.size, dtype=torch.uint8)
    try:
        return _Slot(room, tuple(buffer(room[start : start + chunk]) for start in range(0, own.size, chunk)))
    except Exception as error:  # any error of Monarch for a device
        got, remedy = f"not to be had ({describe_failure(error)})", "take another way"
        raise WeightsError(
            message("monarch: a buffer", got=got, wanted="memory that others read", remedy=remedy)
        ) from error


def _offered(actor: Any, newer_than: int, has: tuple[str, ...]) -> _Offer | tuple[()]:
    return _desk_of(actor).offer(newer_than, has)


def _closed(actor: Any) -> bool:
    return _desk_of(actor).closed


def _made(actor: Any, name: str) -> None:
    actor.name = name


def _desk_of(actor: Any) -> _Slots:
    """Return the actor's desk, by importing this module: Monarch sends copies of functions, and their globals, to an actor."""
    found: _Slots = importlib.import_module(__name__)._DESKS[actor.name]
    return found


def _module(name: str) -> Any:
    installed("monarch")
    return importlib.import_module(name)


def address_of(handle: Any, timeout: float) -> str:
    """Return the address of an actor, once it is running: its pickle, so an untrusted address must not be opened."""
    handle.initialized.get(timeout=timeout)
    letter: bytes = importlib.import_module("cloudpickle").dumps(handle)
    return SCHEME + base64.urlsafe_b64encode(letter).decode()


def actor_of(address: str) -> Any:
    """Return the handle of the actor in an address. Raises: ChoiceError for a malformed one."""
    try:
        return importlib.import_module("cloudpickle").loads(base64.urlsafe_b64decode(address.removeprefix(SCHEME)))
    except Exception as error:  # unpickling anything else can raise anything
        wanted, remedy = f"{SCHEME} and an actor", "take the address that the publisher names, all of it"
        got = f"{address[:40]!r} ({type(error).__name__})"
        raise ChoiceError(message("weight_reader: address", got=got, wanted=wanted, remedy=remedy)) from error


class _Actor:
    """The actor that answers readers, made anew where Monarch has stopped it: its controller ends with some lost readers."""

    def __init__(self, spawn: Callable[[str], Any]) -> None:
        self.spawn = spawn
        self.begin()

    def begin(self) -> None:
        """Start an actor, and wait until it runs."""
        self.handle = self.spawn(f"purestep_weights_actor_{next(_numbers)}")
        self.address = address_of(self.handle, ASK_SECONDS)

    def renewed(self) -> str:
        """Return the address of an actor that answers."""
        try:
            self.handle.closed.call_one().get(timeout=ASK_SECONDS)
        except Exception:
            self.begin()
        return self.address


@contextmanager
def monarch_publisher(params: Any, *, slots: int = 3, chunk: int = CHUNK_BYTES) -> Iterator[WeightPublisher]:
    """Yield the publisher of weights like `params`; its address names an actor in this process, for Monarch's other processes.

    A reader is overtaken when `slots` - 1 publications end while it reads, and reads again. Weights on a GPU are copied to
    host memory. Raises: EngineError if Monarch is missing or has an untested version, WeightsError if it has no buffers,
    ChoiceError.
    """
    for name, value, least in (("slots", slots, 2), ("chunk", chunk, 1)):
        if value < least:
            raise ChoiceError(message(f"monarch: {name}", got=value, wanted=f"at least {least}", remedy="take more"))
    own, tensors = layout(params), leaves_like(params)
    actors, buffer = _module("monarch.actor"), _module("monarch.rdma").RDMABuffer
    kind = {
        "__init__": _made,
        "offer": actors.endpoint(_offered),
        "closed": actors.endpoint(_closed),
    }
    desk, title = _Slots(own, slots, chunk, buffer), f"purestep_weights_{next(_numbers)}"
    _DESKS[title] = desk
    try:
        actor = _Actor(lambda name: actors.this_proc().spawn(name, type("WeightsDesk", (actors.Actor,), kind), title))
        yield WeightPublisher(
            "monarch", actor.address, lambda version, tree: desk.put(version, tensors("publish", tree)), actor.renewed
        )
    finally:
        desk.close()


@contextmanager
def monarch_reader(address: str, like: Any) -> Iterator[WeightReader]:
    """Yield the reader for the actor of a publisher; `like` is a tree of the architecture, on the devices to fetch to.

    Raises: EngineError if Monarch is missing; ChoiceError for a malformed address; WeightsError, at a fetch, for another
    architecture, or if the actor or its process does not answer.
    """
    action = _module("monarch.rdma").RDMAAction
    reader = _MonarchReader(actor_of(address), like, action)
    yield WeightReader("monarch", reader.fetch, reader.closed)


class _MonarchReader:
    """The reader's side."""

    def __init__(self, desk: Any, like: Any, action: Any) -> None:
        self.desk, self.like, self.action = desk, like, action
        self.own, self.same, self.lock = layout(like), leaves_like(like), threading.Lock()

    def closed(self) -> bool:
        """Return whether the publisher has ended or does not answer."""
        try:
            return bool(self.desk.closed.call_one().get(timeout=ASK_SECONDS))
        except Exception:
            return True

    def fetch(self, newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> tuple[Any, ...]:
        """Return (version, params) or (): see `WeightReader`."""
        given = self.same("fetch: into", into) if leaves(into) else []
        until = time.monotonic() + seconds
        with self.lock:
            room = room_of(self.own, given) if given else None
            room = torch.empty(self.own.size, dtype=torch.uint8) if room is None else room
            while True:
                offer = self._told(lambda: self._asked(newer_than, until))
                if not offer:
                    return ()
                same_architecture("fetch: monarch", offer.layout, self.own)
                if self._told(lambda offer=offer: self._read(offer, room, until)):
                    return offer.version, handed(self.own, room, self.like, given)
                if time.monotonic() > until:
                    remedy = "give the publisher more slots, publish less often, or see who alters what goes over the network"
                    got = f"overtaken or altered for {seconds:g} s"
                    raise WeightsError(message("fetch: monarch", got=got, wanted="what is published", remedy=remedy))

    def _asked(self, newer_than: int, until: float) -> Any:
        return self.desk.offer.call_one(newer_than, known()).get(timeout=max(0.1, until - time.monotonic()))

    def _read(self, offer: _Offer, room: Tensor, until: float) -> bool:
        """Read the bytes of an offer; return whether they are the publication that was offered, completely."""
        left = max(1.0, until - time.monotonic())
        action = self.action()
        for number, handle in enumerate(offer.handles):
            action.read_remote(room[number * offer.chunk :][: offer.chunk], handle)
        if offer.handles:
            action.submit(timeout=int(left) + 1).get(timeout=left + 1.0)
        table = sums(room.numpy().data, offer.chunk, summing(offer.checks))
        return publication_digest(offer.version, offer.layout, offer.chunk, offer.checks, table) == offer.digest

    def _told(self, act: Any) -> Any:
        """Return `act()`, with Monarch's errors turned into a WeightsError of one line."""
        try:
            return act()
        except (WeightsError, TypeError):
            raise
        except Exception as cause:
            said = (str(cause).strip().splitlines() or [""])[0][:120]
            got = f"not to be had ({type(cause).__name__}: {said})"
            remedy = "see that the publisher's process is alive, and take the address that it names"
            raise WeightsError(message("fetch: monarch", got=got, wanted="an answer", remedy=remedy)) from cause
