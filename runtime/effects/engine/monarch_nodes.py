"""A host of Monarch, held by a process of ours and gone with it: on this machine, or on one that runs `purestep host`."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from ....core.errors import message
from . import monarch_node
from .interface import EngineError
from .monarch_version import installed
from .processes_here import ENDED, SAID, Place, Tell
from .processes_rules import Seat
from .processes_wire import parted

PROGRAM = Path(monarch_node.__file__)
START = 60.0  # seconds in which Monarch must listen
LEAVE = 5.0  # seconds that a node has to end what is its
NODE: Seat = (0, 0)  # the seat of a host's node, on the connection to that host
LOOPBACK = "127.0.0.1"
ANY = ("", "0.0.0.0", "::")


@frozen
class Node:
    """A host of Monarch that runs."""

    at: str  # where Monarch listens
    order: Callable[[dict[str, int]], None]  # {"watch": pid} or {"kill": pid}; to one that is gone it does nothing
    end: Callable[[], None]  # it and all that it has started; again, it does nothing


def node(ip: str, heard: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> Node:
    """Monarch's host at a free port of this address of this machine.

    `heard({"gone": pid})` tells of members, `lost()` once that it has ended. Raises: EngineError with what Monarch says.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    held = _Held(process)
    try:
        held.order({"ip": ip})
        at = held.first()
    except BaseException:
        held.end()
        raise
    threading.Thread(target=held.listen, args=(heard, lost), name="purestep-monarch-node", daemon=True).start()
    return Node(at, held.order, held.end)


class _Held:
    """The process of a node, and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.lock = process, threading.Lock()
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def order(self, words: dict[str, Any]) -> None:
        with self.lock, suppress(OSError, ValueError):
            self.stdin.write(json.dumps(words).encode() + b"\n")
            self.stdin.flush()

    def first(self) -> str:
        """Where it listens. Raises: EngineError where it does not begin."""
        why = f"timed out after {START:.1f} s"
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            if selector.select(START):
                line = self.stdout.readline()
                said = json.loads(line) if line else {"why": f"its process ended, code {self.process.wait()}"}
                if "at" in said:
                    return str(said["at"])
                why = said["why"]
        remedy = "see that its address is one of this machine, and that there are memory and free ports"
        raise EngineError(message("a host of Monarch", got=f"not begun ({why})", wanted="running", remedy=remedy))

    def listen(self, heard: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        for line in self.stdout:
            heard(json.loads(line))
        self.end()
        self.stdout.close()
        lost()

    def end(self) -> None:
        """Has it end all that is its; what is left then, because it was killed itself, ends here."""
        with self.lock:
            if self.process.returncode is not None:
                return
            with suppress(OSError):
                self.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(LEAVE)
            until = time.monotonic() + LEAVE
            while (left := monarch_node.session(self.process.pid)) and time.monotonic() < until:
                for pid in left:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
            self.process.wait()


def nodes(tell: Tell, address: str) -> Place:
    """What a host has for each caller: the one member NODE, which is a node.

    Raises: EngineError for an address that others cannot reach it by.
    """
    ip = parted(address)[0]
    if ip in ANY:
        got, remedy = "any address of this machine", "listen at the one that the clusters reach this host by"
        raise EngineError(message(f"host {address}", got=got, wanted="one address", remedy=remedy))
    keeper = _Keeper(tell, ip)
    return Place(keeper.start, keeper.send, lambda seat: keeper.close(), keeper.close)


class _Keeper:
    """The node of one caller."""

    def __init__(self, tell: Tell, ip: str) -> None:
        self.tell, self.ip = tell, ip
        self.lock, self.closed = threading.Lock(), False
        self.node: Node | None = None

    def start(self, seat: Seat) -> None:
        threading.Thread(target=self.begin, args=(seat,), name="purestep-monarch-host", daemon=True).start()

    def begin(self, seat: Seat) -> None:
        """Starts the node and says where it listens."""

        def heard(words: dict[str, Any]) -> None:
            self.tell(SAID, seat, json.dumps(words).encode())

        try:
            installed()
            made = node(self.ip, heard, lambda: self.tell(ENDED, seat, b"its host of Monarch has ended"))
        except EngineError as error:
            self.tell(ENDED, seat, str(error).encode())
            return
        with self.lock:
            self.node, late = made, self.closed
        if late:
            made.end()
        heard({"at": made.at, "path": sys.path})

    def send(self, seat: Seat, letter: bytes) -> None:
        if self.node is not None:
            self.node.order(json.loads(letter))

    def close(self) -> None:
        with self.lock:
            self.closed, made = True, self.node
        if made is not None:
            made.end()


def outward(address: str) -> str:
    """This machine's address as the host at that one sees it; nothing is sent.

    Raises: EngineError for a host to which no way leads, ChoiceError for what is no address.

    >>> outward("127.0.0.1:7000")
    '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(*parted(address), type=socket.SOCK_DGRAM)[0]
        with socket.socket(*found[:3]) as probe:
            probe.connect(found[4])
            return str(probe.getsockname()[0])
    except OSError as error:
        got, remedy = f"unreachable ({error.strerror or error})", "see that the network leads there"
        raise EngineError(message(f"host {address}", got=got, wanted="a host that listens", remedy=remedy)) from error
