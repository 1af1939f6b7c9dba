"""The evaluation of a language model: several attempts at each task, greedy beside sampled, before, during and after."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("transformers")

from purestep.core.errors import ChoiceError
from purestep.core.intervals import student, wilson, wilson_of_groups
from purestep.core.language.episode import total_reward
from purestep.core.language.pass_at_k import mean_pass_at_k, pass_at_k
from purestep.runtime.cli import main
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.effects.task_reference import trust
from purestep.runtime.recipes.cache import Cache
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text import report
from purestep.runtime.text.components import sampler, text_components
from purestep.runtime.text.config import TaskRun
from purestep.runtime.text.evaluation import held_out, of_tasks, read_evaluation_result

from ...support.prompt_tasks import TINY, reference

Said = pytest.CaptureFixture[str]


def arguments(name: str, **changes: Any) -> TaskRun:
    trust(reference(name))
    return changed(TaskRun(), {"reference": reference(name), **TINY, **changes})


@pytest.mark.parametrize(
    ("given", "named"),
    [((4, 5, 1), "solved is 5"), ((4, -1, 1), "solved is -1"), ((4, 1, 5), "k is 5"), ((4, 1, 0), "k is 0")],
)
def test_counts_that_cannot_be_are_refused(given: tuple[int, int, int], named: str) -> None:
    with pytest.raises(ChoiceError, match=f"pass_at_k: {named}, wanted from . to the 4 attempts"):
        pass_at_k(*given)
    with pytest.raises(ChoiceError, match="mean_pass_at_k: tasks is 0"):
        mean_pass_at_k([], 4, 1)


def test_attempts_that_depend_on_each_other_widen_the_interval() -> None:
    alike, mixed = wilson_of_groups([8, 0, 8, 0, 8, 0], 8), wilson_of_groups([4] * 6, 8)
    assert alike == wilson(3, 6)
    assert mixed == wilson(24, 48)
    between = wilson_of_groups([6, 2, 6, 2, 6, 2], 8)
    assert alike[0] < between[0] < mixed[0] < 0.5 < mixed[1] < between[1] < alike[1]
    assert wilson_of_groups([8] * 6, 8) == wilson(6, 6)
    assert wilson_of_groups([], 8) == (0.0, 1.0)


def test_figures_of_tasks_are_those_of_the_hand() -> None:
    found = of_tasks([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [3, 1, 0])
    mean, deviation = 4 / 9, math.sqrt(((5 / 9) ** 2 + (1 / 9) ** 2 + (4 / 9) ** 2) / 2)
    half = student(3) * deviation / math.sqrt(3)
    assert (found["reward_low"], found["reward_high"]) == pytest.approx((mean - half, mean + half))
    assert found["zero_spread"] == 2 / 3
    passed = [found[f"pass@{k}"] for k in (1, 2, 3)]
    assert passed == pytest.approx([mean, (1 + 2 / 3 + 0) / 3, 2 / 3])
    assert of_tasks([[1.0]], [1]).keys() == {"accuracy_low", "accuracy_high"}
    assert of_tasks([[1.0], [0.0, 1.0]], [1, 1]).keys() == {"reward_low", "reward_high"}


def test_each_task_has_its_attempts_sampled_and_one_greedy() -> None:
    parts = text_components(arguments("EVEN"))
    params = parts.whole(parts.begin())
    found = report.evaluation(parts, params, tasks=4, draw=0, samples=3)
    assert isinstance(found, report.TextEvaluation)
    assert (found.sampled.tasks, found.sampled.attempts, found.greedy.attempts) == (4, 12, 4)
    attempts = sampler(evolve(parts, rules=parts.trial), temperature=1.0, slots=12)(
        params, 0, held_out(4, 0, draw=parts.task.draw, attempts=3)
    )
    rewards = [[total_reward(one.episode) for one in attempts[at : at + 3]] for at in range(0, 12, 3)]
    assert found.sampled.reward == pytest.approx(sum(map(sum, rewards)) / 12)
    assert found.sampled.figures["pass@3"] == sum(map(any, rewards)) / 4
    assert found.sampled.figures["zero_spread"] == sum(len(set(each)) == 1 for each in rewards) / 4
    assert 0 < found.sampled.accuracy < 1
    assert found.sampled.figures["pass@1"] == pytest.approx(found.sampled.accuracy)
    assert read_evaluation_result(json.loads(json.dumps(found.sampled.described())), "here") == found.sampled
    once = report.evaluation(parts, params, tasks=4, draw=0)
    assert isinstance(once, report.TextEvaluation)
    assert once.greedy == found.greedy
    assert once.line().endswith(f"; greedy accuracy {once.greedy.accuracy:.3f}")
    assert not {"zero_spread", "pass@1"} & once.sampled.figures.keys()


def test_an_evaluation_stands_in_the_file_the_table_and_the_metrics(tmp_path: Path, capsys: Said) -> None:
    trust(reference("EVEN"))
    run, given = tmp_path / "run", {**TINY, "eval_every_n_versions": 2, "eval_samples": 2}
    flags = [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert main.main(["train", reference("EVEN"), "--run", str(run), *flags]) == 0
    out, err = capsys.readouterr()
    assert "before, greedy" in out
    assert "after, greedy" in out
    for row in ("attempts at each", "pass@1", "pass@2", "tasks of equal rewards", "  longest", "  its 95 % interval"):
        assert f"\n{row}  " in out
    assert "with 2 attempts each, pass@2" in err
    held = json.loads((run / "evaluation.json").read_text())
    assert held["eval_samples"] == 2
    for when in ("before", "after"):
        assert [held[when][how]["attempts"] for how in ("sampled", "greedy")] == [8, 4]
    rows = read_metrics(run / "metrics.jsonl")
    names = ("pass@2", "zero_spread", "reward_low", "accuracy_high", "tokens", "greedy_accuracy", "greedy_reward")
    measured = [[math.isfinite(row[f"evaluation_{name}"]) for name in names] for row in rows]
    assert measured == [[False] * 7, [True] * 7, [False] * 7]
    assert main.main(["evaluate", str(run), "--trust", "--eval-samples", "3"]) == 0
    assert "pass@3" in capsys.readouterr().out
    assert main.main(["evaluate", str(run), "--trust", "--eval-samples", "-1"]) == 1
    assert "--eval-samples is -1" in capsys.readouterr().err


def test_several_attempts_are_refused_where_a_task_evaluates_itself() -> None:
    itself, usual = Cache().task(), arguments("EVEN").task()
    with pytest.raises(ChoiceError, match=r"--eval-samples is 2, wanted 1 for .*evaluation of its own"):
        report.check_samples(itself, 2)
    report.check_samples(itself, 1)
    report.check_samples(usual, 2)
