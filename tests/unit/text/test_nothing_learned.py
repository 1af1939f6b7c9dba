"""A run says why nothing can be learned, once, in turns and with generators."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from purestep.core import keys
from purestep.core.language.equal_rewards import AttemptSummary, equal_within_groups
from purestep.core.language.requests import requests
from purestep.runtime.async_rl.rollout_worker import samples_of
from purestep.runtime.async_rl.training_phase import summary_of_sample
from purestep.runtime.effects.task_reference import trust
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text import run as session
from purestep.runtime.text.components import sampler, text_components
from purestep.runtime.text.config import TaskRun
from purestep.runtime.text.equal_rewards import EqualRewards, summary_of, why_equal

from ...support.prompt_tasks import TINY, reference

LONG = {"max_new_tokens": 200, "capacity": 256}  # most completions of a new model end before
THREADS: dict[str, Any] = {"mode": "async", "compare": False, "generator_engine": "thread", "generator_slots": 3}


def arguments(name: str, **changes: Any) -> TaskRun:
    trust(reference(name))
    return changed(TaskRun(), {"reference": reference(name), **TINY, **changes})


def notices(run: Path, given: TaskRun) -> list[str]:
    said: list[str] = []
    session.start(run, given, overwrite=False, notice=said.append)
    return said


@pytest.mark.parametrize("more", [{}, THREADS], ids=["in turns", "with generators"])
@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        pytest.param("NOTHING", LONG, "every reward is 0", marks=pytest.mark.slow),
        ("EVERYTHING", {}, "every attempt is right"),
        pytest.param(
            "NOTHING",
            {"max_new_tokens": 1},
            "40 of 40 completions were cut off at --max-new-tokens 1, ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_reason_is_reported_once(
    task: str, changes: dict[str, Any], reason: str, more: dict[str, Any], tmp_path: Path
) -> None:
    found = notices(tmp_path / "run", arguments(task, steps=7, **changes, **more))
    told = [text for text in found if "nothing could be learned in the last 5 steps" in text]
    assert len(told) == 1
    assert f" 5: nothing could be learned in the last 5 steps: {reason}" in told[0]
    assert len([text for text in found if "no advantage differs" in text]) == 4
    assert "\n" not in told[0]


def test_a_run_that_learns_says_nothing(tmp_path: Path) -> None:
    found = notices(tmp_path / "run", arguments("EVEN", steps=7))
    assert not [text for text in found if "nothing could be learned" in text]


def test_an_algorithm_without_groups_compares_the_whole_step(tmp_path: Path) -> None:
    said: list[str] = []
    one, other = AttemptSummary(group=0, reward=0.0), AttemptSummary(group=1, reward=1.0)
    for algorithm, number in (("reinforce", 0), ("grpo", 1)):
        equal = EqualRewards(tmp_path, changed(TaskRun(), {"algorithm": algorithm}), said.append)
        for step in range(6):
            equal.add(f"step {step + 1}", [one, other])
        assert len(said) == number
    assert "step 5: nothing could be learned in the last 5 steps: all attempts at a task earned the same" in said[0]


def test_failures_are_named() -> None:
    failed = AttemptSummary(group=0, reward=0.0, error="TimeoutError: the judge is silent")
    reason, remedy = why_equal("failed", [failed, failed, AttemptSummary(group=0, reward=0.0)], TaskRun())
    assert reason == "2 of 3 attempts failed, the last with TimeoutError: the judge is silent"
    assert remedy == "mend the environment, its reward or its tools"


@pytest.mark.parametrize("name", ["EVEN", "FAILING", "EVERYTHING"])
def test_a_sample_has_the_summary_of_its_attempt(name: str) -> None:
    given = arguments(name)
    parts = text_components(given)
    asked = requests(((0, 0), (2, 0), (4, 0)), keys.key(3), first=5)
    attempts = sampler(parts, temperature=1.0)(parts.whole(parts.begin()), 0, asked)
    summaries = [summary_of(parts.task, one) for one in attempts]
    samples = samples_of(parts.task, attempts, capacity=given.sampling.capacity, calls=1)
    assert [summary_of_sample(one) for one in samples] == summaries
    assert {one.error for one in summaries} == {"TimeoutError: the judge is silent" if name == "FAILING" else ""}
    assert equal_within_groups(summaries)
