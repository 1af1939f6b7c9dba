"""The attempts of a step where solved prompts are skipped, or groups of equal rewards replaced by further ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ChoiceError, message
from ...core.language.curriculum import (
    CurriculumRules,
    CurriculumState,
    RowOf,
    Solved,
    add_results,
    add_round,
    batch_of,
    choose_prompts,
    missing,
    resampling,
)
from ...core.language.equal_rewards import equal_within_groups
from ...core.language.requests import Request
from ...core.language.task import TextTask
from .components import Attempts
from .config import TextConfig
from .equal_rewards import summary_of
from .evaluation import ACCURACY

RESAMPLED, SKIPPED = "resampled_groups", "skipped_prompts"  # metrics
Sampling = Callable[[Sequence[Request]], Attempts]


@frozen
class StepAttempts:
    """The attempts of a step: those to train on, and all that were sampled."""

    batch: Attempts
    sampled: Attempts
    state: Any  # of the curriculum after the step, as tensors; () without one
    figures: Mapping[str, float]


def curriculum_of(arguments: TextConfig, task: TextTask) -> CurriculumRules | tuple[()]:
    """Return the rules by which a run chooses its prompts; () where it asks all of them once in each pass.

    >>> from .config import TaskRun
    >>> curriculum_of(TaskRun(), TextTask(name="t", env=(), parser=()))
    ()
    """
    episodes = arguments.episodes
    if not episodes.resample and not episodes.skip_solved:
        return ()
    return CurriculumRules(prompts=task.prompts, skip_solved=episodes.skip_solved)


def check_curriculum(arguments: TextConfig, task: TextTask) -> None:
    """Refuse settings of a curriculum that a task does not allow. Raises: ChoiceError."""
    episodes = arguments.episodes
    given = {"--resample": episodes.resample, "--skip-solved": episodes.skip_solved}
    for name, value in given.items():
        if value and not isinstance(task.preparation, tuple):
            wanted, remedy = f"0 for {task.name}", "its episodes are prepared, and no further ones can be asked for"
            raise ChoiceError(message(name, got=value, wanted=wanted, remedy=remedy))
    if episodes.skip_solved and not task.prompts:
        wanted, remedy = f"0 for {task.name}", "its tasks are drawn anew, and none comes again"
        raise ChoiceError(message("--skip-solved", got=episodes.skip_solved, wanted=wanted, remedy=remedy))
    if episodes.skip_solved and ACCURACY not in task.figures:
        wanted, remedy = f"0 for {task.name}", f"give the task a figure {ACCURACY!r}, 1 for a solved attempt"
        raise ChoiceError(message("--skip-solved", got=episodes.skip_solved, wanted=wanted, remedy=remedy))


def state_tensors(state: CurriculumState, prompts: int) -> dict[str, Tensor]:
    """Return the state as tensors, for a checkpoint; its rows are below `prompts`.

    >>> state_tensors(CurriculumState(5, 1, {1: Solved(2, 0)}), 3)["times"]
    tensor([0, 2, 0])
    """
    rows = [state.solved.get(row, Solved(0, 0)) for row in range(prompts)]
    columns = {"times": [one.times for one in rows], "last": [one.last for one in rows]}
    columns |= {"following": [state.following], "skipped": [state.skipped]}
    return {name: torch.tensor(values, dtype=torch.int64) for name, values in columns.items()}


def from_tensors(held: Mapping[str, Tensor]) -> CurriculumState:
    """Return the state that `state_tensors` wrote.

    >>> state = CurriculumState(5, 1, {1: Solved(2, 0)})
    >>> from_tensors(state_tensors(state, 3)) == state
    True
    """
    rows = enumerate(zip(held["times"].tolist(), held["last"].tolist(), strict=True))
    solved = {row: Solved(times, last) for row, (times, last) in rows if times}
    return CurriculumState(int(held["following"]), int(held["skipped"]), solved)


def sample_step(
    arguments: TextConfig,
    task: TextTask,
    rules: CurriculumRules,
    held: Mapping[str, Tensor],
    *,
    requests_of: Callable[[int], Sequence[Request]],
    row_of: RowOf,
    sample: Sampling,
) -> StepAttempts:
    """Sample the groups of a step, round by round; `requests_of` and `row_of` take the number of a prompt."""
    state, step = from_tensors(held), resampling(arguments.episodes.groups, arguments.episodes.resample)
    groups = dict[int, Attempts]()
    skipped = 0
    while count := missing(step):
        choice = choose_prompts(rules, state, count, row_of)
        attempts = sample([request for number in choice.numbers for request in requests_of(number)])
        own = {number: [one for one in attempts if one.rollout.request.group == number] for number in choice.numbers}
        summaries = {number: [summary_of(task, one) for one in some] for number, some in own.items()}
        step = add_round(step, [(number, not equal_within_groups(some)) for number, some in summaries.items()])
        right = [(number, all(one.solved for one in some)) for number, some in summaries.items()]
        state = add_results(rules, choice.state, right, row_of)
        groups |= {number: tuple(some) for number, some in own.items()}
        skipped += len(choice.skipped)
    return StepAttempts(
        batch=tuple(one for number in batch_of(step) for one in groups[number]),
        sampled=tuple(one for some in groups.values() for one in some),
        state=state_tensors(state, rules.prompts),
        figures={RESAMPLED: float(len(groups) - step.groups), SKIPPED: float(skipped)},
    )
