"""A connection between a cluster and a host: greeted, sealed, never silent for long, and lost once.

A letter is a word (one byte), a seat, and bytes; a long one goes in several frames. Both sides say ALIVE when they have nothing
else to say, at a pace that does not depend on how patient they are themselves: the other one may be less so, and on a line that
loses packets the next word tells soon that one is lost. Who hears nothing for `silence` seconds takes the other one for lost.
"""

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from ....core.errors import message
from ..reading import MOST_CONFIG, read_text
from . import processes_wire as wire
from .interface import EngineError
from .processes_rules import Seat

VARIABLE = "PURESTEP_KEY"
ALIVE = 0  # a word without meaning; the others are those of `processes_here`, and those below
START, SEND, END = 3, 4, 5  # from a cluster to a host
LETTER = struct.Struct(">B?QQ")  # word, whether more of this letter follows, seat
BEATS = 5  # ALIVE is said so often within a silence
PACE = 0.2  # seconds between two of them at most
PIECE = 1 << 20  # bytes of a letter in one frame
Heard = Callable[[int, Seat, bytes], None]


def shared_key(file: Path | None) -> bytes:
    """The key of a file, or of PURESTEP_KEY. Raises: EngineError where there is none, or a short one."""
    try:
        said = read_text(file, MOST_CONFIG) if file else os.environ.get(VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        got, remedy = f"not to be read ({error})", "name a file that holds it"
        raise EngineError(message(f"key: {file}", got=got, wanted="a key", remedy=remedy)) from error
    key = said.strip().encode()
    if len(key) < wire.SHORTEST:
        got, wanted = f"{len(key)} bytes long", f"at least {wire.SHORTEST}"
        remedy = (
            f"set {VARIABLE}, or name a file, with the same secret on all hosts, as `openssl rand -hex 32` makes one"
        )
        raise EngineError(message(f"key: {file or VARIABLE}", got=got, wanted=wanted, remedy=remedy))
    return key


def called(address: str, key: bytes, timeout: float) -> tuple[socket.socket, wire.Ways]:
    """A greeted connection to a host. Raises: EngineError for one that is unreachable or refuses, ChoiceError."""
    place, end = wire.parted(address), time.monotonic() + timeout
    wanted = "a host that listens"
    try:
        connection = socket.create_connection(place, timeout)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name can be so
        remedy = f"start one there, purestep host --listen {address} of this engine, and see that we are let through"
        got = f"unreachable ({getattr(error, 'strerror', '') or error})"
        raise EngineError(message(f"host {address}", got=got, wanted=wanted, remedy=remedy)) from error
    try:
        said = exactly(connection, wire.GREETING, end)
        replied = wire.reply(key, said, secrets.token_bytes(wire.NONCE))
        connection.sendall(replied)
        proved = exactly(connection, wire.SEAL, end)
        return connection, wire.accepted(key, said, replied, proved)
    except OSError as error:
        connection.close()
        remedy = "see that a purestep host of this version listens there, and has the same key"
        got = f"not to be had ({error.strerror or error})"
        raise EngineError(message(f"host {address}", got=got, wanted=wanted, remedy=remedy)) from error


def greeted(connection: socket.socket, key: bytes, timeout: float) -> wire.Ways:
    """The host's side of it. Raises: OSError (WireError) for a caller that has another key, or says nothing."""
    end, nonce = time.monotonic() + timeout, secrets.token_bytes(wire.NONCE)
    said = wire.greeting(nonce)
    connection.settimeout(timeout)
    connection.sendall(said)
    replied = exactly(connection, wire.REPLY, end)
    connection.sendall(wire.proof(key, nonce, replied))
    return wire.ways(key, said, replied)


def exactly(connection: socket.socket, count: int, end: float = 0.0) -> bytes:
    """So many bytes, until the time `end` where one is given. Raises: OSError where they do not come."""
    parts = bytearray(count)
    view, at = memoryview(parts), 0
    while at < count:
        if end:
            connection.settimeout(max(0.001, end - time.monotonic()))
        got = connection.recv_into(view[at:])
        if not got:
            raise ConnectionError("the other side has closed the connection")
        at += got
    return bytes(parts)


class Link:
    """A connection after the greeting, with a thread each way. `lost(why)` is called once, also after `close`."""

    def __init__(
        self,
        connection: socket.socket,
        ways: tuple[wire.Way, wire.Way],  # out, in
        silence: float,
        heard: Heard,
        lost: Callable[[str], None],
    ) -> None:
        self.connection, self.silence, self.heard, self.lost = connection, silence, heard, lost
        self.out, self.into = ways
        self.outbox: SimpleQueue[tuple[int, Seat, bytes] | tuple[()]] = SimpleQueue()
        self.parts: list[bytes] = []  # of a letter of which more follows

    def begin(self) -> None:
        """Starts the threads."""
        self.connection.settimeout(self.silence)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for task in (self.speak, self.listen):
            threading.Thread(target=task, name="purestep-link", daemon=True).start()

    def say(self, word: int, seat: Seat = (0, 0), rest: bytes = b"") -> None:
        """Has a letter sent."""
        self.outbox.put((word, seat, rest))

    def close(self) -> None:
        """Ends the connection once all that was to be said has been."""
        self.outbox.put(())

    def speak(self) -> None:
        """Writes what is to be written, and ALIVE in between."""
        with suppress(OSError):
            while True:
                try:
                    letter = self.outbox.get(timeout=min(PACE, self.silence / BEATS))
                except Empty:
                    letter = (ALIVE, (0, 0), b"")
                if not letter:
                    break
                self._write(*letter)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)  # who listens sees it

    def _write(self, word: int, seat: Seat, rest: bytes) -> None:
        for at in range(0, max(1, len(rest)), PIECE):
            body = LETTER.pack(word, at + PIECE < len(rest), *seat) + rest[at : at + PIECE]
            self.out, header = wire.sealed(self.out, body)
            left = memoryview(header + body)
            while left:  # a slow line may take as long as it likes, if only it goes on
                left = left[self.connection.send(left) :]

    def listen(self) -> None:
        """Hears letters until none can come any more."""
        try:
            while True:
                self._letter()
        except TimeoutError:
            why = f"silent for {self.silence:.1f} s"
        except OSError as error:
            why = str(error.strerror or error)
        finally:
            self.outbox.put(())
            self.connection.close()
        self.lost(why)

    def _letter(self) -> None:
        header = exactly(self.connection, wire.HEADER.size)
        body = exactly(self.connection, wire.length(header))
        self.into = wire.unsealed(self.into, header, body)
        word, more, mesh, member = LETTER.unpack_from(body)
        self.parts.append(body[LETTER.size :])
        if not more:
            letter, self.parts = b"".join(self.parts), []
            if word != ALIVE:
                self.heard(word, (mesh, member), letter)
