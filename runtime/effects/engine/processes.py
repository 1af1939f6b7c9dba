"""The engine that needs nothing: members are processes of this machine, and of hosts that run `purestep host`.

    with clustered() as cluster: ...                                            # this machine, named "local"
    with clustered(("10.0.0.1:7000", "10.0.0.2:7000"), key=key) as cluster: ...     # these hosts, named by their addresses

A host that is not heard for `silence` seconds is lost with all its members, and may be added again. Whoever has the key can run
code on the hosts, and a host of that key can run code here: pickles go both ways.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....core.errors import message
from .interface import Cluster, EngineError, timely
from .processes_cluster import GRACE, State
from .processes_here import Place, here
from .processes_link import shared_key
from .processes_there import SILENCE, hosting, kept, there

LOCAL = "local"


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, key: Path | None = None, silence: float = SILENCE) -> Iterator[Cluster]:
    """A cluster on hosts at these addresses, or on this machine; stopped at the end of the block.

    The key is that of the file, or of PURESTEP_KEY; without further hosts there need not be one.
    Raises: EngineError for a host that is unreachable or refuses, ChoiceError for what is no address.
    """
    state = State()

    def add_host(address: str, /, *, timeout: float) -> str:
        return _added(state, address, shared_key(key), timely("add_host", timeout), silence)

    try:
        if not hosts:
            state.take_in(LOCAL, here(state.heard))
        for address in hosts:
            add_host(address, timeout=GRACE)
        yield Cluster(
            name="processes",
            hosts=state.hosts,
            add_host=add_host,
            spawn=state.spawn,
            failure=state.failure,
            stop=state.stop,
        )
    finally:
        state.stop(timeout=GRACE)


def serve(address: str, *, key: Path | None = None, ready: Callable[[str], None]) -> None:
    """A host, until Ctrl-C or SIGTERM; `ready` is told its address. Raises: EngineError, ChoiceError."""
    kept(hosting(address, shared_key(key)), ready)


def _added(state: State, address: str, key: bytes, timeout: float, silence: float) -> str:
    state.refuse_known("add_host", address)
    known: list[Place] = []
    gone: list[str] = []

    def lost(why: str) -> None:
        gone.append(why)
        state.lost(address, known, why)

    place = there(address, key, state.heard, lost, timeout=timeout, silence=silence)
    state.take_in(address, place)
    known.append(place)
    if gone:  # before it was known
        state.lost(address, known, gone[0])
        remedy = "see whether it runs still"
        raise EngineError(message(f"host {address}", got=f"lost ({gone[0]})", wanted="there", remedy=remedy))
    return address
