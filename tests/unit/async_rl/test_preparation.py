"""Episodes that begin where the model has brought them: a task of somebody else's in turns, with generators, and resumed."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

pytest.importorskip("transformers")

from purestep.core import keys
from purestep.core.errors import ChoiceError, StructureError
from purestep.core.language.preparation import Prepared, Start
from purestep.properties import check, preparation_laws
from purestep.runtime.async_rl.orchestrator import faults_of_answers
from purestep.runtime.async_rl.preparation import (
    KeptStart,
    Prepare,
    Ready,
    Starts,
    kept_starts,
    ready_fault,
    ready_of,
    starts_from,
)
from purestep.runtime.async_rl.rollout_worker import NONE, RolloutRequest, prompts_of
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.cli import main
from purestep.runtime.effects import task_reference
from purestep.runtime.effects.jsonl_stream import read_entries as read_stream
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.effects.workers.pool import WorkerAnswer, WorkerLost
from purestep.runtime.machine.drive import DRIVER, Finished, Received
from purestep.runtime.runs.arguments import changed, flag
from purestep.runtime.text.components import text_components
from purestep.runtime.text.config import TaskRun
from purestep.runtime.text.preparation import attempts_of_step, usable
from purestep.runtime.text.prompting import ask_prompts, completing_here
from purestep.runtime.text.run import check_groups
from purestep.runtime.text.training_loop import prompt_requests

from ...support.prepared_task import OPENINGS, Board
from .test_orchestrator import Scripted, request_of, sample_of, taken

TASK = Path(__file__).parents[2] / "support" / "prepared_task.py"
REFERENCE = f"{TASK}:OPENINGS"
TINY: dict[str, Any] = {
    **{"width": 16, "layers": 1, "heads": 2, "groups": 3, "samples": 2, "minibatches": 1, "max_turns": 1},
    **{"held_out": 4, "max_new_tokens": 3, "capacity": 64, "steps": 3, "warm_steps": 0, "generator_slots": 4},
}
WORDS = [word for name, value in TINY.items() for word in (flag(name), str(value))]

test_openings = check(preparation_laws("7", "12"), OPENINGS)


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_reference, "_trusted", {REFERENCE})


def tiny(**changes: Any) -> TaskRun:
    return changed(TaskRun(), {**TINY, "reference": REFERENCE, **changes})


# --- in turns ---


def test_each_step_is_prepared_published_and_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    more = ["--eval-every-n-versions", "2", "--algorithm", "reinforce"]
    assert main.main(["train", REFERENCE, *WORDS, *more, "--run", str(run)]) == 0
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["states"] for row in rows] == [3.0] * 3
    assert [row["steps"] for row in rows] == [1.0, 2.0, 3.0]
    assert all(row["length"] > 1.0 for row in rows)
    assert [row["evaluation_reward"] >= 0.0 for row in rows] == [False, True, False]
    assert "version 2: reward" in capsys.readouterr().err
    entries = read_stream(run / "rollouts.jsonl").entries
    assert [entry.number for entry in entries] == list(range(9))
    assert [entry.rows[0]["said"][0] for entry in entries] == [str(number) for number in range(9)]


def test_starts_without_room_are_left_out_or_replaced() -> None:
    parts = text_components(tiny())
    fits, wide = Start(state=Board("1"), observation="said: 1."), Start(state=Board("2"), observation="said " * 99)
    assert usable(parts, Prepared(starts=(wide, fits))) == (fits,)
    assert usable(parts, Prepared(starts=(wide,), otherwise=(fits, fits))) == (fits, fits)
    begun = attempts_of_step(parts, Prepared(starts=(fits, wide, fits)), keys.key(0), 0, samples=2)
    assert [one.episode.world for one in begun] == [Board("1")] * 4
    assert [one.rollout.request.group for one in begun] == [0, 0, 1, 1]
    assert len({one.rollout.sampling for one in begun}) == 4


def test_steps_of_fewer_groups_than_are_prepared_are_refused() -> None:
    parts, preparation = text_components(tiny()), OPENINGS.preparation
    assert not isinstance(preparation, tuple)
    many = evolve(parts, task=evolve(parts.task, preparation=evolve(preparation, groups=4)))
    with pytest.raises(ChoiceError, match="--groups is 3, wanted at least 4"):
        check_groups(tiny(), many)
    check_groups(tiny(groups=4), many)


# --- in a generator ---


def test_a_generator_prepares_what_is_prepared_in_turns() -> None:
    arguments = tiny()
    parts = text_components(arguments)
    params, preparation = parts.whole(parts.begin()), parts.task.preparation
    assert not isinstance(preparation, tuple)
    prompts = prompts_of(arguments, parts, params)
    assert not isinstance(prompts, tuple)
    found: dict[int, Ready] = {}
    assert [prompts.begin(10 + number, number) for number in (0, 5)] == [(), ()]
    while not prompts.active.idle:
        found |= dict(prompts.advance(params, 3))
    ended = completing_here(parts, params, 3, temperature=1.0, top_p=1.0)
    for number in (0, 5):
        wanted = ask_prompts(parts, ended, preparation.prompting, keys.key(0), number, 1, 3)
        assert (found[10 + number].starts, found[10 + number].records) == (wanted.starts, wanted.records)
        assert found[10 + number].preparation == number


def test_prompts_that_leave_no_room_are_answered_at_once() -> None:
    parts = text_components(tiny())
    prompts = prompts_of(tiny(), parts, parts.whole(parts.begin()))
    assert not isinstance(prompts, tuple)
    prompts.parts = evolve(parts, sampling=evolve(parts.sampling, capacity=1))
    with pytest.raises(ChoiceError, match="preparation: starts is 1 without room to answer"):
        prompts.begin(0, 0)


def test_answers_that_cannot_be_true_are_refused() -> None:
    parts = text_components(tiny())
    preparation, refuse = parts.task.preparation, faults_of_answers(tiny(), parts)
    one = Start(state=Board("1"), observation="?")
    good = Ready(preparation=0, starts=(one,), figures={"length": 1.0})
    assert refuse(0, good) == ""
    assert ready_fault(preparation, evolve(good, starts=())) == "no 1 starts"
    assert ready_fault(preparation, evolve(good, starts=("1",))) == "no 1 starts"  # type: ignore[arg-type]
    assert ready_fault(preparation, evolve(good, figures={})) == "figures of other names"
    assert ready_fault((), good) == "starts of a task that is not prepared"
    assert len(ready_of(4, 3, (one,), Prepared(starts=(one,))).starts) == 3


def test_starts_are_kept_as_json_and_other_classes_are_refused() -> None:
    preparation = OPENINGS.preparation
    assert not isinstance(preparation, tuple)
    starts = {7: Start(state=Board("1"), observation="?")}
    assert starts_from(kept_starts(starts), preparation, "here") == starts
    with pytest.raises(StructureError, match="the start of prompt 7"):
        kept_starts({7: Start(state=torch.zeros(1), observation="?")})
    for text in ('{"$tag":"Other"}', "{"):
        with pytest.raises(StructureError, match="here: the start of prompt 7 is no state"):
            starts_from([KeptStart(prompt=7, observation="?", state=text)], preparation, "here")


# --- in the crew of a phase ---


def dispatch(prompt: int, *, seat: int = 0, worker: int = 0, attempt: int = 0) -> say.Dispatch:
    return say.Dispatch(prompt, seat, attempt, prompt, worker, 0)


def ready(preparation: int) -> Ready:
    starts = tuple(Start(state=place, observation=str(place)) for place in range(2))
    return Ready(preparation=preparation, starts=starts)


def test_groups_wait_for_their_start_and_share_it() -> None:
    script = Scripted(starts=Starts(groups=2))
    follow = script.opened(dispatch(4), dispatch(4, seat=1, worker=1), dispatch(5, worker=1))
    assert script.sent == [(0, -3, Prepare(2, 0))]
    script.reports.append(WorkerAnswer(0, -3, ready(2)))
    sample = sample_of(request_of(4, 1))
    script.reports.append(WorkerAnswer(1, 1, sample))
    assert taken(follow, 2) == [Received(1, "dispatch", say.Finished(4, 1, 0, 5, 0, 0)), Finished(1, "dispatch")]
    assert script.prepared == [ready(2)]
    first, second = ready(2).starts
    assert script.sent[1:] == [
        (0, 0, RolloutRequest(request_of(4, 0), 0, first)),
        (1, 1, RolloutRequest(request_of(4, 1), 0, first)),
        (1, 2, RolloutRequest(request_of(5, 0), 0, second)),
    ]


def test_a_preparation_goes_on_elsewhere_where_its_generator_is_lost() -> None:
    script = Scripted(starts=Starts(groups=2))
    follow = script.opened(dispatch(0), dispatch(0, seat=1, worker=1))
    script.reports.append(WorkerLost(0, "killed", ((-1, Prepare(0, 0)),)))
    assert taken(follow, 2) == [Received(DRIVER, "", say.Lost(0)), Finished(0, "dispatch")]
    assert script.sent == [(0, -1, Prepare(0, 0)), (1, -1, Prepare(0, 0))]
    script.reports.extend([WorkerAnswer(1, -1, ready(7)), WorkerAnswer(1, -1, ready(0))])  # the first is of another one
    script.reports.append(WorkerAnswer(1, 1, sample_of(request_of(0, 1))))
    assert taken(follow, 2) == [Received(1, "dispatch", say.Finished(0, 1, 0, 5, 0, 0)), Finished(1, "dispatch")]
    assert [payload for _, _, payload in script.sent[2:]] == [
        Prepare(0, 0),
        RolloutRequest(request_of(0, 1), 0, ready(0).starts[0]),
    ]
    assert script.prepared == [ready(0)]


def test_what_waits_for_a_start_can_be_given_up() -> None:
    script = Scripted(starts=Starts(groups=2))
    follow = script.opened(dispatch(0), dispatch(0, seat=1), say.Abort(0, 1, 0, 0))
    assert taken(follow, 2) == [Finished(1, "dispatch"), Finished(2, "abort")]
    script.reports.append(WorkerAnswer(0, -1, ready(0)))
    script.reports.append(WorkerAnswer(0, 0, sample_of(request_of(0, 0))))
    assert taken(follow, 1) == [Received(0, "dispatch", say.Finished(0, 0, 0, 5, 0, 0))]
    assert len(script.sent) == 2


# --- with generators ---


@pytest.mark.slow  # generators import torch
def test_it_is_trained_with_generators_replayed_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    more = ["--mode", "async", "--no-compare", "--generators", "2", "--steps", "6", "--eval-every-n-versions", "3"]
    assert main.main(["train", REFERENCE, *WORDS, *more, "--run", str(run)]) == 0
    assert main.main(["replay", str(run)]) == 0
    assert "bit for bit" in capsys.readouterr().out
    rows = read_metrics(run / "async" / "metrics.jsonl")
    assert sum(row["states"] for row in rows if row["states"] == row["states"]) >= 6
    assert [row["evaluation_reward"] >= 0.0 for row in rows] == [False, False, True, False, False, True]
    entries = read_stream(run / "async" / "rollouts.jsonl").entries
    taken_from = {
        group
        for line in (run / "async" / "ledger.jsonl").read_text().splitlines()
        for group, *_ in json.loads(line)["samples"]
    }
    assert {entry.number for entry in entries} >= set(range(len(taken_from)))
    requests = {one.group for prompt in range(18) for one in prompt_requests(tiny(), keys.key(0), prompt)}
    assert len(requests) == 18


def test_a_generator_without_a_preparation_refuses_one() -> None:
    from purestep.runtime.async_rl.rollout_worker import RolloutWorker

    at = RolloutWorker((), tiny(), text_components(tiny()), (), (), (), NONE, (), waiting=deque())  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="generator: task 3 is a preparation"):
        at.prepare(3, 0)
