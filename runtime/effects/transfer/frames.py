"""What travels between a publisher and a reader of weights: frames with a head that says what follows, and checksums.

head = magic, kind, digest of the publication, chunk, length of the body, checksum of a short body, checksum of the head

A frame whose head or short body does not have its checksum ends the link: nobody knows where the next one begins. The bytes
of a chunk are checked against the table that came with the offer, so that the link goes on where one is damaged.
"""

import hashlib
import importlib
import importlib.util
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from ....core.errors import choose, message
from ..weights_layout import WeightsError

MAGIC = b"psw1"
FIELDS = struct.Struct("!4sB16sIQI")
HEAD = FIELDS.size + 4  # bytes
HELLO, WELCOME, INQUIRE, OFFER, NOTHING, ASK, CHUNK, GONE, BYE = range(1, 10)
SHORT = 1 << 26  # bytes of a body that is no chunk; a table of a million checksums fits
DIGEST = 16  # bytes

Sum = Callable[[Any], int]


class LinkError(Exception):
    """A link to a publisher or a reader broke, was silent for too long, or said what cannot be read."""


@frozen
class Head:
    """What a frame says of itself."""

    kind: int
    digest: bytes  # 16 bytes: of the publication; zeros where there is none
    chunk: int
    length: int  # of the body
    check: int  # CRC-32 of the body; 0 for a chunk, whose checksum stands in the table


def packed(kind: int, body: bytes = b"", *, digest: bytes = bytes(DIGEST), chunk: int = 0) -> bytes:
    """A frame with a short body.

    >>> read_head(packed(ASK, digest=bytes(16), chunk=7)[:HEAD]).chunk
    7
    """
    return head(Head(kind, digest, chunk, len(body), zlib.crc32(body))) + body


def head(of: Head) -> bytes:
    """The bytes of a head.

    >>> len(head(Head(CHUNK, bytes(16), 3, 100, 0))) == HEAD
    True
    """
    fields = FIELDS.pack(MAGIC, of.kind, of.digest, of.chunk, of.length, of.check)
    return fields + zlib.crc32(fields).to_bytes(4, "big")


def read_head(data: bytes) -> Head:
    """The head in these bytes. Raises: LinkError where they are none.

    >>> read_head(head(Head(CHUNK, bytes(16), 3, 100, 0))).length
    100
    """
    magic, kind, digest, chunk, length, check = FIELDS.unpack(data[: FIELDS.size])
    if magic != MAGIC or zlib.crc32(data[: FIELDS.size]) != int.from_bytes(data[FIELDS.size :], "big"):
        raise LinkError(f"what came is no frame: {data[:12]!r}")
    if not HELLO <= kind <= BYE or (kind != CHUNK and length > SHORT):
        raise LinkError(f"a frame of kind {kind} with {length:,} bytes")
    return Head(kind, digest, chunk, length, check)


def said(values: Any) -> bytes:
    """A short body."""
    return json.dumps(values, separators=(",", ":")).encode()


def understood(of: Head, body: bytes) -> dict[str, Any]:
    """What a short body says. Raises: LinkError where it is damaged.

    >>> body = said({"version": 3})
    >>> understood(Head(OFFER, bytes(16), 0, len(body), zlib.crc32(body)), body)
    {'version': 3}
    """
    try:
        if zlib.crc32(body) != of.check:
            raise ValueError
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError
    except ValueError as cause:
        raise LinkError(f"the body of a frame of kind {of.kind} is damaged") from cause
    return found


def _xxh3(where: str) -> Sum:
    try:
        library = importlib.import_module("xxhash")
    except ModuleNotFoundError:
        remedy = "pip install xxhash, or let the publisher take checks='crc32'"
        raise WeightsError(message(f"{where}: xxhash", got="absent", wanted="installed", remedy=remedy)) from None
    found: Sum = library.xxh3_64_intdigest
    return found


def _blake2b(data: Any) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST).digest(), "big")


CHECKS: dict[str, Callable[[str], Sum]] = {
    "crc32": lambda where: zlib.crc32,
    "xxh3": _xxh3,  # faster, needs xxhash on both sides
    "blake2b": lambda where: _blake2b,  # slower, and holds against those who forge
}


FASTEST = ("xxh3", "crc32")


def known() -> tuple[str, ...]:
    """The names of the checksums that can be made here.

    >>> {"crc32", "blake2b"} <= set(known())
    True
    """
    return tuple(name for name in CHECKS if name != "xxh3" or importlib.util.find_spec("xxhash"))


def agreed(chosen: str, has: Sequence[str]) -> str:
    """The checksum for two sides: the one that was chosen, or else the fastest that both have.

    >>> agreed("", ("crc32",)), agreed("blake2b", ("crc32",))
    ('crc32', 'blake2b')
    """
    here = known()
    return chosen or next((name for name in FASTEST if name in here and name in has), FASTEST[-1])


def summing(checks: str, where: str = "weights") -> Sum:
    """The checksum of a chunk by its name. Raises: ChoiceError, WeightsError where its library is missing.

    >>> summing("crc32")(b"123") == zlib.crc32(b"123")
    True
    """
    return choose(f"{where}: checks", checks, CHECKS)(where)


def sums(data: memoryview, chunk: int, checks: Sum) -> tuple[int, ...]:
    """The checksums of the data cut into chunks of that many bytes, the last one shorter.

    >>> sums(memoryview(b"12345"), 3, len)
    (3, 2)
    """
    return tuple(checks(data[start : start + chunk]) for start in range(0, len(data), chunk))


def digest(version: int, layout: str, chunk: int, checks: str, table: Sequence[int]) -> bytes:
    """The name of a publication [16 bytes]: BLAKE2b of its version, architecture, cut and checksums.

    Equal bytes of one version have it in common whoever publishes them. It stands for every byte as surely as the checksum
    of a chunk stands for the chunk.

    >>> digest(1, "[]", 8, "crc32", (5, 6)) == digest(1, "[]", 8, "crc32", (6, 5))
    False
    """
    return hashlib.blake2b(said([version, layout, chunk, checks, list(table)]), digest_size=DIGEST).digest()
