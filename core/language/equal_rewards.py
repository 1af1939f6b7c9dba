"""Steps from which nothing can be learned because all attempts at a task earned the same, and the reason.

Algorithms that compare the attempts at one task with each other have no advantage then. One such step is chance, several in a
row have a cause.
"""

from collections.abc import Sequence

from attrs import frozen

STEPS = 5  # in a row, after which the cause is reported
MOST = 0.9  # share of completions cut off that is a cause
FAILED, CUT_OFF, SOLVED, ZERO, CONSTANT, BY_TASK = "failed", "cut off", "solved", "zero", "constant", "by task"


@frozen
class AttemptSummary:
    """A finished attempt, as far as the cause depends on it."""

    group: int
    reward: float
    solved: bool = False  # False also where a task does not define success
    cut_off: bool = False  # whether its last completion was cut off at its length limit
    error: str = ""  # of an attempt that failed, whose reward does not count


@frozen
class Streak:
    """The steps in a row without two different rewards of a group, the last `STEPS` of them, and the causes reported."""

    steps: tuple[tuple[AttemptSummary, ...], ...] = ()
    reported: tuple[str, ...] = ()


def equal_within_groups(attempts: Sequence[AttemptSummary]) -> bool:
    """Return whether in each group all rewards are equal, apart from those of failed attempts.

    >>> one, other = AttemptSummary(group=0, reward=1.0), AttemptSummary(group=1, reward=0.0)
    >>> equal_within_groups([one, one, other]), equal_within_groups([one, AttemptSummary(group=0, reward=0.5)])
    (True, False)
    """
    rewards = {(one.group, one.reward) for one in attempts if not one.error}
    return len(rewards) == len({group for group, _ in rewards})


def cause_of(attempts: Sequence[AttemptSummary]) -> str:
    """Return why no group's rewards differ: the first of these that applies.

    FAILED   more than half of the attempts failed
    SOLVED   each attempt solved its task
    CUT_OFF  at least 9 of 10 completions were cut off at their length limit
    ZERO     each reward is 0
    CONSTANT each reward is the same number
    BY_TASK  rewards differ between groups only

    >>> cause_of([AttemptSummary(group=0, reward=0.0), AttemptSummary(group=1, reward=0.0)])
    'zero'
    >>> cause_of([AttemptSummary(group=0, reward=0.0), AttemptSummary(group=1, reward=1.0)])
    'by task'
    """
    ended = [one for one in attempts if not one.error]
    if 2 * len(ended) < len(attempts):
        return FAILED
    if all(one.solved for one in ended):
        return SOLVED
    if sum(one.cut_off for one in ended) >= MOST * len(ended):
        return CUT_OFF
    rewards = {one.reward for one in ended}
    return BY_TASK if len(rewards) > 1 else ZERO if rewards == {0.0} else CONSTANT


def extended(streak: Streak, attempts: Sequence[AttemptSummary]) -> tuple[Streak, str]:
    """Return the streak after another step, and the cause that is to be reported now, or "".

    A cause is reported after `STEPS` steps in a row, once in a streak; different rewards in a group end the streak.

    >>> streak, causes = Streak(), []
    >>> for number in range(7):
    ...     streak, cause = extended(streak, [AttemptSummary(group=number, reward=0.0)])
    ...     causes.append(cause)
    >>> causes
    ['', '', '', '', 'zero', '', '']
    """
    if not equal_within_groups(attempts):
        return Streak(), ""
    steps = (*streak.steps, tuple(attempts))[-STEPS:]
    if len(steps) < STEPS:
        return Streak(steps, streak.reported), ""
    cause = cause_of([one for step in steps for one in step])
    if cause in streak.reported:
        return Streak(steps, streak.reported), ""
    return Streak(steps, (*streak.reported, cause)), cause
