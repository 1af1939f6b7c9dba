"""Rewards beside sampling: a generator goes on while the grader computes the rewards of attempts that are finished."""

import threading
from concurrent.futures import Future

from attrs import define, field

from ...core.language.grading import Attempts, Grader, graded
from ..effects.clock import seconds
from ..effects.generation.scheduling import AnyAttempt

LIFE = 1.0  # seconds between two signs of life while only rewards are awaited


@define
class Grading:
    """Finished attempts without a reward. One call of the grader runs at a time; what ends meanwhile is graded by the next.

    The call runs in a thread that ends with its process, whatever the grader does.
    """

    waiting: list[tuple[int, AnyAttempt]] = field(factory=list)  # (task, attempt)
    called: list[tuple[int, AnyAttempt]] = field(factory=list)
    result: Future[Attempts] | tuple[()] = ()
    cancelled: set[int] = field(factory=set)  # tasks of the call whose grades are not wanted any more
    shown: float = 0.0  # when the last sign of life was given

    @property
    def tasks(self) -> tuple[int, ...]:
        """Return the tasks whose rewards are awaited."""
        return tuple(task for task, _ in (*self.called, *self.waiting) if task not in self.cancelled)

    def add(self, over: tuple[tuple[int, AnyAttempt], ...]) -> None:
        """Queue finished attempts."""
        self.waiting += over

    def cancel(self, task: int) -> bool:
        """Drop a task; return whether it was there."""
        there = task in self.tasks
        self.waiting = [one for one in self.waiting if one[0] != task]
        self.cancelled |= {task} & {one for one, _ in self.called}
        return there

    def graded(self, grader: Grader | tuple[()]) -> list[tuple[int, AnyAttempt]]:
        """Return the attempts that have their rewards by now, and begin the next call. Raises: errors of the grader."""
        found = list[tuple[int, AnyAttempt]]()
        if not isinstance(self.result, tuple):
            if not self.result.done():
                return found
            pairs = zip(self.called, self.result.result(), strict=True)
            found = [(task, attempt) for (task, _), attempt in pairs if task not in self.cancelled]
            self.result, self.called, self.cancelled = (), [], set()
        if self.waiting:
            self.called, self.waiting = self.waiting, []
            self.result = _beside(grader, tuple(attempt for _, attempt in self.called))
        return found

    def shows_life(self) -> bool:
        """Return whether to give a sign of life now: rewards are awaited, and the last sign was a while ago."""
        due = bool(self.tasks) and seconds() - self.shown > LIFE
        self.shown = seconds() if due else self.shown
        return due


def _beside(grader: Grader | tuple[()], attempts: Attempts) -> Future[Attempts]:
    """Return the attempts with their grades, as a future of a thread."""
    made: Future[Attempts] = Future()

    def work() -> None:
        try:
            made.set_result(graded(grader, attempts))
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            made.set_exception(error)

    threading.Thread(target=work, name="purestep-grading", daemon=True).start()
    return made
