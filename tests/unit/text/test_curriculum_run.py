"""Runs that skip solved prompts and replace groups of equal rewards: what they ask, train on and go on from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.curriculum import CurriculumState, Solved
from purestep.core.language.equal_rewards import equal_within_groups
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.effects.task_reference import EVERY, trust
from purestep.runtime.recipes.cache import Cache
from purestep.runtime.runs.arguments import changed
from purestep.runtime.runs.training_machine import TrainChunk
from purestep.runtime.text import run as session
from purestep.runtime.text.config import TaskRun, check_text_settings
from purestep.runtime.text.curriculum import StepAttempts, check_curriculum, from_tensors, state_tensors
from purestep.runtime.text.distributed_learner import check_ranks
from purestep.runtime.text.equal_rewards import summary_of
from purestep.runtime.text.training_loop import TextTrainingLoop, prompt_requests, prompt_row, training_requests

from ...support.example_tasks import SAFE, example
from ...support.prompt_tasks import TINY, TRAINING, reference
from ...support.run_folders import restored

Steps = list[StepAttempts]


def arguments(name: str, **changes: Any) -> TaskRun:
    trust(reference(name))
    return changed(TaskRun(), {"reference": reference(name), **TINY, **changes})


def silent(text: str) -> None:
    """Nobody listens."""


def started(run: Path, given: TaskRun) -> Steps:
    """The attempts of each step of a run."""
    found: Steps = []
    made = TextTrainingLoop._sampled

    def noted(self: TextTrainingLoop, *more: Any) -> StepAttempts:
        found.append(made(self, *more))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, "_sampled", noted)
        session.start(run, given, overwrite=False, notice=silent)
    return found


def groups(attempts: Any) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for one in attempts:
        found.setdefault(one.rollout.request.group, []).append(one)
    return found


def test_groups_of_equal_rewards_are_replaced(tmp_path: Path) -> None:
    given = arguments("HALF", groups=3, steps=4, resample=3)
    task, steps, following = given.task(), started(tmp_path, given), 0
    rows = read_metrics(tmp_path / "metrics.jsonl")
    replaced = 0
    for step, row in zip(steps, rows, strict=True):
        batch, every = groups(step.batch), groups(step.sampled)
        assert [len(group) for group in batch.values()] == [4] * 3
        assert sorted(every) == list(range(following, following + len(every)))
        following += len(every)
        differs = {
            number: not equal_within_groups([summary_of(task, one) for one in group]) for number, group in every.items()
        }
        assert sum(differs[number] for number in batch) == min(3, sum(differs.values()))
        replaced += sum(not differs[number] for number in every if number not in batch)
        assert row["resampled_groups"] == len(every) - 3
        assert row["skipped_prompts"] == 0.0
        assert row["episode_return"] == pytest.approx(
            sum(one.episode.steps[0].reward for one in step.sampled) / len(step.sampled)
        )
    assert replaced > 0
    assert from_tensors(restored_state(tmp_path).curriculum) == CurriculumState(following)


def restored_state(run: Path) -> Any:
    trust(EVERY)
    return restored(run)[1]


def test_solved_prompts_are_skipped_and_come_back(tmp_path: Path) -> None:
    given = arguments("EVERYTHING", groups=3, steps=12, skip_solved=2, max_new_tokens=1)
    steps, task = started(tmp_path, given), given.task()
    rows = prompt_row(keys.key(0), task.draw)
    numbers = [number for step in steps for number in groups(step.batch)]
    passes = [[rows(number) for number in numbers if number // TRAINING == passed] for passed in range(6)]
    assert [len(one) for one in passes[:5]] == [TRAINING, TRAINING, 2, 2, 2]
    assert {row for one in passes[2:] for row in one} == set(range(TRAINING))
    metrics = read_metrics(tmp_path / "metrics.jsonl")
    held = from_tensors(restored_state(tmp_path).curriculum)
    assert sum(row["skipped_prompts"] for row in metrics) == held.following - len(numbers) > 0


def test_prompts_without_a_curriculum_are_those_of_their_numbers(tmp_path: Path) -> None:
    given = arguments("EVEN")
    draw = given.task().draw
    for step in range(4):
        each = (prompt_requests(given, keys.key(0), 2 * step + group, draw) for group in range(2))
        assert tuple(one for some in each for one in some) == training_requests(given, keys.key(0), step, draw)
    session.start(tmp_path, given, overwrite=False, notice=silent)
    assert restored_state(tmp_path).curriculum == ()
    assert not {"resampled_groups", "skipped_prompts"} & read_metrics(tmp_path / "metrics.jsonl")[0].keys()


class Cut(BaseException):
    """A crash."""


def cut_short(begin: Callable[[], Any], at: int) -> None:
    made = TextTrainingLoop.train

    def train(self: Any, command: TrainChunk) -> Any:
        if self.iteration == at:
            raise Cut
        return made(self, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, "train", train)
        with pytest.raises(Cut):
            begin()


@pytest.mark.slow
def test_a_run_that_goes_on_asks_what_an_uninterrupted_one_asks(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    given = arguments("HALF", groups=3, steps=6, resample=2, skip_solved=1)
    session.start(whole, given, overwrite=False, notice=silent)
    cut_short(lambda: session.start(cut, given, overwrite=False, notice=silent), at=4)
    trust(EVERY)
    session.resume(cut, notice=silent)
    figures = [
        [
            {name: repr(value) for name, value in row.items() if "second" not in name}
            for row in read_metrics(run / "metrics.jsonl")
        ]
        for run in (whole, cut)
    ]
    assert figures[0] == figures[1]
    one, other = (restored_state(run) for run in (whole, cut))
    assert from_tensors(one.curriculum) == from_tensors(other.curriculum)
    assert from_tensors(one.curriculum).solved
    for name, leaf in one.learner.params.policy.items():
        assert leaf.equal(other.learner.params.policy[name])


def test_a_state_comes_back_from_its_tensors() -> None:
    for state in (CurriculumState(), CurriculumState(9, 2, {0: Solved(1, 2), 3: Solved(4, 1)})):
        assert from_tensors(state_tensors(state, 4)) == state
    assert from_tensors(state_tensors(CurriculumState(7), 0)) == CurriculumState(7)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"resample": -1}, "--resample is -1"),
        ({"skip_solved": -1}, "--skip-solved is -1"),
        ({"resample": 2, "algorithm": "reinforce"}, "--resample is 2, wanted 0 for reinforce"),
        ({"resample": 2, "mode": "async"}, "--resample is 2, wanted 0 for a run with generators"),
        ({"skip_solved": 2, "generators": 2}, "--skip-solved is 2, wanted 0 for a run with generators"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], refused: str) -> None:
    with pytest.raises(ChoiceError, match=refused):
        check_text_settings(changed(TaskRun(), changes))


def test_tasks_and_ranks_without_a_curriculum_refuse_it() -> None:
    solved, again = (changed(TaskRun(), {name: 2}) for name in ("skip_solved", "resample"))
    with pytest.raises(ChoiceError, match="--skip-solved is 2, wanted 0 for safe; its tasks are drawn anew"):
        check_curriculum(solved, example(SAFE))
    check_curriculum(again, example(SAFE))
    with pytest.raises(ChoiceError, match=r"--resample is 2, wanted 0 for .*; its episodes are prepared"):
        check_curriculum(again, Cache().task())
    for given in (solved, again):
        with pytest.raises(ChoiceError, match="is 2 on 2 ranks, wanted 0"):
            check_ranks(given, 2)
