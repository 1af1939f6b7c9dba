"""The engine on Ray: members are actors of Ray, on this machine and on hosts that run `purestep host --engine ray`.

    with clustered() as cluster: ...                                            # this machine, named "local"
    with clustered(("10.0.0.1:7000", "10.0.0.2:7000"), key=key) as cluster: ...     # these hosts, named by their addresses

Ray's first node is started here, and a host that is taken in starts one that joins it, on ports of Ray's choice: each machine
must be able to reach any port of each other. When the cluster is stopped, or cannot be heard any more, so do its nodes. Calls,
time-outs and deaths are those of `processes_cluster`; Ray places members, starts their processes and carries what is said.
Ray can be used once in a process: clusters that are open at the same time share it.
Whoever has the key, or Ray's token, which goes to the hosts and is said by Ray as it is, can run code on all of them.

Without hosts, and with RAY_ADDRESS set as Ray has it ("10.0.0.1:6379", "auto"), that cluster is used: its nodes, one of which
is on this machine, are the hosts, named as in Ray.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....core.errors import message
from .interface import Cluster, EngineError, timely
from .processes import LOCAL
from .processes_cluster import GRACE, State
from .processes_here import Place
from .processes_link import shared_key
from .processes_there import SILENCE, kept
from .ray_given import Given
from .ray_home import START, Home, shared
from .ray_hosts import Visit, hosted
from .ray_place import on_node


@contextmanager
def clustered(
    hosts: tuple[str, ...] = (), *, key: Path | None = None, silence: float = SILENCE, start: float = START
) -> Iterator[Cluster]:
    """A cluster on hosts at these addresses, or on this machine; stopped at the end of the block.

    The key is that of the file, or of PURESTEP_KEY; without further hosts there need not be one. Each host has `start` seconds.
    Raises: EngineError for Ray that is not installed, was not tried or is in use, for a host that is unreachable or refuses;
    ChoiceError for what is no address.
    """
    engine = _Engine(key, silence)
    engine.home = shared.take(hosts, engine.lost)
    try:
        if not hosts:
            engine.take_in_first()
        for address in hosts:
            engine.add_host(address, timeout=start)
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


def serve(address: str, *, key: Path | None = None, ready: Callable[[str], None]) -> None:
    """A host, until Ctrl-C or SIGTERM; `ready` is told its address. Raises: EngineError, ChoiceError."""
    kept(hosted(address, shared_key(key)), ready)


class _Engine:
    """A cluster, and the home that it shares."""

    home: Home

    def __init__(self, key: Path | None, silence: float) -> None:
        self.key, self.silence = key, silence
        self.state = State()
        self.visits: list[Visit] = []
        self.given: Given | None = None

    def take_in_first(self) -> None:
        """This machine, or the nodes of the cluster that is given."""
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
        until = time.monotonic() + timely("add_host", timeout)
        self.state.refuse_known("add_host", address)
        if not self.home.node.running():
            raise EngineError(message("engine ray: Ray", got="no more", wanted="there", remedy="open another cluster"))
        known: list[Place] = []
        gone: list[str] = []

        def lost(why: str) -> None:
            gone.append(why)
            self.state.lost(address, known, why)
            for place in known:
                place.close()

        visit = Visit(address, shared_key(self.key), lost, timeout=timeout, silence=self.silence)
        self.visits.append(visit)
        try:
            node, path = visit.join(self.home.node.gcs, self.home.token, max(0.001, until - time.monotonic()))
            actors = on_node(self.home.ray, node, self.state.heard, path=path, bury=visit.bury)
        except BaseException:
            visit.close()
            raise

        def close() -> None:
            actors.close()
            visit.close()

        place = Place(actors.start, actors.send, actors.end, close)
        self.state.take_in(address, place)
        known.append(place)
        if gone:  # before it was known
            lost(gone[0])
            remedy = "see whether it runs still"
            raise EngineError(message(f"host {address}", got=f"lost ({gone[0]})", wanted="there", remedy=remedy))
        return address

    def stop(self, *, timeout: float) -> None:
        """See `Stop`."""
        try:
            self.state.stop(timeout=timeout)
        finally:
            if self.given is not None:
                self.given.stop()
            shared.leave(self.home, self.lost)

    def lost(self, why: str) -> None:
        """Ray is no more, so nobody is: on this machine they have ended with it, on hosts they do now."""
        for host, place in [*self.state.places.items()]:
            self.state.lost(host, [place], why)
        for visit in self.visits:
            visit.close()
