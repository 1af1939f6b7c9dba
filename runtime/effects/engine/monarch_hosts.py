"""Hosts of Monarch's engine: one that listens and starts a host of Monarch when a cluster asks it to, and the cluster's side.

What they say to each other goes the way of `processes_link`, at the one seat NODE, in JSON: the cluster {"begin": true}, then
what `monarch_node` obeys; the host {"at": where Monarch listens, "path": for imports}, then what the node tells.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from ....core.errors import message
from .interface import EngineError
from .monarch_nodes import Node, node
from .monarch_version import installed
from .processes_here import ENDED, SAID, Place, Tell
from .processes_rules import Seat
from .processes_there import SILENCE, hosting
from .processes_wire import parted

NODE: Seat = (0, 0)
ANY = ("", "0.0.0.0", "::")
ENDS = "its host of Monarch has ended"


@contextmanager
def hosted(address: str, key: bytes, *, silence: float = SILENCE) -> Iterator[str]:
    """A host that listens at this address, for the block; gives the address with its port (port 0 is any free one).

    Raises: EngineError for Monarch that is not installed or was not tried, where nobody can listen there, and for an address by
    which nobody can reach it; ChoiceError.
    """
    installed()
    ip = parted(address)[0]
    if ip in ANY:
        got, remedy = "any address of this machine", "listen at the one by which clusters reach this host"
        raise EngineError(message(f"host {address}", got=got, wanted="one address", remedy=remedy))
    with hosting(address, key, silence=silence, place=lambda tell: _kept(tell, ip)) as listening:
        yield listening


def _kept(tell: Tell, ip: str) -> Place:
    keeper = _Keeper(tell, ip)
    return Place(lambda seat: None, keeper.send, lambda seat: keeper.close(), keeper.close)


class _Keeper:
    """The host of Monarch that a caller has here."""

    def __init__(self, tell: Tell, ip: str) -> None:
        self.tell, self.ip = tell, ip
        self.lock, self.closed = threading.Lock(), False
        self.node: Node | None = None

    def send(self, seat: Seat, letter: bytes) -> None:
        """Follows an order."""
        try:
            words = {str(name): int(value) for name, value in json.loads(letter).items()}
        except (ValueError, AttributeError, TypeError):
            self.tell(ENDED, seat, b"it has hosts of Monarch, and was asked for something else")
            return
        if "begin" in words:
            threading.Thread(target=self.begin, name="purestep-monarch-host", daemon=True).start()
        elif self.node is not None:
            self.node.order(words)

    def begin(self) -> None:
        """Starts the node and says where it listens."""
        try:
            made = node(self.ip, self.heard, lambda: self.tell(ENDED, NODE, ENDS.encode()))
        except EngineError as error:
            self.tell(ENDED, NODE, str(error).encode())
            return
        with self.lock:
            self.node, late = made, self.closed
        if late:
            made.end()
        self.heard({"at": made.at, "path": sys.path})

    def heard(self, words: dict[str, Any]) -> None:
        self.tell(SAID, NODE, json.dumps(words).encode())

    def close(self) -> None:
        """Ends the node."""
        with self.lock:
            self.closed, made = True, self.node
        if made is not None:
            made.end()


class Visit:
    """What a cluster hears of a host: where it can be had, which members have ended, and once that it is lost."""

    def __init__(self, host: str, lost: Callable[[str], None]) -> None:
        self.host, self.lost = host, lost
        self.first: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.left: Callable[[int], None] | None = None  # (pid): once there may be members

    def heard(self, words: dict[str, Any]) -> None:
        """What the node tells."""
        if self.left is None:
            self.first.put(words)
        elif "gone" in words:
            self.left(int(words["gone"]))

    def said(self, word: int, _: Seat, rest: bytes) -> None:
        """What the host says over its connection."""
        if word == ENDED:
            self.gone(rest.decode(errors="replace"))
            return
        try:
            self.heard(json.loads(rest))
        except ValueError:
            self.gone("it gave what is no answer")

    def gone(self, why: str) -> None:
        """The host is no more."""
        self.first.put({"why": why})
        self.lost(why)

    def found(self, timeout: float) -> tuple[str, list[str]]:
        """Where Monarch listens there, and where that host looks for modules. Raises: EngineError where it does not in time."""
        try:
            words = self.first.get(timeout=timeout)
        except Empty:
            words = {"why": f"timed out after {timeout:.1f} s"}
        if {"at", "path"} <= {*words}:
            return str(words["at"]), [str(entry) for entry in words["path"]]
        remedy = "see that it runs purestep host --engine monarch, and what it says"
        got = f"not begun ({words.get('why', 'it gave what is no answer')})"
        raise EngineError(message(f"host {self.host}", got=got, wanted="running Monarch", remedy=remedy))
