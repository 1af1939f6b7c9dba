"""The store of a run's checkpoints, as a value: kept by one process, or by several ranks together."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from attrs import frozen

from ..effects.checkpoint import single
from ..effects.checkpoint.atomic_files import INSIDE
from ..effects.checkpoint.single import Checkpoint


@frozen(kw_only=True)
class Store:
    """Functions that save and load checkpoints."""

    size: int  # number of ranks
    save: Callable[
        ..., None
    ]  # (run, step, tree, *, machine, facts, metadata), as `single.save`, possibly asynchronously
    settle: Callable[[], None]  # waits until everything is saved
    newest: Callable[..., Path | None]  # (run, *, report, without): the newest good one's folder, as `single.latest`
    load: Callable[..., Checkpoint[Any]]  # (where, like, *, classes), as `single.load`


def save(run: Path, step: int, tree: Any, *, machine: Any, facts: Any, metadata: Any) -> None:
    """Write a checkpoint of one process."""
    single.save(run, step, tree, machine=machine, facts=facts, metadata=metadata, files=INSIDE)


def newest(
    run: Path, *, report: Callable[[str], None] = single.to_stderr, without: Collection[Path] = ()
) -> Path | None:
    """Return the folder of the newest good checkpoint, written by any number of ranks. Raises: CheckpointError."""
    from ..effects.checkpoint.load import latest  # here: torch takes a second to import it

    return latest(run, report=report, without=without)


def load(where: Path, like: Any, *, classes: Any = ()) -> Checkpoint[Any]:
    """Return the content of a checkpoint, written by any number of ranks. Raises: CheckpointError."""
    from ..effects.checkpoint.load import load

    return load(where, like, classes=classes)


PROCESS = Store(size=1, save=save, settle=lambda: None, newest=newest, load=load)
