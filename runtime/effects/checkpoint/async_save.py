"""Asynchronous saves: checkpoints are copied first, and written by a thread during training, one at a time; no error is lost.

with saving(run, group=group) as saver:
    for ...:
        saver.save(step, tree, machine=state)     # returns as soon as copies are made
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define

from ....core.errors import CheckpointError
from .atomic_files import DISK, Files
from .formats import SHARDED, Form
from .group import ALONE, LostError, RankGroup
from .save import staged, write
from .single import to_stderr


@define
class Saver:
    """Asynchronous saver of checkpoints. Every rank has one, and saves the same steps in the same order."""

    run: Path
    form: Form
    keep: int
    group: RankGroup
    files: Files
    thread: ThreadPoolExecutor
    writing: "tuple[Future[Path], ...]" = ()  # the running save
    cause: BaseException | None = None  # of the last failure

    def save(
        self,
        number: int,
        tree: Any,
        *,
        machine: Any = (),
        facts: Mapping[str, Any] = {},
        metadata: Mapping[str, Any] = {},
    ) -> None:
        """Copy the tree of step `number` to the CPU and write it from there, after the save before it is finished.

        Raises: CheckpointError if the save before failed, and then this one is not started; and the errors of `save.save` that
        are raised before anything is written.
        """
        self.close()
        given = staged(number, tree, form=self.form, machine=machine, facts=facts, metadata=metadata, group=self.group)
        job = partial(write, self.run, given, keep=self.keep, group=self.group, files=self.files)
        self.writing = (self.thread.submit(job),)

    def ended(self, seconds: float) -> bool:
        """Return whether no save is running, waiting at most so many seconds."""
        return not wait(self.writing, seconds).not_done

    def close(self) -> None:
        """Wait until the running save is on the disk. Raises: CheckpointError if it failed."""
        for running in self.writing:
            self.cause = running.exception()
            self.writing = ()
            if self.cause:
                raise CheckpointError(_said(self.cause)) from self.cause


def _said(cause: BaseException) -> str:
    text = next(iter(str(cause).splitlines()), "")
    return text if isinstance(cause, CheckpointError) else f"{type(cause).__name__}: {text}"


@contextmanager
def saving(
    run: Path, *, form: Form = SHARDED, keep: int = 3, group: RankGroup = ALONE, files: Files = DISK
) -> Iterator[Saver]:
    """Yield a `Saver` for a run, whose last checkpoint is finished when the block ends.

    Raises, at the end: CheckpointError if it could not be written; if the block ended in an error, that one is raised, and the
    CheckpointError is printed, unless it reports a lost rank, whose loss ends the block as well.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:
        saver = Saver(run, form, keep, group, files, thread)
        try:
            yield saver
        except BaseException:
            try:
                saver.close()
            except CheckpointError as fault:
                if not isinstance(saver.cause, LostError):
                    to_stderr(str(fault))
            raise
        saver.close()
