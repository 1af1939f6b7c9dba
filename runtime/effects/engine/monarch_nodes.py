"""A host of Monarch on this machine, held by this process and gone with it."""

import json
import os
import selectors
import signal
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

PROGRAM = Path(monarch_node.__file__)
START = 60.0  # seconds in which Monarch must listen
LEAVE = 5.0  # seconds that a node has to end what is its


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
        self.process = process
        self.writing, self.ending = threading.Lock(), threading.Lock()
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def order(self, words: dict[str, Any]) -> None:
        with self.writing, suppress(OSError, ValueError):
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
        with self.ending:
            if self.process.returncode is not None:
                return
            with self.writing, suppress(OSError):
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
