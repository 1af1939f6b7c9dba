"""How two ends of a connection prove to each other that they have one key, byte by byte, without a socket.

The host, who listens, says MAGIC, which names what is spoken, and a nonce; the caller says its nonce and proves that it has the
key; the host proves it too.

    host -> caller    MAGIC, n_h
    caller -> host    n_c, HMAC(key, MAGIC "caller" n_h n_c)
    host -> caller    HMAC(key, MAGIC "host" n_h n_c)

The key itself is never sent, nonces are never used again, and each side's proof is of another kind, so that none can be sent
back to whom it came from; with MAGIC in it a proof is none where something else is spoken, whatever the key.
Source: Krawczyk, Bellare, Canetti 1997, HMAC, RFC 2104.
"""

import hashlib
import hmac

from ...core.errors import PurestepError, message

NONCE, SEAL = 32, 32  # bytes
REPLY = NONCE + SEAL  # bytes of what the caller says


class WireError(PurestepError, ConnectionError):
    """What came is not from somebody with the key, or is not what was sent."""


def mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 of the parts together."""
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def reply(magic: bytes, key: bytes, said: bytes, nonce: bytes) -> bytes:
    """What the caller answers to the host's first word. Raises: WireError for one that no such host says."""
    if len(said) != len(magic) + NONCE or not said.startswith(magic):
        got, remedy = f"{said[: len(magic)]!r}", "see what listens at that address, and whether both have one version"
        raise WireError(message("the greeting", got=got, wanted=f"{magic!r}", remedy=remedy))
    return nonce + mac(key, magic, b"caller", said[len(magic) :], nonce)


def proof(magic: bytes, key: bytes, nonce: bytes, replied: bytes) -> bytes:
    """What the host answers to the caller's reply, `nonce` being its own. Raises: WireError for a reply of another key."""
    theirs = replied[:NONCE]
    if not hmac.compare_digest(replied[NONCE:], mac(key, magic, b"caller", nonce, theirs)):
        raise _another("the caller's key")
    return mac(key, magic, b"host", nonce, theirs)


def refuse_unproved(magic: bytes, key: bytes, said: bytes, replied: bytes, proved: bytes) -> None:
    """Raises: WireError for a host's proof that is of another key.

    >>> said, replied = b"ours 1" + bytes(NONCE), reply(b"ours 1", b"a key", b"ours 1" + bytes(NONCE), bytes(range(NONCE)))
    >>> refuse_unproved(b"ours 1", b"a key", said, replied, proof(b"ours 1", b"a key", bytes(NONCE), replied))
    >>> refuse_unproved(b"ours 1", b"a key", said, replied, replied[NONCE:])
    Traceback (most recent call last):
    purestep.runtime.effects.greeting.WireError: the host's key is another one, wanted ours; give both sides the same key
    """
    if not hmac.compare_digest(proved, mac(key, magic, b"host", said[len(magic) :], replied[:NONCE])):
        raise _another("the host's key")


def _another(where: str) -> WireError:
    return WireError(message(where, got="another one", wanted="ours", remedy="give both sides the same key"))
