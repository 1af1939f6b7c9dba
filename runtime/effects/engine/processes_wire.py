"""What two machines say to each other, byte by byte, without a socket: how they greet, and how frames are sealed.

**Greeting.** See `effects.greeting`: both prove that they have the key, which is never sent. Each way then has a key of its
own, HMAC(key, "from caller" n_h n_c) or "from host", n_h and n_c being the nonces of host and caller.
**Frames.** Each is its length (8 bytes), a seal (32) and the bytes; the seal is HMAC(key of that way, count length bytes), and
count is the number of the frame. So what is damaged, forged, repeated, left out or out of order is refused, never taken.
Nothing is hidden: who can listen on the network can read it. Use a network of your own, or a tunnel.
"""

import hmac
import struct

from attrs import evolve, field, frozen

from ....core.errors import ChoiceError, message
from .. import greeting as both
from ..greeting import NONCE as NONCE
from ..greeting import REPLY as REPLY
from ..greeting import SEAL as SEAL
from ..greeting import WireError as WireError
from ..greeting import mac

MAGIC = b"purestep host 2\n"
HEADER = struct.Struct(f">Q{SEAL}s")
COUNT = struct.Struct(">QQ")
LONGEST = 1 << 21  # bytes of a frame
SHORTEST = 16  # letters of a key
GREETING = len(MAGIC) + NONCE  # bytes of the host's first word


@frozen
class Way:
    """One direction of a connection that has been greeted: its key, and how many frames have gone."""

    key: bytes = field(repr=False)
    count: int = 0


@frozen
class Ways:
    """Both directions."""

    caller: Way  # from caller to host
    host: Way


def greeting(nonce: bytes) -> bytes:
    """The host's first word.

    >>> len(greeting(bytes(32))) == GREETING
    True
    """
    return MAGIC + nonce


def reply(key: bytes, said: bytes, nonce: bytes) -> bytes:
    """What the caller answers to the host's first word. Raises: WireError for one that no host says."""
    return both.reply(MAGIC, key, said, nonce)


def proof(key: bytes, nonce: bytes, replied: bytes) -> bytes:
    """What the host answers to the caller's reply, `nonce` being its own. Raises: WireError for a reply of another key."""
    return both.proof(MAGIC, key, nonce, replied)


def ways(key: bytes, said: bytes, replied: bytes) -> Ways:
    """Both directions after this greeting.

    >>> said, key = greeting(bytes(32)), b"a long enough key"
    >>> pair = ways(key, said, reply(key, said, bytes(32)))
    >>> pair.caller.key != pair.host.key
    True
    """
    nonces = said[len(MAGIC) :] + replied[:NONCE]
    return Ways(Way(mac(key, b"from caller", nonces)), Way(mac(key, b"from host", nonces)))


def accepted(key: bytes, said: bytes, replied: bytes, proved: bytes) -> Ways:
    """Both directions, for the caller. Raises: WireError for a proof of another key.

    >>> said, key = greeting(bytes(32)), b"a long enough key"
    >>> replied = reply(key, said, bytes(range(32)))
    >>> accepted(key, said, replied, proof(key, bytes(32), replied)) == ways(key, said, replied)
    True
    """
    both.refuse_unproved(MAGIC, key, said, replied, proved)
    return ways(key, said, replied)


def sealed(way: Way, body: bytes) -> tuple[Way, bytes]:
    """The direction after this frame, and the header that goes before its bytes. Raises: WireError for one that is too long.

    >>> way, header = sealed(Way(b"key"), b"bytes")
    >>> way.count, len(header), unsealed(Way(b"key"), header, b"bytes") == way
    (1, 40, True)
    """
    length = len(body)
    return _next(way), HEADER.pack(_fitting(length), _seal(way, length, body))


def length(header: bytes) -> int:
    """How many bytes follow a header. Raises: WireError for more than a frame can have.

    >>> length(sealed(Way(b"key"), b"bytes")[1])
    5
    """
    return _fitting(int(HEADER.unpack(header)[0]))


def unsealed(way: Way, header: bytes, body: bytes) -> Way:
    """The direction after this frame, whose bytes are those that were sent. Raises: WireError where they are not.

    >>> way, header = sealed(Way(b"key"), b"bytes")
    >>> unsealed(Way(b"key"), header, b"bytes") == way
    True
    """
    size, seal = HEADER.unpack(header)
    if size != len(body) or not hmac.compare_digest(seal, _seal(way, size, body)):
        remedy = "see what changes them on the way"
        got, wanted = "not as it was sealed", "the bytes that were sent"
        raise WireError(message(f"frame {way.count}", got=got, wanted=wanted, remedy=remedy))
    return _next(way)


def _seal(way: Way, size: int, body: bytes) -> bytes:
    return mac(way.key, COUNT.pack(way.count, size), body)


def _next(way: Way) -> Way:
    return evolve(way, count=way.count + 1)


def _fitting(size: int) -> int:
    if size > LONGEST:
        remedy = "send them in several frames"
        raise WireError(message("frame: bytes", got=size, wanted=f"at most {LONGEST}", remedy=remedy))
    return size


def parted(address: str) -> tuple[str, int]:
    """The host and port of "HOST:PORT", "[::1]:PORT" too.

    Raises: ChoiceError for what is no address.

    >>> parted("10.0.0.1:7000"), parted("[::1]:7000")
    (('10.0.0.1', 7000), ('::1', 7000))
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        remedy = "write both, as in 10.0.0.1:7000"
        raise ChoiceError(message("host: address", got=repr(address), wanted="HOST:PORT", remedy=remedy))
    return host.removeprefix("[").removesuffix("]"), int(port)
