"""Many attempts at once: the laws of their schedule, and whole runs of it in the world."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from purestep.core.errors import ChoiceError
from purestep.core.language.reasoning_cache.events import (
    EVENT_CLASSES,
    CacheState,
    CallFailed,
    CallModel,
    Fetch,
    Fetched,
    GroupPublished,
    PublishGroup,
    Replied,
    Wait,
    Waited,
)
from purestep.core.language.reasoning_cache.machine import reasoning_cache
from purestep.core.language.reasoning_cache.report import published_rows
from purestep.core.language.reasoning_cache.rollouts import solution_rollout, summarization_rollout
from purestep.core.language.reasoning_cache.schedule import reasoning_machine
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.language.reasoning_cache.state import InferenceProblemState, Problem, Reply
from purestep.core.language.types import ModelOutput
from purestep.core.machine import Interrupted, Machine, Stop
from purestep.properties import MachineCase, check, machine_laws
from purestep.runtime.effects.jsonl_stream import read_entries, writer
from purestep.runtime.machine.drive import drive, serial

from ...laws.reasoning_cache.reasoning_schedule import reasoning_schedule_laws

PROBLEM = Problem(problem_id="7", problem_text="2 + {3}?", answer="5", dataset_name="sums")
CACHE = reasoning_cache(solution_rollout, summarization_rollout)
SETTINGS = CacheSettings(output_dir="runs/rc")

test_schedules = check(reasoning_schedule_laws(), reasoning_machine)


class Model:
    """A model that gives right texts for lists; some of its first calls fail."""

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.calls = 0

    def __call__(self, call: CallModel) -> Replied | CallFailed:
        self.calls += 1
        if self.failing:
            self.failing -= 1
            return CallFailed(attempt=call.attempt, asked=call.asked, error="429")
        text = "hm" if call.ask.turn_type == "reasoning" else "so"
        said = ModelOutput(ids=(1, 2), log_probs=(0.0, 0.0), versions=(5, 5))
        reply = Reply(cycle_step=call.ask.cycle_step, text=text, model_version=5, said=said)
        return Replied(attempt=call.attempt, asked=call.asked, reply=reply)


def handlers(model: Any, publish: Any, problems: int) -> dict[type[Any], Any]:
    def fetch(command: Fetch) -> Fetched:
        numbers = range(command.first, min(command.first + command.most, problems))
        made = tuple(evolve(PROBLEM, problem_id=str(number)) for number in numbers)
        return Fetched(first=command.first, problems=made, last=numbers.stop == problems)

    def out(command: PublishGroup) -> GroupPublished:
        publish(command.result.number, published_rows(command.result))
        return GroupPublished(number=command.result.number)

    return {
        Fetch: fetch,
        CallModel: model,
        Wait: lambda command: Waited(attempt=command.attempt, asked=command.asked),
        PublishGroup: out,
    }


def machine(**changes: Any) -> Machine[CacheState]:
    return reasoning_machine(CACHE, evolve(SETTINGS, **changes))


def ignored(number: int, rows: Any) -> None:
    """Publishes nothing."""


test_schedule_as_a_machine = check(
    machine_laws(),
    MachineCase(
        machine(attempts=2, llm_max_rollouts=3),
        CacheState(),
        lambda: handlers(Model(failing=2), ignored, 2),
        EVENT_CLASSES,
    ),
)


def test_groups_are_run_retried_and_published(tmp_path: Path) -> None:
    model = Model(failing=5)
    with writer(tmp_path / "rollouts.jsonl") as publish:
        *_, last = drive(
            machine(attempts=2, num_samples_per_problem=2), CacheState(), serial(handlers(model, publish, 3))
        )
    assert model.calls == 5 + 3 * 2 * 2 * 6
    assert (last.published, last.admitted, last.running, last.result_queue) == (6, 3, (), ())
    rows = [row for entry in read_entries(tmp_path / "rollouts.jsonl").entries for row in entry.rows]
    assert sorted((row["problem_id"], row["sample_id"], row["rollout_index"]) for row in rows) == [
        (str(p), s, a) for p in range(3) for s in range(2) for a in range(2)
    ]
    assert {json.dumps(row["training_texts"]) for row in rows if not row["rollout_index"]} == {
        json.dumps(rows[0]["training_texts"])
    }
    assert rows[0]["training_texts"][0]["said"]["ids"] == [1, 2]


def test_what_a_handler_raises_ends_the_run() -> None:
    def model(call: CallModel) -> Replied:
        raise PermissionError("wrong key")

    with pytest.raises(PermissionError, match="wrong key"):
        list(drive(machine(), CacheState(), serial(handlers(model, ignored, 1))))


def test_an_attempt_that_never_works_leaves_as_it_is() -> None:
    found: dict[int, Any] = {}
    always = reasoning_machine(CACHE, evolve(SETTINGS, max_retries=1), max_returns=1)
    model = Model(failing=99)
    list(drive(always, CacheState(), serial(handlers(model, found.__setitem__, 1))))
    assert [row["failed"] for row in found[0]] == ["429"]
    assert model.calls == 4
    assert found[0][0]["training_texts"] == ()


def test_no_problems_is_an_end_and_an_interruption_a_stop() -> None:
    assert [state.published for state in drive(machine(), CacheState(), serial(handlers(Model(0), ignored, 0)))] == [
        0,
        0,
    ]
    state = CacheState(fetching=True)
    assert machine().step(state, Interrupted()) == (state, (Stop("interrupted"),))


@pytest.mark.parametrize("number", [0, 11])
def test_problems_nobody_asked_for_are_refused(number: int) -> None:
    asking = CacheState(fetching=True)
    with pytest.raises(ChoiceError, match=f"Fetched: number of problems is {number}, wanted 1 to 10"):
        machine().step(asking, Fetched(first=0, problems=(PROBLEM,) * number))


def test_a_call_that_was_given_up_is_made_again_at_once() -> None:
    asking = CacheState(fetching=True)
    calling, commands = machine().step(asking, Fetched(first=0, problems=(PROBLEM,), last=True))
    aborted = Reply(cycle_step=0, text="hm", finish_reason="abort")
    again, (call,) = machine().step(calling, Replied(attempt=0, asked=1, reply=aborted))
    assert isinstance(call, CallModel)
    assert (call.asked, call.ask) == (2, commands[0].ask)
    assert again.running[0].state == InferenceProblemState(problem=PROBLEM)
    assert machine().step(again, Replied(attempt=0, asked=1, reply=aborted)) == (again, ())
