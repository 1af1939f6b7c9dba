"""The engine on Ray: members are actors of Ray, on this machine or on the nodes of a cluster of Ray.

    with clustered() as cluster: ...        # RAY_ADDRESS's nodes, named as in Ray; without it this machine, named "local"

With RAY_ADDRESS set in Ray's format ("10.0.0.1:6379", "auto"), that cluster is used as it is: `ray start` starts and extends
it, and one of its nodes is on this machine. Without it a node is started here for as long as a cluster is open, on the loopback
address and with a token of its own. Calls, time-outs and deaths are handled by `local.cluster`; Ray places members, starts
their processes and carries the messages. A process can use one Ray at a time: clusters that are open at the same time share it.
Everyone who can connect to Ray can run code on all its nodes: give it a token and TLS, by Ray's own environment variables.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .....core.errors import message
from ..interface import Cluster, EngineError
from ..local.cluster import GRACE, State
from ..local.engine import LOCAL
from ..version import installed
from .existing_cluster import ExistingCluster
from .members import on_node
from .runtime import RayRuntime, shared

JOIN = "run `ray start --address=HEAD:6379` on each host, and this with RAY_ADDRESS=HEAD:6379"


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, store: int = 0) -> Iterator[Cluster]:
    """Open a cluster on the nodes of RAY_ADDRESS, or on this machine; stopped at the end of the block.

    A Ray that is started here has an object store for `store` bytes.
    Raises: EngineError for hosts, and for Ray that is not installed, has an untested version, cannot be reached or is in use;
    ChoiceError for a malformed address.
    """
    installed("ray")
    for address in hosts:
        raise _refused(address)
    engine = _RayEngine()
    engine.home = shared.take(store, engine.lost)
    try:
        engine.take_in()
        yield Cluster(
            name="ray",
            hosts=engine.state.hosts,
            add_host=engine.add_host,
            spawn=engine.state.spawn,
            failure=engine.state.failure,
            stop=engine.stop,
        )
    finally:
        engine.stop(timeout=GRACE)


def serve(address: str, *, ready: Callable[[str], None]) -> None:
    """Refuse: hosts of Ray are nodes that `ray start` starts. Raises: EngineError."""
    del ready
    installed("ray")
    raise _refused(address)


def _refused(address: str) -> EngineError:
    return EngineError(message(f"host {address}", got="given to the engine ray", wanted="a node of Ray", remedy=JOIN))


class _RayEngine:
    """A cluster, and the Ray connection that it shares."""

    home: RayRuntime

    def __init__(self) -> None:
        self.state = State()
        self.given: ExistingCluster | None = None

    def take_in(self) -> None:
        """Add the nodes of the existing Ray cluster, or this machine, as hosts."""
        home = self.home
        if home.given:
            self.given = ExistingCluster(home.ray, self.state)
            self.given.begin()
            return
        place = on_node(home.ray, home.node.number, self.state.handle_report, path=(*sys.path,), bury=self.bury)
        self.state.take_in(LOCAL, place)

    def bury(self, process: int, then: Callable[[], None]) -> None:
        """Kill the process of a member on this machine, with all that it has started, and call `then` once it is gone."""

        def work() -> None:
            self.home.node.bury(process)
            then()

        threading.Thread(target=work, name="purestep-ray-bury", daemon=True).start()

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """Add a host: see `AddHost`."""
        if self.given is not None:
            return self.given.add_host(address, timeout=timeout)
        raise _refused(address)

    def stop(self, *, timeout: float) -> None:
        """Stop the cluster: see `Stop`."""
        try:
            self.state.stop(timeout=timeout)
        finally:
            if self.given is not None:
                self.given.stop()
            shared.leave(self.home, self.lost)

    def lost(self, why: str) -> None:
        """Report all hosts as lost, because Ray has shut down and its members with it."""
        for host, place in [*self.state.places.items()]:
            self.state.lost(host, [place], why)
