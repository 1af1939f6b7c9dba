"""Asynchronous saves: checkpoints are copied first, and written by a thread during training, one at a time; no error is lost.

with saving(run, group=group) as saver:
    for ...:
        saver.save(step, tree, machine=state)     # returns as soon as copies are made
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ....core.errors import CheckpointError
from .async_save_rules import (
    Answer,
    Event,
    NoMoreSaves,
    RaiseFault,
    SaveEnded,
    SaveQueue,
    SaveRequested,
    WaitForSave,
    step,
)
from .atomic_files import DISK, Files
from .formats import SHARDED, Form
from .group import ALONE, LostError, RankGroup
from .save import staged, write
from .single import to_stderr


@frozen
class How:
    """Settings of all checkpoints of a run."""

    run: Path
    form: Form
    keep: int
    group: RankGroup
    files: Files


@define
class Saver:
    """Asynchronous saver of checkpoints. Every rank has one, and saves the same steps in the same order."""

    how: How
    thread: ThreadPoolExecutor
    desk: SaveQueue = field(factory=SaveQueue)
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

        Raises: CheckpointError if the save before failed, and then this one is not started; and the errors of `save` of
        saving.py that are raised before anything is written.
        """
        self._settled(SaveRequested(number))
        how = self.how
        try:
            given = staged(
                number, tree, form=how.form, machine=machine, facts=facts, metadata=metadata, group=how.group
            )
        except BaseException:
            self.desk, _ = step(self.desk, SaveEnded())
            raise
        self.writing = (self.thread.submit(write, how.run, given, keep=how.keep, group=how.group, files=how.files),)

    def ended(self, seconds: float) -> bool:
        """Return whether no save is running, waiting at most so many seconds."""
        return not wait(self.writing, seconds).not_done

    def close(self) -> None:
        """Wait until all saves are on the disk. Raises: CheckpointError if one failed."""
        self._settled(NoMoreSaves())

    def _settled(self, event: Event) -> None:
        """Wait until it is this event's turn; raise the error of a failed save."""
        self.desk, answers = step(self.desk, event)
        while any(isinstance(answer, WaitForSave) for answer in answers):
            self.desk, answers = step(self.desk, self._end())
        self._heeded(answers)

    def _end(self) -> SaveEnded:
        """Wait for the thread; return its outcome."""
        (future,), self.writing = self.writing, ()
        self.cause = future.exception()
        return SaveEnded(_said(self.cause) if self.cause else "")

    def _heeded(self, answers: tuple[Answer, ...]) -> None:
        for answer in answers:
            if isinstance(answer, RaiseFault):
                raise CheckpointError(answer.fault) from self.cause


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
        saver = Saver(How(run, form, keep, group, files), thread)
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
