"""Episodes whose environment raised an error: counted, reported, and an error if all of a batch failed."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define

from ...core.errors import WorldError, message
from ...core.language.task import TextTask
from ...core.language.text_env import Raised
from ...core.language.types import Rollout


def errors_of(attempts: Sequence[Rollout[Any]]) -> tuple[str, ...]:
    """Return the errors of the attempts whose environment raised, in order.

    >>> errors_of(())
    ()
    """
    return tuple(one.end.error for one in attempts if isinstance(one.end, Raised))


@define
class Failures:
    """The number of episodes, and the number of failed ones.

    >>> seen = Failures(print)
    >>> seen.add("step 1", ["ValueError: no number"], 4)
    step 1: 1 of 4 episodes failed and is left out of the update, the first with ValueError: no number
    >>> seen.report()
    1 of 4 episodes failed in all, the first with ValueError: no number
    """

    notice: Callable[[str], None]
    ends: bool = True  # whether a batch of which all failed is an error
    failed: int = 0
    episodes: int = 0
    first: str = ""

    def add(self, where: str, errors: Sequence[str], episodes: int) -> None:
        """Count a batch, and report its failed episodes. Raises: WorldError if all failed and that `ends` the run."""
        self.failed, self.episodes = self.failed + len(errors), self.episodes + episodes
        if not errors:
            return
        self.first = self.first or errors[0]
        if len(errors) == episodes and self.ends:
            got, remedy = f"failed, the first with {errors[0]}", "mend the environment, its reward or its tools"
            where = f"{where}: each of {episodes} episodes"
            raise WorldError(message(where, got=got, wanted="at least one without an error", remedy=remedy))
        are = "is" if len(errors) == 1 else "are"
        left_out = f"{len(errors)} of {episodes} episodes failed and {are} left out of the update"
        self.notice(f"{where}: {left_out}, the first with {errors[0]}")

    def report(self) -> None:
        """Report the total, if any episode failed."""
        if self.failed:
            self.notice(f"{self.failed} of {self.episodes} episodes failed in all, the first with {self.first}")


def failures_of(task: TextTask, notice: Callable[[str], None]) -> Failures:
    """Return the count of a run's failures: where a grader gives the rewards, a failed batch does not end the run."""
    return Failures(notice, ends=isinstance(task.grader, tuple))
