"""The nodes of an existing cluster of Ray as hosts: nodes that join it are added, nodes that leave it are reported as lost.

Ray kills the members that are stopped. The time until an unreachable node counts as lost is set where Ray was started.
"""

import sys
import threading
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from .....core.errors import message
from ..interface import EngineError, timely
from ..local.cluster import State
from ..local.members import ENDED
from ..local.rules import Seat
from .members import on_node

LOOK = 1.0  # seconds between two checks of the nodes
GONE = b"NodeAffinitySchedulingStrategy"  # in Ray's error for an actor on a node that is gone


def host_name(node: Mapping[str, Any], taken: Container[str]) -> str:
    """Return the host name of a node: its name in Ray, which is its address unless one was set; with its port if another node
    has the same name.

    >>> host_name({"NodeName": "10.0.0.1", "NodeManagerPort": 71}, ("gpu",))
    '10.0.0.1'
    >>> host_name({"NodeName": "gpu", "NodeManagerPort": 71}, ("gpu",))
    'gpu:71'
    """
    name = str(node["NodeName"])
    return f"{name}:{node['NodeManagerPort']}" if name in taken else name


class ExistingCluster:
    """The hosts of one of our clusters, kept up to date with Ray's nodes."""

    def __init__(self, ray: Any, state: State) -> None:
        self.ray, self.state = ray, state
        self.numbers: dict[str, str] = {}
        self.lock, self.over = threading.RLock(), threading.Event()
        self.thread = threading.Thread(target=self.watch, name="purestep-ray-nodes", daemon=True)

    def begin(self) -> None:
        """Add the current nodes, and check for changes periodically."""
        self.look()
        self.thread.start()

    def look(self) -> None:
        """Compare the nodes with our hosts. Raises: EngineError if our cluster was stopped meanwhile."""
        with self.lock:
            self._look()

    def _look(self) -> None:
        there = {str(node["NodeID"]): node for node in self.ray.nodes() if node["Alive"]}
        for name in [name for name, number in self.numbers.items() if number not in there]:
            del self.numbers[name]
            self.state.lost(name, [self.state.places[name]], "its node of Ray has ended")
        for name, number in [*self.numbers.items()]:
            own = str(there[number]["NodeName"])
            if own != name and own not in self.numbers:  # it replaces a node that still counted as alive when it joined
                place = self.state.places[name]
                del self.numbers[name]
                self.state.lost(name, [place], f"it is {own} from now on")
                place.close()
        for number in [number for number in there if number not in self.numbers.values()]:
            path = (*sys.path,) if number == self.ray.get_runtime_context().get_node_id() else ()
            place = on_node(self.ray, number, self.pass_report, path=path, bury=lambda _, then: then())
            name = host_name(there[number], self.numbers)
            self.state.take_in(name, place)
            self.numbers[name] = number

    def pass_report(self, word: int, seat: Seat, said: bytes) -> None:
        """Pass on a member's report; if it could not start because its node is gone, report the loss of the node first."""
        if word == ENDED and GONE in said:
            with suppress(EngineError):
                self.look()
        self.state.handle_report(word, seat, said)

    def watch(self) -> None:
        """Check the nodes periodically until `stop`."""
        while not self.over.wait(LOOK):
            with suppress(EngineError):
                self.look()

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """Wait for a node of that name. Raises: EngineError if there is none in time."""
        until = time.monotonic() + timely("add_host", timeout)
        self.state.refuse_closed("add_host")
        while address not in self.state.hosts():
            if time.monotonic() > until:
                got, remedy = (
                    f"none of {', '.join(self.state.hosts())}",
                    "let it join that cluster by ray start --address",
                )
                raise EngineError(message(f"host {address}", got=got, wanted="a node of Ray", remedy=remedy))
            time.sleep(LOOK / 10)
        return address

    def stop(self) -> None:
        """Stop checking the nodes."""
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
