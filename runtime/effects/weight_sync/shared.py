"""The transport of one machine: `weights`, a ring of slots in shared memory, behind the interface of all transports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .interface import WeightPublisher, WeightReader
from .shared_memory.publisher import publishing, reading

SCHEME = "shared://"


@contextmanager
def shared_publisher(params: Any, *, slots: int = 3) -> Iterator[WeightPublisher]:
    """Publish weights: see `publishing`."""
    with publishing(params, slots=slots) as publisher:
        yield WeightPublisher("shared", f"{SCHEME}{publisher.path}", publisher.publish)


@contextmanager
def shared_reader(address: str, like: Any) -> Iterator[WeightReader]:
    """Read weights: see `reading`."""
    reader = reading(Path(address.removeprefix(SCHEME)), like)
    yield WeightReader("shared", reader.fetch, reader.closed)
