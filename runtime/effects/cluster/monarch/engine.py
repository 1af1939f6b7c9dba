"""The engine on Monarch: members are actors of Monarch, on this machine and on hosts that run its worker loop.

    with clustered() as cluster: ...                                        # this machine, named "local"
    with clustered(("10.0.0.1:7000", "10.0.0.2:7000")) as cluster: ...      # these hosts, named by their addresses

`purestep host` runs Monarch's worker loop, to which any number of clusters attach; each ends its members there when it is
stopped, and a host ends those of a cluster that no longer polls it. Both machines must be able to reach any port of the other.
Calls, time-outs and deaths are handled as by the engine `processes`. Linux only.
Everyone who can reach Monarch's ports can run code there. With HYPERACTOR_TLS_CERT, HYPERACTOR_TLS_KEY and HYPERACTOR_TLS_CA
set on all machines, this is limited to holders of a certificate of that authority; without them use a private network.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .....core.errors import message
from ..addresses import host_and_port, outward, parted
from ..interface import Cluster, EngineError, timely
from ..local.cluster import GRACE, State
from ..local.engine import LOCAL
from ..local.members import HostAccess
from ..rejoining import REACH, listens
from ..version import installed
from .members import HostMembers
from .nodes import START, node
from .runtime import MonarchRuntime, check_reached, shared

LOOPBACK = "127.0.0.1"
SILENCE = 5.0  # seconds after which a host counts as lost
ANY = ("", "0.0.0.0", "::")
LOOK = 0.2  # seconds between two checks of a worker loop


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, store: int = 0, silence: float = SILENCE) -> Iterator[Cluster]:
    """Open a cluster on hosts at these addresses, or on this machine; stopped at the end of the block.

    Raises: EngineError for Monarch that is not installed, has an untested version or cannot listen, and for a host that is
    unreachable or has another version; ChoiceError for a malformed address.
    """
    del store
    engine = _MonarchEngine(shared.at(outward(hosts[0]) if hosts else LOOPBACK), silence)
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


def serve(address: str, *, ready: Callable[[str], None]) -> None:
    """Run Monarch's worker loop until Ctrl-C or SIGTERM; `ready` is called with its address. For the main thread.

    Raises: EngineError for Monarch that is not installed or has an untested version, if the address cannot be listened at, and
    when Monarch ends by itself; ChoiceError.
    """
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with hosted(address) as (listening, running):
            ready(listening)
            while not ended.wait(LOOK):
                if not running():
                    remedy = "start it again; clusters take it in again"
                    got = "no more: Monarch has ended"
                    raise EngineError(message(f"host {listening}", got=got, wanted="listening", remedy=remedy))
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def hosted(address: str) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Run Monarch's worker loop for the block; yield its address, and a function that returns whether it runs.

    Raises: as `serve`.
    """
    installed("monarch")
    ip, port = parted(address)
    if ip in ANY:
        got, remedy = "any address of this machine", "listen at the one by which clusters reach this host"
        raise EngineError(message(f"host {address}", got=got, wanted="one address", remedy=remedy))
    made = node(ip, port)
    try:
        yield host_and_port(*parted(made.at.partition("://")[2])), made.running
    finally:
        made.end()


class _MonarchEngine:
    """State of a cluster, and the functions that add hosts to it."""

    def __init__(self, home: MonarchRuntime, silence: float) -> None:
        self.home, self.silence = home, silence
        self.state = State()

    def take_in_local(self) -> None:
        """Add this machine as a host."""
        made = node(LOOPBACK)
        try:
            attached = self.attach(made.at, START)
        except BaseException:
            made.end()
            raise
        attached.path = [*sys.path]
        members = attached.host_access()

        def close() -> None:
            members.close()
            made.end()

        lost = self.take_in(LOCAL, attached, HostAccess(members.start, members.send, members.end, close))

        def wait() -> None:
            made.wait()
            lost("its host of Monarch has ended")

        threading.Thread(target=wait, name="purestep-monarch-node", daemon=True).start()

    def add_host(self, address: str, /, *, timeout: float) -> str:
        """Add a host: see `AddHost`."""
        timely("add_host", timeout)
        until = time.monotonic() + timeout
        ip, port = parted(address)
        self.state.refuse_known("add_host", address)
        check_reached(self.home.ip, outward(address), address)
        if not listens(address, min(timeout, REACH)):
            remedy = f"start one there, purestep host --listen {address}, and see that we are let through"
            raise EngineError(
                message(f"host {address}", got="unreachable", wanted="a host that listens", remedy=remedy)
            )
        attached = self.attach(f"{self.home.scheme}://{host_and_port(ip, port)}", until - time.monotonic())
        self.take_in(address, attached, attached.host_access())
        return address

    def attach(self, at: str, timeout: float) -> HostMembers:
        """Attach to the worker loop at that address."""
        return HostMembers(self.home, at, self.state.handle_report, silence=self.silence, timeout=max(0.1, timeout))

    def take_in(self, host: str, attached: HostMembers, place: HostAccess) -> Callable[[str], None]:
        """Add a host, so that members can be started on it; return the function to be called with the reason if it is lost."""
        self.state.take_in(host, place)

        def lost(why: str) -> None:
            self.state.lost(host, [place], why)
            place.close()

        attached.watch(lost)
        return lost
