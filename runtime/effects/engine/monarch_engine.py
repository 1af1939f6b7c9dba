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
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ....core.errors import message
from .interface import Cluster, EngineError, timely
from .monarch_home import Home, reached, shared
from .monarch_nodes import LOOPBACK, NODE, START, node, nodes, outward
from .monarch_place import Crew
from .processes import LOCAL
from .processes_cluster import GRACE, State
from .processes_here import SAID, Place
from .processes_link import shared_key
from .processes_rules import Seat
from .processes_there import SILENCE, hosting, there


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


@contextmanager
def hosted(address: str, key: bytes, *, silence: float = SILENCE) -> Iterator[str]:
    """A host for this engine that listens at this address, for the block; see `processes_there.hosting`."""
    with hosting(address, key, silence=silence, place=lambda tell: nodes(tell, address)) as listening:
        yield listening


class _Engine:
    """A cluster's ledger, and how it comes by hosts."""

    def __init__(self, home: Home, key: Path | None, silence: float) -> None:
        self.home, self.key, self.silence = home, key, silence
        self.state = State()

    def take_in_local(self) -> None:
        """This machine."""
        arrival = _Arrival(self.state, LOCAL)
        made = node(LOOPBACK, arrival.heard, lambda: arrival.lost("its host of Monarch has ended"))
        self.attach(arrival, {"at": made.at, "path": sys.path}, made.order, made.end, START)

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """See `AddHost`."""
        timely("add_host", timeout)
        self.state.refuse_known("add_host", address)
        reached(self.home, outward(address), address)
        arrival = _Arrival(self.state, address)
        line = there(address, shared_key(self.key), arrival.said, arrival.lost, timeout=timeout, silence=self.silence)
        try:
            line.start(NODE)
            words = arrival.first(timeout)
        except BaseException:
            line.close()
            raise

        def order(words: dict[str, int]) -> None:
            line.send(NODE, json.dumps(words).encode())

        self.attach(arrival, words, order, line.close, timeout)
        return address

    def attach(
        self,
        arrival: "_Arrival",
        words: dict[str, Any],
        order: Callable[[dict[str, int]], None],
        end: Callable[[], None],
        timeout: float,
    ) -> None:
        """Takes in a host of Monarch, by what it says of itself."""
        try:
            at, path = str(words["at"]), [str(entry) for entry in words["path"]]
            arrival.crew = Crew(self.home, at, order, self.state.heard, path, timeout)
            arrival.take_in(arrival.crew.place(end))
        except BaseException:
            end()
            raise


class _Arrival:
    """A host on its way into a cluster, and what is heard of it."""

    def __init__(self, state: State, host: str) -> None:
        self.state, self.host = state, host
        self.crew: Crew | None = None
        self.known: list[Place] = []
        self.gone: list[str] = []
        self.words: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.lock = threading.Lock()

    def said(self, word: int, _: Seat, rest: bytes) -> None:
        """What comes over the connection to a host."""
        if word == SAID:
            self.heard(json.loads(rest))
        else:
            self.lost(rest.decode(errors="replace"))

    def heard(self, words: dict[str, Any]) -> None:
        """What its node tells."""
        if "gone" in words and self.crew is not None:
            self.crew.heard(words)
        else:
            self.words.put(words)

    def first(self, timeout: float) -> dict[str, Any]:
        """Where Monarch listens there, and the path for imports. Raises: EngineError where it does not."""
        try:
            words = self.words.get(timeout=timeout)
        except Empty:
            words = {"why": f"timed out after {timeout:.1f} s"}
        if {"at", "path"} <= words.keys():
            return words
        remedy = "see that it runs purestep host --engine monarch, and what it says"
        got = f"not begun ({words.get('why', 'it speaks of something else')})"
        raise EngineError(message(f"host {self.host}", got=got, wanted="running Monarch", remedy=remedy))

    def lost(self, why: str) -> None:
        """The host is no more."""
        with self.lock:
            self.gone.append(why)
            known = [*self.known]
        self.words.put({"why": why})
        if known:
            self.state.lost(self.host, known, why)
            known[0].close()

    def take_in(self, place: Place) -> None:
        """Members may be there from now on. Raises: EngineError where it is lost already."""
        self.state.take_in(self.host, place)
        with self.lock:
            self.known.append(place)
            gone = [*self.gone]
        if gone:
            self.lost(gone[0])
            remedy = "see whether it runs still"
            raise EngineError(message(f"host {self.host}", got=f"lost ({gone[0]})", wanted="there", remedy=remedy))
