"""Monarch's own worker loop on this machine, held by this process and gone with it."""

import json
import os
import select
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
from .security import monarch_scheme

PROGRAM = Path(monarch_node.__file__)
START = 60.0  # seconds in which Monarch must listen
# A client goes on counting its messages where a host is started anew at its address, which would wait for those before.
# Order does not need the counts: messages of one client come over one connection.
NODE = {"HYPERACTOR_ENABLE_DEST_ACTOR_REORDERING_BUFFER": "false"}
LEAVE = 5.0  # seconds that a node has to end what is its


@frozen
class Node:
    """A host of Monarch that runs."""

    at: str  # where Monarch listens
    running: Callable[[], bool]
    wait: Callable[[], object]  # until it has ended
    end: Callable[[], None]  # it and all that it has started; again, it does nothing


def node(ip: str, port: int = 0) -> Node:
    """Start Monarch's host at this address of this machine, port 0 for a free one.

    Raises: EngineError with what Monarch says.
    """
    order = {"scheme": monarch_scheme(), "ip": ip, "port": port}
    process = subprocess.Popen(
        [sys.executable, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **NODE, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    held = _Held(process)
    try:
        at = held.first(order)
    except BaseException:
        held.end()
        raise
    return Node(at, lambda: process.poll() is None, process.wait, held.end)


class _Held:
    """The process of a node, and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.ending = process, threading.Lock()
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def first(self, order: dict[str, Any]) -> str:
        """Return where it listens. Raises: EngineError where it does not begin."""
        why = f"timed out after {START:.1f} s"
        with suppress(BrokenPipeError):
            self.stdin.write(json.dumps(order).encode() + b"\n")
            self.stdin.flush()
        if select.select([self.stdout], [], [], START)[0]:
            line = self.stdout.readline()
            said = json.loads(line) if line else {"why": f"its process ended, code {self.process.wait()}"}
            if "at" in said:
                return str(said["at"])
            why = said["why"]
        remedy = "see that its address is one of this machine, and that there are memory and free ports"
        raise EngineError(message("a host of Monarch", got=f"not begun ({why})", wanted="running", remedy=remedy))

    def end(self) -> None:
        """Have it end all that is its; what is left then, because it was killed itself, ends here."""
        with self.ending:
            if self.stdout.closed:
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
            self.stdout.close()
