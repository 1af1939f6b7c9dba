"""Checkpoints written by a thread while training goes on: copies first, one at a time, and no fault is lost.

with saving(run, group=group) as saver:
    for ...:
        saver.save(step, tree, machine=state)     # back as soon as copies are made
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ....core.errors import CheckpointError
from ..checkpoint import to_stderr
from ..files import DISK, Files
from .forms import SHARDED, Form
from .group import ALONE, Group, LostError
from .later_rules import Answer, Ask, Desk, Ended, Event, Leave, Tell, Wait, step
from .saving import staged, write


@frozen
class How:
    """What all checkpoints of a run have in common."""

    run: Path
    form: Form
    keep: int
    group: Group
    files: Files


@define
class Saver:
    """Saves beside training. Every rank has one, and they are asked for the same steps in the same order."""

    how: How
    thread: ThreadPoolExecutor
    desk: Desk = field(factory=Desk)
    writing: "tuple[Future[Path], ...]" = ()  # the one under way
    cause: BaseException | None = None  # of the last fault

    def save(
        self,
        number: int,
        tree: Any,
        *,
        machine: Any = (),
        facts: Mapping[str, Any] = {},
        metadata: Mapping[str, Any] = {},
    ) -> None:
        """Copies step `number`'s tree to the CPU and writes it from there, after the one before is whole.

        Raises: CheckpointError where the one before could not be written, and then this one is not; and what `save` of
        saving.py raises before anything is written.
        """
        self._settled(Ask(number))
        how = self.how
        try:
            given = staged(
                number, tree, form=how.form, machine=machine, facts=facts, metadata=metadata, group=how.group
            )
        except BaseException:
            self.desk, _ = step(self.desk, Ended())
            raise
        self.writing = (self.thread.submit(write, how.run, given, keep=how.keep, group=how.group, files=how.files),)

    def ended(self, seconds: float) -> bool:
        """Whether nothing is being written any more, after so many seconds at most."""
        return not wait(self.writing, seconds).not_done

    def close(self) -> None:
        """Waits until everything asked for is on the disk. Raises: CheckpointError where it could not be written."""
        self._settled(Leave())

    def _settled(self, event: Event) -> None:
        """Returns when it is this one's turn."""
        self.desk, answers = step(self.desk, event)
        while any(isinstance(answer, Wait) for answer in answers):
            self.desk, answers = step(self.desk, self._end())
        self._heeded(answers)

    def _end(self) -> Ended:
        """Waits for the thread."""
        (future,), self.writing = self.writing, ()
        self.cause = future.exception()
        return Ended(_said(self.cause) if self.cause else "")

    def _heeded(self, answers: tuple[Answer, ...]) -> None:
        for answer in answers:
            if isinstance(answer, Tell):
                raise CheckpointError(answer.fault) from self.cause


def _said(cause: BaseException) -> str:
    text = next(iter(str(cause).splitlines()), "")
    return text if isinstance(cause, CheckpointError) else f"{type(cause).__name__}: {text}"


@contextmanager
def saving(
    run: Path, *, form: Form = SHARDED, keep: int = 3, group: Group = ALONE, files: Files = DISK
) -> Iterator[Saver]:
    """A `Saver` for a run, whose last checkpoint is whole when the block ends.

    Raises, at the end: CheckpointError where it could not be written; a block that ended in an error keeps its own, and the
    other is printed, unless it says that a rank is lost, whose loss ends the block as well.
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
