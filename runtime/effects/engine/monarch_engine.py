"""The engine on Monarch: members are actors of Monarch, on this machine and on hosts that run `purestep host --engine monarch`.

    with clustered() as cluster: ...                                            # this machine, named "local"
    with clustered(("10.0.0.1:7000", "10.0.0.2:7000"), key=key) as cluster: ...     # these hosts, named by their addresses

Each host starts a host of Monarch for each cluster, at a free port, and ends it with all members when that cluster is stopped
or cannot be heard any more; both machines must be able to reach any port of the other. Calls, time-outs and deaths are those of
the engine `processes`; Monarch starts the members' processes and carries what is said. Linux only.
The key keeps strangers from the hosts, not from Monarch: who can reach its ports can run code there. Use a network of your own.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....core.errors import message
from .interface import Cluster, EngineError, timely
from .monarch_home import Home, reached, shared
from .monarch_hosts import ENDS, NODE, Visit, hosted
from .monarch_nodes import START, node
from .monarch_place import Crew
from .outward import outward
from .processes import LOCAL
from .processes_cluster import GRACE, State
from .processes_here import Place
from .processes_link import shared_key
from .processes_there import SILENCE, kept, there

LOOPBACK = "127.0.0.1"


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, key: Path | None = None, silence: float = SILENCE) -> Iterator[Cluster]:
    """A cluster on hosts at these addresses, or on this machine; stopped at the end of the block.

    The key is that of the file, or of PURESTEP_KEY; without further hosts there need not be one.
    Raises: EngineError for Monarch that is not installed, was not tried or cannot listen, and for a host that is unreachable or
    refuses; ChoiceError for what is no address.
    """
    engine = _Engine(shared.at(outward(hosts[0]) if hosts else LOOPBACK), key, silence)
    try:
        if not hosts:
            engine.take_in_local()
        for address in hosts:
            engine.add_host(address, timeout=START)
        yield Cluster(
            name="monarch",
            hosts=engine.state.hosts,
            add_host=engine.add_host,
            spawn=engine.state.spawn,
            failure=engine.state.failure,
            stop=engine.state.stop,
        )
    finally:
        engine.state.stop(timeout=GRACE)


def serve(address: str, *, key: Path | None = None, ready: Callable[[str], None]) -> None:
    """A host, until Ctrl-C or SIGTERM; `ready` is told its address. Raises: EngineError, ChoiceError."""
    kept(hosted(address, shared_key(key)), ready)


class _Engine:
    """A cluster's ledger, and how it comes by hosts."""

    def __init__(self, home: Home, key: Path | None, silence: float) -> None:
        self.home, self.key, self.silence = home, key, silence
        self.state = State()

    def take_in_local(self) -> None:
        """This machine."""
        arrival = _Arrival(self.state, LOCAL)
        made = node(LOOPBACK, arrival.visit.heard, lambda: arrival.visit.gone(ENDS))
        try:
            crew = Crew(self.home, made.at, made.order, self.state.heard, [*sys.path], START)
        except BaseException:
            made.end()
            raise
        arrival.take_in(crew, made.end)

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """See `AddHost`."""
        until = time.monotonic() + timely("add_host", timeout)
        self.state.refuse_known("add_host", address)
        reached(self.home.ip, outward(address), address)
        arrival = _Arrival(self.state, address)
        visit = arrival.visit
        line = there(address, shared_key(self.key), visit.said, visit.gone, timeout=timeout, silence=self.silence)

        def order(words: dict[str, Any]) -> None:
            line.send(NODE, json.dumps(words).encode())

        try:
            line.start(NODE)
            order({"begin": True})
            at, path = visit.found(max(0.001, until - time.monotonic()))
            crew = Crew(self.home, at, order, self.state.heard, path, max(0.001, until - time.monotonic()))
        except BaseException:
            line.close()
            raise
        arrival.take_in(crew, line.close)
        return address


class _Arrival:
    """A host on its way into a cluster."""

    def __init__(self, state: State, host: str) -> None:
        self.state, self.host = state, host
        self.visit = Visit(host, self.lost)
        self.known: list[Place] = []
        self.gone: list[str] = []

    def take_in(self, crew: Crew, end: Callable[[], None]) -> None:
        """Members may be there from now on; `end` ends them all. Raises: EngineError where the host is lost already."""
        self.visit.left = crew.left
        place = crew.place(end)
        self.state.take_in(self.host, place)
        self.known.append(place)
        if self.gone:
            self.lost(self.gone[0])
            remedy = "see whether it runs still"
            raise EngineError(message(f"host {self.host}", got=f"lost ({self.gone[0]})", wanted="there", remedy=remedy))

    def lost(self, why: str) -> None:
        """The host is no more: nobody on it is."""
        self.gone.append(why)
        for place in self.known:
            self.state.lost(self.host, self.known, why)
            place.close()
