"""Greetings and seals as people get them wrong: each an edit of right ones."""

import hashlib
import hmac
import zlib
from collections.abc import Callable
from typing import Any

from attrs import evolve

from ..runtime.effects.engine import processes_wire as own
from ..runtime.effects.engine.processes_wire import Way, Ways, WireError


def counts_at_one_end(wire: Any) -> Any:
    """Forgets to count what comes."""

    def unsealed(way: Way, header: bytes, body: bytes) -> Way:
        wire.unsealed(way, header, body)
        return way

    return evolve(wire, unsealed=unsealed)


def _sealing(wire: Any, seal: Callable[[Way, bytes], bytes]) -> Any:
    """Has another seal in both directions."""

    def sealed(way: Way, body: bytes) -> tuple[Way, bytes]:
        return evolve(way, count=way.count + 1), own.HEADER.pack(len(body), seal(way, body))

    def unsealed(way: Way, header: bytes, body: bytes) -> Way:
        size, found = own.HEADER.unpack(header)
        if size != len(body) or found != seal(way, body):
            raise WireError("refused")
        return evolve(way, count=way.count + 1)

    return evolve(wire, sealed=sealed, unsealed=unsealed)


def seals_without_count(wire: Any) -> Any:
    """Seals each frame for itself."""
    return _sealing(wire, lambda way, body: hmac.digest(way.key, body, hashlib.sha256))


def takes_any_proof(wire: Any) -> Any:
    """Looks at the length of a proof."""

    def proof(key: bytes, nonce: bytes, replied: bytes) -> bytes:
        theirs = replied[: own.NONCE]
        said = own.greeting(nonce)
        made: bytes = wire.proof(key, nonce, wire.reply(key, said, theirs))
        return made

    return evolve(wire, proof=proof)


def proves_in_one_way(wire: Any) -> Any:
    """Has one proof for both sides."""

    def proof(key: bytes, nonce: bytes, replied: bytes) -> bytes:
        wire.proof(key, nonce, replied)
        return replied[own.NONCE :]

    def accepted(key: bytes, said: bytes, replied: bytes, proved: bytes) -> Ways:
        if proved != replied[own.NONCE :]:
            raise WireError("refused")
        made: Ways = wire.ways(key, said, replied)
        return made

    return evolve(wire, proof=proof, accepted=accepted)


def leaves_out_what_is_spoken(wire: Any) -> Any:
    """Proves the key over the nonces alone."""

    def replied(magic: bytes, key: bytes, said: bytes, nonce: bytes) -> bytes:
        wire.replied(magic, key, said, nonce)
        made: bytes = wire.replied(b"", key, said[len(magic) :], nonce)
        return made

    def proved(magic: bytes, key: bytes, nonce: bytes, told: bytes) -> bytes:
        made: bytes = wire.proved(b"", key, nonce, told)
        return made

    def unproved(magic: bytes, key: bytes, said: bytes, told: bytes, proof: bytes) -> None:
        wire.unproved(b"", key, said[len(magic) :], told, proof)

    return evolve(wire, replied=replied, proved=proved, unproved=unproved)


def _sums(wire: Any) -> Any:
    """A checksum finds what the network does, and nothing that anybody does."""
    return _sealing(wire, lambda way, body: zlib.crc32(body, way.count).to_bytes(own.SEAL, "big"))


def _fixed_keys(wire: Any) -> Any:
    """The same keys in each connection, so that one can be played back in another."""

    def ways(key: bytes, said: bytes, replied: bytes) -> Ways:
        made: Ways = wire.ways(key, own.greeting(bytes(own.NONCE)), bytes(own.NONCE))
        return made

    def accepted(key: bytes, said: bytes, replied: bytes, proved: bytes) -> Ways:
        wire.accepted(key, said, replied, proved)
        return ways(key, said, replied)

    return evolve(wire, ways=ways, accepted=accepted)


def _one_key(wire: Any) -> Any:
    """One key for both directions, so that a frame can be sent back."""

    def ways(key: bytes, said: bytes, replied: bytes) -> Ways:
        made: Ways = wire.ways(key, said, replied)
        return evolve(made, host=made.caller)

    def accepted(key: bytes, said: bytes, replied: bytes, proved: bytes) -> Ways:
        made: Ways = wire.accepted(key, said, replied, proved)
        return evolve(made, host=made.caller)

    return evolve(wire, ways=ways, accepted=accepted)


def _trusting_caller(wire: Any) -> Any:
    """The caller proves itself and asks for nothing."""

    def accepted(key: bytes, said: bytes, replied: bytes, proved: bytes) -> Ways:
        made: Ways = wire.ways(key, said, replied)
        return made

    return evolve(wire, accepted=accepted)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "sums in place of seals": _sums,
    "has the same keys in each connection": _fixed_keys,
    "has one key for both directions": _one_key,
    "lets the host prove nothing": _trusting_caller,
}
