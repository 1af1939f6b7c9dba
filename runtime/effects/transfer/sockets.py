"""Sockets that know when to give up, and the proof that both ends of one know the same key.

How they prove it is `effects.greeting`; before its proof the publisher says whether it admits the reader. Nothing else is read
or sent before. The key keeps strangers out; what travels afterwards is neither secret nor signed, so the network is one's own,
or a tunnel's.
"""

import secrets
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

from ....core.errors import ChoiceError, message
from ..greeting import NONCE, REPLY, SEAL, WireError, proof, refuse_unproved, reply
from ..weights_layout import WeightsError
from .frames import HEAD, Head, LinkError, read_head, understood

GREETING = b"purestep weights 2\n"
YES, NO = b"y", b"n"
FOREVER = float("inf")
SCHEME = "tcp"


class AdmissionError(WeightsError):
    """Both ends do not have the same key."""


@frozen
class Wire:
    """A socket and its times, in seconds of the monotonic clock."""

    socket: socket.socket
    patience: float  # seconds without a byte behind which the link counts as broken
    until: float = FOREVER  # when everything is to end


def receive(wire: Wire, room: memoryview) -> None:
    """Fills the room. Raises: LinkError; TimeoutError behind `until`."""
    while room:
        count = _tried(wire, lambda into=room: wire.socket.recv_into(into))
        if not count:
            raise LinkError("the other side closed the link")
        room = room[count:]


def received(wire: Wire, count: int) -> bytes:
    """So many bytes. Raises: as `receive`."""
    room = bytearray(count)
    receive(wire, memoryview(room))
    return bytes(room)


def skip(wire: Wire, count: int) -> None:
    """Reads so many bytes and forgets them. Raises: as `receive`."""
    room = memoryview(bytearray(min(count, 1 << 20)))
    while count:
        part = room[:count]
        receive(wire, part)
        count -= len(part)


def next_head(wire: Wire) -> Head:
    """The head of the frame that comes. Raises: as `receive`."""
    return read_head(received(wire, HEAD))


def body_of(wire: Wire, head: Head) -> dict[str, Any]:
    """What the short body behind this head says. Raises: as `receive`."""
    return understood(head, received(wire, head.length)) if head.length else {}


def heard(wire: Wire, kind: int) -> dict[str, Any]:
    """What the next frame says, which is of that kind. Raises: as `receive`."""
    head = next_head(wire)
    if head.kind != kind:
        raise LinkError(f"a frame of kind {head.kind} came, and one of kind {kind} was due")
    return body_of(wire, head)


def send(wire: Wire, *parts: Any) -> None:
    """Sends all bytes of all parts. Raises: as `receive`."""
    for part in parts:
        room = memoryview(part)
        while room:
            room = room[_tried(wire, lambda left=room: wire.socket.send(left)) :]


def _tried(wire: Wire, act: Any) -> int:
    left = wire.until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    seconds = min(wire.patience, left)
    wire.socket.settimeout(seconds if seconds < FOREVER else None)
    try:
        count: int = act()
        return count
    except TimeoutError as cause:
        if time.monotonic() >= wire.until:
            raise
        raise LinkError(f"nothing moved for {wire.patience:g} s") from cause
    except OSError as cause:
        raise LinkError(f"the link broke ({cause.strerror or cause})") from cause


def admit(wire: Wire, key: bytes) -> bool:
    """The publisher's part of a greeting: whether the other side has the key. Raises: LinkError where it says too little."""
    own = secrets.token_bytes(NONCE)
    send(wire, GREETING + own)
    replied = received(wire, REPLY)
    try:
        proved = proof(GREETING, key, own, replied)
    except WireError:
        send(wire, NO + bytes(SEAL))
        return False
    send(wire, YES + proved)
    return True


def enter(wire: Wire, key: bytes, where: str) -> None:
    """The reader's part. Raises: AdmissionError, LinkError."""
    said = received(wire, len(GREETING) + NONCE)
    if not said.startswith(GREETING):
        raise LinkError("what answers is no publisher of weights of this version")
    replied = reply(GREETING, key, said, secrets.token_bytes(NONCE))
    send(wire, replied)
    verdict = received(wire, len(YES) + SEAL)
    remedy = "give both sides the same key"
    other = AdmissionError(message(f"{where}: key", got="another", wanted="the publisher's", remedy=remedy))
    if not verdict.startswith(YES):
        raise other
    try:
        refuse_unproved(GREETING, key, said, replied, verdict[len(YES) :])
    except WireError:
        raise other from None


def key_of(key: bytes, where: str) -> bytes:
    """The key, where it is one. Raises: ChoiceError."""
    if not isinstance(key, bytes) or len(key) < 8:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        remedy = "make one with secrets.token_bytes(32) and hand it to both sides"
        raise ChoiceError(message(f"{where}: key", got=got, wanted="at least 8 bytes", remedy=remedy))
    return key


def place_of(address: str) -> tuple[str, int]:
    """Host and port of an address. Raises: ChoiceError.

    >>> place_of("tcp://10.0.0.7:4000")
    ('10.0.0.7', 4000)
    """
    try:
        parts = urlsplit(address)
        if parts.scheme == SCHEME and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass
    remedy = "take the address that the publisher names"
    raise ChoiceError(message("weights: address", got=repr(address), wanted="tcp://HOST:PORT", remedy=remedy))


def address_of(host: str, port: int) -> str:
    """The address of a place.

    >>> address_of("10.0.0.7", 4000), address_of("::1", 4000)
    ('tcp://10.0.0.7:4000', 'tcp://[::1]:4000')
    """
    return f"{SCHEME}://[{host}]:{port}" if ":" in host else f"{SCHEME}://{host}:{port}"
