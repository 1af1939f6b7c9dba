"""Members on another host: what a cluster says to it, and the host itself, which has them as processes of its own.

The host ends a cluster's members when that cannot be heard any more. It knows nothing of actors: it passes bytes on.
"""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from ....core.errors import message
from . import processes_link as link
from . import processes_wire as wire
from .interface import EngineError
from .processes_here import Place, Tell, here
from .processes_rules import Seat

SILENCE = 5.0  # seconds after which the other side counts as lost
GREET = 10.0  # seconds that a caller has to prove that it has the key
STRANGERS = 64  # callers at a time that have not
PAUSE = 0.05  # seconds before callers are taken again, after one could not be


def there(
    address: str, key: bytes, tell: Tell, lost: Callable[[str], None], *, timeout: float, silence: float = SILENCE
) -> Place:
    """Processes of the host at that address. Once the place is closed or lost nothing more is told of its members.

    Raises: EngineError for a host that is unreachable or refuses; ChoiceError for what is no address.
    """
    connection, ways = link.called(address, key, timeout)
    line = link.Link(connection, (ways.caller, ways.host), silence, tell, lost)
    line.begin()
    return Place(
        start=lambda seat: line.say(link.START, seat),
        send=lambda seat, letter: line.say(link.SEND, seat, letter),
        end=lambda seat: line.say(link.END, seat),
        close=line.close,
    )


@contextmanager
def hosting(
    address: str, key: bytes, *, silence: float = SILENCE, place: Callable[[Tell], Place] = here
) -> Iterator[str]:
    """A host that listens at this address, for the block; gives the address with its port (port 0 is any free one).

    `place` makes what a caller has here, of its own; all that ends with the block.
    Raises: EngineError where nobody can listen there, ChoiceError.
    """
    host, port = wire.parted(address)
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        got = f"not to be had ({getattr(error, 'strerror', '') or error})"
        remedy = "take an address of this machine and a free port, 0 for any"
        raise EngineError(
            message(f"host: {address}", got=got, wanted="an address to listen at", remedy=remedy)
        ) from error
    reception = _Reception(listener, key, silence, place)
    threading.Thread(target=reception.listen, name="purestep-host", daemon=True).start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"{shown}:{listener.getsockname()[1]}"
    finally:
        reception.close()


def kept(host: AbstractContextManager[str], ready: Callable[[str], None]) -> None:
    """Keeps a host until this process gets SIGTERM or Ctrl-C; `ready` is told its address. For the main thread."""
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with host as address:
            ready(address)
            ended.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


class _Reception:
    """Takes callers in; each that has the key gets a place of its own."""

    def __init__(self, listener: socket.socket, key: bytes, silence: float, place: Callable[[Tell], Place]) -> None:
        self.listener, self.key, self.silence, self.place = listener, key, silence, place
        self.strangers = threading.BoundedSemaphore(STRANGERS)
        self.lock, self.closed = threading.Lock(), False
        self.guests: set[_Guest] = set()

    def listen(self) -> None:
        """Takes callers until it is closed, also after a moment in which none could be taken."""
        while not self.closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                if not self.closed:
                    time.sleep(PAUSE)  # no descriptor is free, say
                continue
            if not self.strangers.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self.greet, args=(connection,), name="purestep-guest", daemon=True).start()
            except RuntimeError:  # no thread is free
                self.strangers.release()
                connection.close()

    def greet(self, connection: socket.socket) -> None:
        """Lets a caller in that has the key."""
        try:
            ways = link.greeted(connection, self.key, GREET)
        except OSError:
            connection.close()
            return
        finally:
            self.strangers.release()
        guest = _Guest(connection, ways, self)
        with self.lock:
            self.guests.add(guest)
            late = self.closed
        guest.line.begin()
        if late:
            guest.leave()

    def left(self, guest: "_Guest") -> None:
        """A caller is no more."""
        with self.lock:
            self.guests.discard(guest)

    def close(self) -> None:
        """Ends all."""
        with self.lock:
            self.closed = True
            guests = [*self.guests]
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # whoever waits in `accept` wakes
        self.listener.close()
        for guest in guests:
            guest.leave()


class _Guest:
    """A cluster's members on this host, as long as the cluster can be heard."""

    def __init__(self, connection: socket.socket, ways: wire.Ways, reception: _Reception) -> None:
        self.reception = reception
        self.line = link.Link(connection, (ways.host, ways.caller), reception.silence, self.heard, self.lost)
        self.place = reception.place(self.line.say)

    def heard(self, word: int, seat: Seat, rest: bytes) -> None:
        """Does what the cluster says."""
        if word == link.START:
            self.place.start(seat)
        elif word == link.SEND:
            self.place.send(seat, rest)
        elif word == link.END:
            self.place.end(seat)

    def lost(self, why: str) -> None:
        """The cluster has gone, in one way or another."""
        self.place.close()
        self.reception.left(self)

    def leave(self) -> None:
        """Ends the members and the connection."""
        self.place.close()
        self.line.close()
