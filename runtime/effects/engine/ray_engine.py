"""The engine on Ray: members are actors of Ray, on this machine or on the nodes of a cluster of Ray.

    with clustered() as cluster: ...        # RAY_ADDRESS's nodes, named as in Ray; without it this machine, named "local"

With RAY_ADDRESS set as Ray has it ("10.0.0.1:6379", "auto"), that cluster is used as it is: `ray start` begins and extends it,
and one of its nodes is on this machine. Without it a node is started here for as long as a cluster is open, on the loopback
address and with a token of its own. Calls, time-outs and deaths are those of `processes_cluster`; Ray places members, starts
their processes and carries what is said. Ray can be used once in a process: clusters that are open at the same time share it.
Whoever can speak to Ray can run code on all its nodes: give it a token and TLS, which it has by its own variables.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....core.errors import message
from .interface import Cluster, EngineError
from .processes import LOCAL
from .processes_cluster import GRACE, State
from .ray_given import Given
from .ray_home import Home, shared
from .ray_place import on_node
from .ray_version import installed

JOIN = "run `ray start --address=HEAD:6379` on each host, and this with RAY_ADDRESS=HEAD:6379"


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, store: int = 0) -> Iterator[Cluster]:
    """Open a cluster on the nodes of RAY_ADDRESS, or on this machine; stopped at the end of the block.

    A Ray that is started here has an object store for `store` bytes.
    Raises: EngineError for hosts, for Ray that is not installed, was not tried, cannot be reached or is in use; ChoiceError for
    what is no address.
    """
    installed()
    for address in hosts:
        raise _refused(address)
    engine = _Engine()
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
    """Raises: EngineError: a host of Ray is a node that `ray start` begins."""
    del ready
    installed()
    raise _refused(address)


def _refused(address: str) -> EngineError:
    return EngineError(message(f"host {address}", got="given to the engine ray", wanted="a node of Ray", remedy=JOIN))


class _Engine:
    """A cluster, and the home that it shares."""

    home: Home

    def __init__(self) -> None:
        self.state = State()
        self.given: Given | None = None

    def take_in(self) -> None:
        """The nodes of the cluster that is given, or this machine."""
        home = self.home
        if home.given:
            self.given = Given(home.ray, self.state)
            self.given.begin()
            return
        place = on_node(home.ray, home.node.number, self.state.heard, path=(*sys.path,), bury=self.bury)
        self.state.take_in(LOCAL, place)

    def bury(self, process: int, then: Callable[[], None]) -> None:
        """Ends a process of a member on this machine, with what it has started, and does `then` once that is so."""

        def work() -> None:
            self.home.node.bury(process)
            then()

        threading.Thread(target=work, name="purestep-ray-bury", daemon=True).start()

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """See `AddHost`."""
        if self.given is not None:
            return self.given.add_host(address, timeout=timeout)
        raise _refused(address)

    def stop(self, *, timeout: float) -> None:
        """See `Stop`."""
        try:
            self.state.stop(timeout=timeout)
        finally:
            if self.given is not None:
                self.given.stop()
            shared.leave(self.home, self.lost)

    def lost(self, why: str) -> None:
        """Ray has shut down, and its members with it."""
        for host, place in [*self.state.places.items()]:
            self.state.lost(host, [place], why)
