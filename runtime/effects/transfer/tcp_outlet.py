"""Weights for readers on other machines: a publisher that serves its newest publications over TCP, chunk by chunk.

Readers come and go; each has a thread. A reader that has no key gets nothing but a nonce; one that says what cannot be read,
or does not take what it asked for within `patience`, is cut off, and may come back for what it is missing. So is one whose
machine does not say that bytes arrived, though all of them were handed to the network.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from attrs import evolve

from ....core.errors import ChoiceError, message
from ..weights_layout import WeightsError, layout
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
    agreed,
    head,
    packed,
    said,
    summing,
)
from .interface import Outlet, refuse_closed
from .shelf import Shelf
from .sockets import FOREVER, Wire, address_of, admit, body_of, heard, key_of, next_head, send
from .trees import same
from .words import Inquire, Offered

CHUNK_BYTES = 1 << 22
GREETING_SECONDS = 10.0  # to prove that one has the key
LONGEST = 1e6  # seconds that a socket can be told to wait
GOODBYE_SECONDS = 2.0  # for readers that are in the middle of a chunk at the end
ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # a reader whose machine vanished is found out


@contextmanager
def tcp_outlet(
    params: Any,
    *,
    key: bytes,
    host: str = "127.0.0.1",
    port: int = 0,
    keep: int = 2,
    checks: str = "",
    chunk: int = CHUNK_BYTES,
    patience: float = 60.0,
) -> Iterator[Outlet]:
    """The outlet for weights like `params`, whose address is tcp://HOST:PORT; port 0 takes a free one.

    `host` is the name or number under which readers reach this machine, and alone is listened to. `key` is the same on both
    sides. The `keep` newest publications can be pulled, so that a pull that began before a publication goes on behind it.
    A publication is one copy; its checksums are made when the first reader asks. `checks` is "crc32", "xxh3" (faster) or
    "blake2b"; by default xxh3 where both sides have xxhash. `patience` is in seconds. A publisher that was started again,
    on the same port, goes on with those who were pulling from the one before, where it publishes the same.
    Raises: ChoiceError (key, keep, chunk, checks, a version that does not go up), WeightsError for a host or port that
    cannot be had, StructureError.
    """
    for name, value in (("keep", keep), ("chunk", chunk)):
        if value < 1:
            raise ChoiceError(message(f"tcp: {name}", got=value, wanted="at least 1", remedy="take the default"))
    own = layout(params)
    shelf = Shelf(own, keep, chunk)
    if checks:
        summing(checks, "tcp")
    key = key_of(key, "tcp")
    listener = listening(host, port)
    server = _Server(shelf, key, listener, checks, patience)
    try:
        threading.Thread(target=server.accept, name="purestep-weights", daemon=True).start()
        tensors = same(params)

        def publish(version: int, tree: Any) -> None:
            refuse_closed(server.closed)
            shelf.put(version, tensors("publish", tree))

        yield Outlet("tcp", address_of(host, listener.getsockname()[1]), publish)
    finally:
        server.close()


def listening(host: str, port: int) -> socket.socket:
    """What listens there. Raises: WeightsError for a host or port that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=128)
    except (OSError, OverflowError) as cause:
        remedy = "name this machine as others reach it, and a port that nobody has"
        number = getattr(cause, "errno", None)
        why = os.strerror(number) if isinstance(number, int) and number > 0 else cause
        got = f"not to be had ({why})"
        raise WeightsError(message(f"tcp: {host}:{port}", got=got, wanted="a free port", remedy=remedy)) from cause


class _Server:
    """The threads of one publisher."""

    def __init__(self, shelf: Shelf, key: bytes, listener: socket.socket, checks: str, patience: float) -> None:
        self.shelf, self.key, self.listener, self.checks, self.patience = shelf, key, listener, checks, patience
        self.lock, self.closed = threading.Lock(), False
        self.readers: dict[socket.socket, threading.Thread] = {}

    def accept(self) -> None:
        """Takes readers in until the end."""
        while not self.closed:
            try:
                reader, _ = self.listener.accept()
            except OSError:
                if not self.closed:
                    time.sleep(0.05)  # no descriptor is free, say
                continue
            with self.lock:
                if self.closed:
                    reader.close()
                    return
                thread = threading.Thread(
                    target=self.serve, args=(reader,), name="purestep-weights-reader", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no thread is free; the reader comes again
                    reader.close()
                    continue
                self.readers[reader] = thread

    def close(self) -> None:
        """Ends the threads; readers are told."""
        with self.lock:
            self.closed = True
            readers = dict(self.readers)
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        until = time.monotonic() + GOODBYE_SECONDS
        for reader in readers:
            with suppress(OSError):
                reader.shutdown(socket.SHUT_RD)  # its thread says goodbye behind what it is sending
        for reader, thread in readers.items():
            thread.join(max(0.0, until - time.monotonic()))
            with suppress(OSError):
                reader.shutdown(socket.SHUT_RDWR)

    def serve(self, reader: socket.socket) -> None:
        """Serves one reader until it leaves."""
        try:
            with suppress(OSError):
                reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                unheard = {"TCP_USER_TIMEOUT": round(1000 * min(self.patience, LONGEST))}
                for name, value in (ALIVE | unheard).items():
                    if option := getattr(socket, name, 0):
                        reader.setsockopt(socket.IPPROTO_TCP, option, value)
            wire = Wire(reader, self.patience)
            with suppress(LinkError, TimeoutError):
                if admit(evolve(wire, until=time.monotonic() + GREETING_SECONDS), self.key):
                    self._served(wire)
        finally:
            with self.lock:
                self.readers.pop(reader, None)
            reader.close()

    def _served(self, wire: Wire) -> None:
        shelf, has = self.shelf, heard(wire, HELLO).get("checks")
        checks = agreed(self.checks, has if isinstance(has, list) else ())
        what = {"layout": shelf.letters, "size": shelf.own.size, "chunk": shelf.chunk, "checks": checks}
        send(wire, packed(WELCOME, said(what)))
        how = summing(checks)
        try:
            while not self.closed:
                asked = next_head(evolve(wire, patience=FOREVER))  # a reader may be busy for hours with what it has
                if asked.kind == ASK:
                    self._send_chunks(wire, asked.digest, body_of(wire, asked).get("chunks"))
                else:
                    self._answer(wire, asked, checks, how)
        finally:
            if self.closed:
                send(wire, packed(BYE))

    def _answer(self, wire: Wire, asked: Head, checks: str, how: Sum) -> None:
        if asked.kind != INQUIRE:
            raise LinkError(f"a reader sent a frame of kind {asked.kind}")
        words = body_of(wire, asked)
        inquiry, newer_than, digest = words.get("inquiry"), words.get("newer_than"), words.get("digest")
        if not isinstance(inquiry, int) or not isinstance(newer_than, int) or not isinstance(digest, str):
            raise LinkError("an inquiry that cannot be read")
        found, table = self.shelf.answer(Inquire(inquiry, newer_than, digest), checks, how)
        if isinstance(found, Offered):
            offer = {"inquiry": inquiry, "version": found.publication.version, "table": table}
            send(wire, packed(OFFER, said(offer), digest=bytes.fromhex(found.publication.digest)))
        else:
            send(wire, packed(NOTHING, said({"inquiry": inquiry, "version": found.version})))

    def _send_chunks(self, wire: Wire, digest: bytes, chunks: Any) -> None:
        size = self.shelf.chunk
        for chunk in chunks if isinstance(chunks, list) else ():
            with self.shelf.holding(digest) as kept:
                if kept is None:
                    send(wire, packed(GONE, digest=digest))
                    return
                body = kept.data[chunk * size :][:size] if isinstance(chunk, int) and chunk >= 0 else b""
                if not body:
                    raise LinkError(f"chunk {chunk!r} was asked for, and there is none")
                send(wire, head(Head(CHUNK, digest, chunk, len(body), 0)), body)
