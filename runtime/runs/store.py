"""The store of a run's checkpoints, as a value: kept by one process, or by several ranks together."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from ..effects.checkpoint import single
from ..effects.checkpoint.atomic_files import INSIDE
from ..effects.checkpoint.single import Checkpoint

Names = Callable[[str], str | tuple[()]]  # the name of a leaf -> that in a checkpoint, or () where it has none


class Store(Protocol):
    """Functions that save and load checkpoints."""

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        ...

    @property
    def save(self) -> Callable[..., None]:
        """Save (run, step, tree, *, machine, facts, metadata) as `checkpoint.save` does, possibly asynchronously."""
        ...

    @property
    def settle(self) -> Callable[[], None]:
        """Wait until everything is saved."""
        ...

    @property
    def newest(self) -> Callable[..., Path | None]:
        """Return the folder of the newest good checkpoint: (run, *, report, without), as `checkpoint.latest`."""
        ...

    @property
    def load(self) -> Callable[..., Checkpoint[Any]]:
        """Return the content of a checkpoint: (where, like, *, classes, names), as `checkpoint.load`."""
        ...


@frozen(kw_only=True)
class Alone:
    """The store of one process."""

    size: int
    save: Callable[..., None]
    settle: Callable[[], None]
    newest: Callable[..., Path | None]
    load: Callable[..., Checkpoint[Any]]


def save(run: Path, step: int, tree: Any, *, machine: Any, facts: Any, metadata: Any) -> None:
    """Write a checkpoint of one process."""
    single.save(run, step, tree, machine=machine, facts=facts, metadata=metadata, files=INSIDE)


def newest(
    run: Path, *, report: Callable[[str], None] = single.to_stderr, without: Collection[Path] = ()
) -> Path | None:
    """Return the folder of the newest good checkpoint, written by any number of ranks. Raises: CheckpointError."""
    from ..effects.checkpoint.load import latest  # here: torch takes a second to import it

    return latest(run, report=report, without=without)


def as_today(name: str) -> str:
    """Return the name of a leaf in a checkpoint of today's schema: its own."""
    return name


def load_content(where: Path, like: Any, *, classes: Any = (), names: Names = as_today) -> Checkpoint[Any]:
    """Return the content of a checkpoint, written by any number of ranks. Raises: CheckpointError."""
    from ..effects.checkpoint.load import load

    return load(where, like, classes=classes, names=names)


PROCESS = Alone(size=1, save=save, settle=lambda: None, newest=newest, load=load_content)
