"""The way of one machine: `weights`, a ring of slots in shared memory, behind the interface of all ways."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..weights import publishing, reading
from .interface import Inlet, Outlet

SCHEME = "shared://"


@contextmanager
def shared_outlet(
    params: Any, *, path: Path | None = None, slots: int = 3, guard: str | None = None
) -> Iterator[Outlet]:
    """See `weights.publishing`."""
    with publishing(params, path=path, slots=slots, guard=guard) as publisher:
        yield Outlet("shared", f"{SCHEME}{publisher.path}", publisher.publish)


@contextmanager
def shared_inlet(address: str, like: Any) -> Iterator[Inlet]:
    """See `weights.reading`."""
    reader = reading(Path(address.removeprefix(SCHEME)), like)
    yield Inlet("shared", reader.fetch, reader.closed)
