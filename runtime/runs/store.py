"""The place of a run's checkpoints, as a value: one process keeps them, or several ranks together."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from attrs import frozen

from ..effects import checkpoint
from ..effects.checkpoint import Checkpoint
from ..effects.files import INSIDE


@frozen(kw_only=True)
class Store:
    """Functions that save and load checkpoints."""

    size: int  # ranks
    save: Callable[..., None]  # (run, step, tree, *, machine, facts, metadata), as `checkpoint.save`, perhaps later
    settle: Callable[[], None]  # waits until everything is saved
    newest: Callable[..., Path | None]  # (run, *, report, without), as `checkpoint.latest`
    load: Callable[..., Checkpoint[Any]]  # (where, like, *, classes), as `checkpoint.load`


def save(run: Path, step: int, tree: Any, *, machine: Any, facts: Any, metadata: Any) -> None:
    """Write a checkpoint of one process."""
    checkpoint.save(run, step, tree, machine=machine, facts=facts, metadata=metadata, files=INSIDE)


def newest(
    run: Path, *, report: Callable[[str], None] = checkpoint.to_stderr, without: Collection[Path] = ()
) -> Path | None:
    """Return the folder of the newest good checkpoint, however many ranks wrote it. Raises: CheckpointError."""
    from ..effects.sharded.loading import latest  # here: torch takes a second to import it

    return latest(run, report=report, without=without)


def load(where: Path, like: Any, *, classes: Any = ()) -> Checkpoint[Any]:
    """Return the content of a checkpoint, however many ranks wrote it. Raises: CheckpointError."""
    from ..effects.sharded.loading import load

    return load(where, like, classes=classes)


PROCESS = Store(size=1, save=save, settle=lambda: None, newest=newest, load=load)
