"""The engine without further dependencies: members are processes of this machine.

with clustered() as cluster: ...        # one host, named "local"
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .....core.errors import message
from ..interface import Cluster, EngineError
from .cluster import GRACE, State
from .members import here

LOCAL = "local"
OTHERS = "take the engine monarch (purestep host on each) or ray (ray start on each, and RAY_ADDRESS)"


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, store: int = 0) -> Iterator[Cluster]:
    """Open a cluster on this machine; stopped at the end of the block. Raises: EngineError for other hosts."""
    del store
    for address in hosts:
        raise _refused(address)
    state = State()

    def add_host(address: str, /, *, timeout: float) -> str:
        del timeout
        raise _refused(address)

    try:
        state.take_in(LOCAL, here(state.handle_report))
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


def serve(address: str, *, ready: Callable[[str], None]) -> None:
    """Refuse: this engine has no other hosts. Raises: EngineError."""
    del ready
    raise _refused(address)


def _refused(address: str) -> EngineError:
    return EngineError(
        message(f"host {address}", got="given to the engine processes", wanted="this machine alone", remedy=OTHERS)
    )
