"""Weights for readers whose number is fixed: everybody gets each publication at once, by gloo, or NCCL between GPUs.

A publication is announced in a store, and comes back when all readers have taken it: they fetch in turn with it, so that
the slowest decides. A member that is lost, or does not come within the seconds, breaks the group: the publisher and every
reader in the middle of a publication are told by an error, and keep what they had. `renew(readers)` makes another group; its
members are those who fetch next, old or new. A store asks nobody for a key, so the network is one's own.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import torch
from torch import Tensor

from ....core.errors import ChoiceError, message
from ....core.tree import leaves
from ..weights_layout import Layout, WeightsError, layout, same_architecture, text, views
from .group import Group, SilenceError, backend_of, broken, buckets, formed, in_time, near_to, store_at
from .interface import Inlet, Outlet
from .trees import handed, room_of, same

BUCKET = 25 << 20  # bytes
NEWS, TERMS = "news", "terms"
T = TypeVar("T")
RENEW = "outlet.renew(readers) forms another group"


@contextmanager
def broadcast_outlet(
    params: Any,
    *,
    readers: int,
    host: str = "127.0.0.1",
    port: int = 0,
    bucket: int = BUCKET,
    seconds: float = 30.0,
) -> Iterator[Outlet]:
    """The outlet for so many readers, whose address is broadcast://HOST:PORT; port 0 takes a free one.

    `publish` waits for the readers, at most `seconds` for each bucket of bytes, and fails where one does not come.
    Raises: ChoiceError (readers, bucket, a version that does not go up), StructureError, WeightsError.
    """
    for name, value in (("readers", readers), ("bucket", bucket)):
        if value < 1:
            raise ChoiceError(message(f"broadcast: {name}", got=value, wanted="at least 1", remedy="name some"))
    store = store_at(host, port, master=True, seconds=seconds)
    place = f"[{host}]" if ":" in host else host
    own, backend = layout(params), backend_of(leaves(params))
    terms = {"layout": text(own), "backend": backend, "bucket": bucket, "seconds": seconds}
    store.set(TERMS, json.dumps(terms))
    source = _Source(store, own, bucket, lambda *met: formed(*met, backend=backend, near=host, seconds=seconds))
    source.renew(readers)
    tensors = same(params)
    try:
        yield Outlet(
            "broadcast",
            f"broadcast://{place}:{store.port}",
            lambda version, tree: source.publish(version, tensors("publish", tree)),
            source.renew,
        )
    finally:
        source.close()


class _Source:
    """The publisher's member of each group."""

    def __init__(self, store: Any, own: Layout, bucket: int, form: Any) -> None:
        self.store, self.own, self.bucket, self.form = store, own, bucket, form
        self.lock, self.room = threading.Lock(), torch.zeros(0, dtype=torch.uint8)
        self.group: tuple[Group, ...] = ()
        self.generation = self.number = self.readers = 0
        self.version, self.whole = -1, True

    def renew(self, readers: int) -> None:
        """Another generation, whose members are the publisher and the first so many readers that fetch."""
        with self.lock:
            self.generation, self.number, self.readers = self.generation + 1, 0, readers
            self.group, self.whole = (), True
            self._announce()

    def _announce(self, *, closed: bool = False) -> None:
        news = {"generation": self.generation, "number": self.number, "readers": self.readers, "closed": closed}
        self.store.set(NEWS, json.dumps(news))

    def publish(self, version: int, tensors: list[Tensor]) -> None:
        """Gives all readers the weights."""
        with self.lock, broken("publish: broadcast", RENEW):
            if version <= self.version:
                remedy = "versions never go back: count on from the last one, from 0 at first"
                wanted = f"at least {self.version + 1}"
                raise ChoiceError(message("publish: version", got=version, wanted=wanted, remedy=remedy))
            if not self.whole:
                raise RuntimeError("a reader was lost")
            room = self._packed(tensors)
            self.number += 1
            self.whole = False
            self._announce()
            group = self._group()
            head = torch.tensor([self.number, version], device=room.device)
            group.broadcast(head)
            for part in buckets(room, self.bucket):
                group.broadcast(part)
            group.gather(head)
            self.version, self.whole = version, True

    def _group(self) -> Group:
        if not self.group:
            self.group = (self.form(self.store, self.generation, 0, self.readers + 1),)
        return self.group[0]

    def _packed(self, tensors: list[Tensor]) -> Tensor:
        if self.room.numel() != self.own.size:
            where = tensors[0].device if backend_of(tensors) == "nccl" else torch.device("cpu")
            self.room = torch.zeros(self.own.size, dtype=torch.uint8, device=where)
        with torch.no_grad():
            for target, source in zip(views(self.own, self.room), tensors, strict=True):
                target.copy_(source)
        return self.room

    def close(self) -> None:
        """Says that nothing more comes."""
        with self.lock:
            self._announce(closed=True)
            self.group = ()


@contextmanager
def broadcast_inlet(address: str, like: Any, *, seconds: float = 30.0) -> Iterator[Inlet]:
    """The inlet for broadcast://HOST:PORT; `like` is a tree of the architecture, on the devices to fetch to.

    A fetch where something was announced takes part in it, and waits for the other members as long as the publisher does;
    its own `seconds` are for the store, which is met anew by the fetch behind one that it did not answer. Raises:
    WeightsError for another architecture, a publisher that is not there.
    """
    parts = urlsplit(address)
    if not parts.hostname or not parts.port:
        wanted, remedy = "broadcast://HOST:PORT", "take the address that the publisher names"
        raise ChoiceError(message("inlet: address", got=repr(address), wanted=wanted, remedy=remedy))
    place = parts.hostname, parts.port
    link = _Link(lambda: store_at(*place, master=False, seconds=seconds), seconds)
    with broken(address, "start the publisher again"):
        terms = json.loads(link.asked(lambda store: store.get(TERMS)))
    same_architecture(f"fetch: {address}", terms["layout"], layout(like))
    how = {"backend": terms["backend"], "near": near_to(*place), "seconds": terms["seconds"]}
    sink = _Sink(link, like, terms, lambda *met: formed(*met, **how))
    try:
        yield Inlet("broadcast", sink.fetch, sink.closed)
    finally:
        sink.group = ()


class _Link:
    """A reader's way to the publisher's store."""

    def __init__(self, meet: Callable[[], Any], seconds: float) -> None:
        self.meet, self.seconds = meet, seconds
        self.store: Any = ()  # where it did not answer, until somebody meets it again

    def asked(self, ask: Callable[[Any], T], seconds: float = 0.0) -> T:
        """What comes of a conversation. Raises: SilenceError where it takes too long, other RuntimeErrors."""
        if self.store == ():
            self.store = self.meet()
        store = self.store
        try:
            return in_time(lambda: ask(store), seconds or self.seconds)
        except SilenceError:
            self.store = ()  # its next answer would be to what was asked before
            raise


class _Sink:
    """A reader's member of each group."""

    def __init__(self, link: _Link, like: Any, terms: dict[str, Any], form: Any) -> None:
        self.link, self.like, self.bucket, self.form = link, like, terms["bucket"], form
        self.forming = 3.0 * terms["seconds"]  # others may come late, and then take as long again to be reached
        self.own, self.same, self.lock = layout(like), same(like), threading.Lock()
        self.group: tuple[Group, ...] = ()
        self.generation = self.number = self.rank = 0
        self.whole = True  # no publication of this generation failed
        self.ended = False

    def closed(self) -> bool:
        """Whether the publisher said so, or its store is gone; one that does not answer may come back."""
        try:
            return self.ended or (self.link.store != () and bool(self._news()["closed"]))
        except SilenceError:
            return False
        except RuntimeError:
            return True

    def _news(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.link.asked(lambda store: store.get(NEWS)))
        self.ended = bool(found["closed"])
        return found

    def fetch(self, newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> tuple[Any, ...]:
        """See `Inlet`."""
        given = self.same("fetch: into", into) if leaves(into) else []
        found: tuple[Any, ...] = ()
        with self.lock, broken("fetch: broadcast", RENEW):
            if self.ended:
                return ()
            news = self._news()
            if news["generation"] != self.generation:
                self._enter(news)
            while self.whole and self.number < news["number"]:
                self.whole = False
                version, room = self._taken(news["readers"], room_of(self.own, given) if given else None)
                self.whole = True
                found = (version, room) if version > newer_than else ()
        return (found[0], handed(self.own, found[1], self.like, given)) if found else ()

    def _enter(self, news: dict[str, Any]) -> None:
        """Takes a place in the group of another generation."""
        self.group, self.number, self.whole = (), 0, True
        rank: int = self.link.asked(lambda store: store.add(f"joined/{news['generation']}", 1))
        if rank > news["readers"]:
            got = f"full with {news['readers']} readers"
            raise WeightsError(message("fetch: the group", got=got, wanted="a place", remedy=RENEW))
        self.generation, self.rank = news["generation"], rank

    def _taken(self, readers: int, lent: Tensor | None) -> tuple[int, Tensor]:
        """Takes part in one publication."""
        if not self.group:
            own = self.generation, self.rank, readers + 1
            self.group = (self.link.asked(lambda store: self.form(store, *own), self.forming),)
        group, where = self.group[0], self._device()
        head = torch.zeros(2, dtype=torch.int64, device=where)
        group.broadcast(head)
        if lent is None or where.type != "cpu":
            lent = torch.empty(self.own.size, dtype=torch.uint8, device=where)
        for part in buckets(lent, self.bucket):
            group.broadcast(part)
        self.number, version = head.tolist()
        group.gather(head)
        return version, lent

    def _device(self) -> torch.device:
        tensors = leaves(self.like)
        return tensors[0].device if backend_of(tensors) == "nccl" else torch.device("cpu")
