"""Checksums of a publication in chunks, and the digest that identifies it."""

import hashlib
import importlib
import importlib.util
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from ....core.errors import choose, message
from .shared_memory.layout import WeightsError

DIGEST = 16  # bytes
Sum = Callable[[Any], int]


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
    "blake2b": lambda where: _blake2b,  # slower, and secure against forgery
}


FASTEST = ("xxh3", "crc32")


def known() -> tuple[str, ...]:
    """Return the names of the checksums that can be made here.

    >>> {"crc32", "blake2b"} <= set(known())
    True
    """
    return tuple(name for name in CHECKS if name != "xxh3" or importlib.util.find_spec("xxhash"))


def agreed(chosen: str, has: Sequence[str]) -> str:
    """Return the checksum for two sides: the one that was chosen, or else the fastest that both have.

    >>> agreed("", ("crc32",)), agreed("blake2b", ("crc32",))
    ('crc32', 'blake2b')
    """
    here = known()
    return chosen or next((name for name in FASTEST if name in here and name in has), FASTEST[-1])


def summing(checks: str, where: str = "weights") -> Sum:
    """Return the checksum of a chunk by its name. Raises: ChoiceError, WeightsError if its library is missing.

    >>> summing("crc32")(b"123") == zlib.crc32(b"123")
    True
    """
    return choose(f"{where}: checks", checks, CHECKS)(where)


def sums(data: memoryview, chunk: int, checks: Sum) -> tuple[int, ...]:
    """Return the checksums of the data cut into chunks of that many bytes, the last one shorter.

    >>> sums(memoryview(b"12345"), 3, len)
    (3, 2)
    """
    return tuple(checks(data[start : start + chunk]) for start in range(0, len(data), chunk))


def digest(version: int, layout: str, chunk: int, checks: str, table: Sequence[int]) -> bytes:
    """Return the digest of a publication [16 bytes]: BLAKE2b of its version, architecture, chunk size and checksums.

    Equal bytes of one version have the same digest, whoever publishes them. It identifies every byte as reliably as the
    checksum of a chunk identifies the chunk.

    >>> digest(1, "[]", 8, "crc32", (5, 6)) == digest(1, "[]", 8, "crc32", (6, 5))
    False
    """
    letter = json.dumps([version, layout, chunk, checks, list(table)], separators=(",", ":"))
    return hashlib.blake2b(letter.encode(), digest_size=DIGEST).digest()
