"""The transport of one machine: `weights`, a ring of slots in shared memory, behind the interface of all transports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .interface import Inlet, Outlet
from .shared_memory.publisher import publishing, reading

SCHEME = "shared://"


@contextmanager
def shared_outlet(
    params: Any, *, path: Path | None = None, slots: int = 3, guard: str | None = None
) -> Iterator[Outlet]:
    """Publish weights: see `weights.publishing`."""
    with publishing(params, path=path, slots=slots, guard=guard) as publisher:
        yield Outlet("shared", f"{SCHEME}{publisher.path}", publisher.publish)


@contextmanager
def shared_inlet(address: str, like: Any) -> Iterator[Inlet]:
    """Read weights: see `weights.reading`."""
    reader = reading(Path(address.removeprefix(SCHEME)), like)
    yield Inlet("shared", reader.fetch, reader.closed)
