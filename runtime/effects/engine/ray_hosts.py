"""Hosts of Ray's engine: one that listens, and starts a node of Ray when a cluster asks it to, and the cluster's side of that.

What they say to each other goes the way of `processes_link`: seat NODE is the node, seat (1, process) one to be buried.
An order and what comes of it are JSON. A node ends when its host does, or when its cluster cannot be heard any more.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from ....core.errors import message
from .interface import EngineError
from .processes_here import ENDED, SAID, Place, Tell
from .processes_rules import Seat
from .processes_there import SILENCE, hosting, there
from .ray_nodes import Node, joining, own_ip
from .ray_version import installed

NODE = (0, 0)
LOOK = 0.2  # seconds between two looks at a node


@contextmanager
def hosted(address: str, key: bytes, *, silence: float = SILENCE) -> Iterator[str]:
    """A host that listens at this address, for the block; gives the address with its port (port 0 is any free one).

    Raises: EngineError for Ray that is not installed or was not tried, and where nobody can listen there; ChoiceError.
    """
    installed()
    with hosting(address, key, silence=silence, place=lambda tell: _kept(tell, address)) as listening:
        yield listening


def _kept(tell: Tell, address: str) -> Place:
    keeper = _Keeper(tell, own_ip(address))
    return Place(lambda seat: None, keeper.send, keeper.close, keeper.close)


class _Keeper:
    """The node that a caller has on this host."""

    def __init__(self, tell: Tell, ip: str) -> None:
        self.tell, self.ip = tell, ip
        self.lock, self.closed = threading.Lock(), False
        self.node: Node | None = None

    def send(self, seat: Seat, letter: bytes) -> None:
        """Follows an order, in a thread of its own."""
        threading.Thread(target=self.follow, args=(seat, letter), name="purestep-ray-host", daemon=True).start()

    def follow(self, seat: Seat, letter: bytes) -> None:
        """Buries, or starts a node and keeps it."""
        try:
            order = json.loads(letter)
            if seat != NODE:
                self.bury(seat, int(order["process"]))
                return
            made = joining(str(order["gcs"]), self.ip, str(order["token"]), timeout=float(order["within"]))
        except (ValueError, KeyError, TypeError):
            self.tell(ENDED, seat, b"it has nodes of Ray, and was asked for something else")
        except EngineError as error:
            self.tell(ENDED, seat, str(error).encode())
        else:
            self.keep(made)

    def bury(self, seat: Seat, process: int) -> None:
        """Sees that a member's process and what it has started are gone."""
        if self.node is not None:
            self.node.bury(process)
        self.tell(SAID, seat, b"{}")

    def keep(self, made: Node) -> None:
        """Says which node there is, and waits for its end."""
        with self.lock:
            self.node = made
            late = self.closed
        if late:
            made.end()
        self.tell(SAID, NODE, json.dumps({"node": made.number, "path": sys.path}).encode())
        while made.running():
            time.sleep(LOOK)
        made.end()
        self.tell(ENDED, NODE, b"its node of Ray has ended")

    def close(self, _: Seat = NODE) -> None:
        """Ends the node."""
        with self.lock:
            self.closed = True
            made = self.node
        if made is not None:
            made.end()


class Visit:
    """A cluster's connection to a host. `lost(why)` is called once the host, or its node, is no more."""

    def __init__(
        self, address: str, key: bytes, lost: Callable[[str], None], *, timeout: float, silence: float
    ) -> None:
        """Raises: EngineError for a host that is unreachable or refuses; ChoiceError for what is no address."""
        self.address, self.lost = address, lost
        self.said: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self.burials: dict[Seat, Callable[[], None]] = {}
        self.line = there(address, key, self.heard, self.gone, timeout=timeout, silence=silence)
        self.close = self.line.close

    def heard(self, word: int, seat: Seat, rest: bytes) -> None:
        """What the host says."""
        if seat == NODE:
            self.said.put((word, rest))
            if word == ENDED:
                self.lost(rest.decode(errors="replace"))
        elif seat in self.burials:
            self.burials.pop(seat)()

    def gone(self, why: str) -> None:
        """The host cannot be heard any more."""
        self.heard(ENDED, NODE, why.encode())

    def join(self, gcs: str, token: str, timeout: float) -> tuple[str, tuple[str, ...]]:
        """Has a node started; gives its number, and where that host looks for modules.

        Raises: EngineError where it has not begun in time.
        """
        self.line.start(NODE)
        self.line.send(NODE, json.dumps({"gcs": gcs, "token": token, "within": timeout}).encode())
        why = f"timed out after {timeout:.1f} s"
        try:
            word, rest = self.said.get(timeout=timeout)
            if word == SAID:
                answer = json.loads(rest)
                return str(answer["node"]), tuple(map(str, answer["path"]))
            why = rest.decode(errors="replace")
        except Empty:
            pass
        except (ValueError, KeyError, TypeError):
            why = "it gave what is no answer"
        remedy = "see that it runs purestep host --engine ray, with the Python and the Ray of this process"
        raise EngineError(message(f"host {self.address}", got=f"not joined ({why})", wanted="joined", remedy=remedy))

    def bury(self, process: int, then: Callable[[], None]) -> None:
        """Has a process of a member ended, with what it has started, and does `then` once that is so."""
        self.burials[1, process] = then
        self.line.send((1, process), json.dumps({"process": process}).encode())
