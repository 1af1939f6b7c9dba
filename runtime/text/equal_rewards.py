"""Notice of a run whose steps teach nothing, because all attempts at a task earn the same: with the cause and the remedy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from ...core.language.episode import total_reward
from ...core.language.equal_rewards import (
    BY_TASK,
    CONSTANT,
    CUT_OFF,
    FAILED,
    STEPS,
    ZERO,
    AttemptSummary,
    Streak,
    extended,
)
from ...core.language.events import LENGTH
from ...core.language.task import TextTask
from ...core.language.text_env import Raised
from ...core.language.types import ModelTurn, Rollout
from ..runs.arguments import flag, flatten
from .columns import figure_of
from .config import ALONE, TextConfig, generator_count
from .evaluation import ACCURACY

LIMITS = ("max_new_tokens", "llm_max_tokens")  # the setting that limits a completion, in the recipes that have it


def summary_of(task: TextTask, attempt: Rollout[Any]) -> AttemptSummary:
    """Return the summary of a finished attempt at a task. Raises: as `figure_of`."""
    said = [piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)]
    right = task.figures.get(ACCURACY)
    return AttemptSummary(
        group=attempt.rollout.request.group,
        reward=total_reward(attempt.episode),
        solved=right is not None and figure_of(task, ACCURACY, right, attempt) == 1.0,
        cut_off=bool(said) and said[-1].finish_reason == LENGTH,
        error=attempt.end.error if isinstance(attempt.end, Raised) else "",
    )


@define
class EqualRewards:
    """The steps in a row whose groups each have equal rewards, and their report, once for each cause."""

    run: Path
    arguments: TextConfig
    notice: Callable[[str], None]
    streak: Streak = field(factory=Streak)

    @property
    def reported(self) -> bool:
        """Return whether the present steps in a row have been reported."""
        return bool(self.streak.reported)

    def add(self, where: str, attempts: Sequence[AttemptSummary]) -> None:
        """Add the attempts of a step, and report the cause if so many steps in a row taught nothing.

        Algorithms that compare no attempts at one task with each other compare all of a step.
        """
        alone = self.arguments.learning.algorithm in ALONE
        compared = [evolve(one, group=0) for one in attempts] if alone else attempts
        self.streak, cause = extended(self.streak, compared)
        if cause:
            steps = [one for step in self.streak.steps for one in step]
            reason, remedy = why_equal(cause, steps, self.arguments, self.run)
            self.notice(f"{where}: nothing could be learned in the last {STEPS} steps: {reason}; {remedy}")


def why_equal(
    cause: str, attempts: Sequence[AttemptSummary], arguments: TextConfig, run: Path = Path("RUN")
) -> tuple[str, str]:
    """Return the reason why all attempts at each task earned the same, and the remedy.

    >>> from .config import TaskRun
    >>> why_equal("solved", (), TaskRun())
    ('every attempt is right, the tasks are too easy', 'give harder ones')
    """
    looking = f"look at completions with: purestep chat {run} --task 0"
    if cause == FAILED:
        errors = [one.error for one in attempts if one.error]
        reason = f"{len(errors)} of {len(attempts)} attempts failed, the last with {errors[-1]}"
        return reason, "mend the environment, its reward or its tools"
    if cause == CUT_OFF:
        known = flatten(arguments)
        name = next(name for name in LIMITS if name in known)
        limit, capacity = known[name], arguments.sampling.capacity
        cut = f"{sum(one.cut_off for one in attempts)} of {len(attempts)} completions were cut off"
        return f"{cut} at {flag(name)} {limit}, within --capacity {capacity}", f"raise {flag(name)}"
    if cause == ZERO:
        reason = "every reward is 0, the tasks are too hard or the reward pays for nothing"
        return reason, f"{looking}; begin with easier tasks or a better model, or pay for a part of the way"
    if cause == CONSTANT:
        return f"every reward is {attempts[-1].reward:g}", f"{looking}; let the reward tell completions apart"
    if cause == BY_TASK:
        reason = "all attempts at a task earned the same, although tasks differ"
        more = "" if generator_count(arguments) else ", or replace such tasks with --resample 3"
        return reason, f"raise --samples or --temperature{more}"
    return "every attempt is right, the tasks are too easy", "give harder ones"
