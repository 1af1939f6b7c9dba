"""Checksums of a publication in chunks, and the digest that identifies it."""

import hashlib
import importlib
import importlib.util
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

DIGEST = 16  # bytes
Sum = Callable[[Any], int]
CHECKS = ("xxh3", "crc32")  # the faster one first; it needs xxhash on both sides


def known() -> tuple[str, ...]:
    """Return the names of the checksums that can be made here.

    >>> "crc32" in known()
    True
    """
    return tuple(name for name in CHECKS if name != "xxh3" or importlib.util.find_spec("xxhash"))


def agreed(has: Sequence[str]) -> str:
    """Return the fastest checksum that this side and the other, which `has` these, can make.

    >>> agreed(("crc32",))
    'crc32'
    """
    return next((name for name in known() if name in has), CHECKS[-1])


def summing(checks: str) -> Sum:
    """Return the checksum of a chunk by its name.

    >>> summing("crc32")(b"123") == zlib.crc32(b"123")
    True
    """
    found: Sum = importlib.import_module("xxhash").xxh3_64_intdigest if checks == "xxh3" else zlib.crc32
    return found


def sums(data: memoryview, chunk: int, checks: Sum) -> tuple[int, ...]:
    """Return the checksums of the data cut into chunks of that many bytes, the last one shorter.

    >>> sums(memoryview(b"12345"), 3, len)
    (3, 2)
    """
    return tuple(checks(data[start : start + chunk]) for start in range(0, len(data), chunk))


def publication_digest(version: int, layout: str, chunk: int, checks: str, table: Sequence[int]) -> bytes:
    """Return the digest of a publication [16 bytes]: BLAKE2b of its version, architecture, chunk size and checksums.

    Equal bytes of one version have the same digest, whoever publishes them. It identifies every byte as reliably as the
    checksum of a chunk identifies the chunk.

    >>> publication_digest(1, "[]", 8, "crc32", (5, 6)) == publication_digest(1, "[]", 8, "crc32", (6, 5))
    False
    """
    letter = json.dumps([version, layout, chunk, checks, list(table)], separators=(",", ":"))
    return hashlib.blake2b(letter.encode(), digest_size=DIGEST).digest()
