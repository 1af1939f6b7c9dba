"""Segment-wise PPO's layer: its laws, its published tables, bad input, and real threads."""

import queue
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
import torch
from attrs import frozen
from tensordict import TensorDict

from purestep.core import keys
from purestep.core.errors import ChoiceError, StructureError
from purestep.properties import check
from purestep.runtime.effects import segment_wise
from purestep.runtime.effects.segment_wise.containers import everything, remove_items
from purestep.runtime.effects.segment_wise.executor import run_in_thread

from ...laws.segment_wise.segment_wise import segment_wise_laws
from ...laws.segment_wise.segment_wise_part import segment_wise_part_laws
from ...laws.segment_wise.segment_wise_world import Engine, Log, own_segment_wise

test_laws = check(segment_wise_laws(), own_segment_wise())
test_laws_of_parts = check(segment_wise_part_laws(), own_segment_wise())

PAGE = (Path(__file__).parents[3] / "docs" / "segment_wise.md").read_text()
ON = segment_wise.InferenceEngineConfig(max_concurrent_rollouts=4, consumer_batch_size=2, max_head_offpolicyness=1)
OFF = replace(ON, enable_segment_wise_ppo=False)


def made(number: int, *versions: int) -> dict[str, Any]:
    """A sample with a prompt of one token."""
    proximal = [-1.0] * len(versions)
    return {"input_ids": [number, *versions], "output_version": list(versions), "proximal_logprobs_t": proximal}


def columns(*versions: int, **more: Any) -> TensorDict:
    """A TensorDict with a prompt of one token; `more` columns are set, or left out where None."""
    version = torch.tensor([[-1, *versions]])
    mask = version >= 0
    ids, proximal = torch.arange(len(versions) + 1)[None], torch.where(mask, -1.0, 0.0)
    found = {"input_ids": ids, "loss_mask": mask, "versions": version, "proximal_logprobs_t": proximal, **more}
    return TensorDict({name: value for name, value in found.items() if value is not None}, batch_size=[1])


def executor_of(
    config: segment_wise.InferenceEngineConfig = ON, *, start: Callable[..., object] = lambda job: job(), **parts: Any
) -> tuple[segment_wise.WorkflowExecutor, Engine, Log]:
    """An executor whose rollouts run where they are begun, with some parts replaced."""
    engine, log = Engine(0), Log()
    manager = segment_wise.create_staleness_manager(config)
    executor = segment_wise.create_workflow_executor(engine, manager, config, log, start=start)
    for name, part in parts.items():
        setattr(executor, name, part)
    return executor, engine, log


def fresh(engine: Any, number: int) -> dict[str, Any]:
    return made(number, engine.get_version())


# --- the published tables ---


def test_the_example_of_the_published_interface() -> None:
    engine = Mock()
    engine.get_version.return_value = 5
    engine.recompute_output_logprobs_sync.return_value = [0.1, 0.2]
    trajectory = {"input_ids": [1, 2, 3, 4, 5], "output_version": [4, 4], "proximal_logprobs_t": [0.9, 0.8]}
    segment_wise.ProximalRecomputer(engine, Mock()).recompute_for_sample(trajectory, prompt_len=3)
    assert trajectory["proximal_logprobs_t"] == [0.1, 0.2]
    engine.recompute_output_logprobs_sync.assert_called_once_with(input_ids=[1, 2, 3, 4, 5], start_index=3)


@pytest.mark.parametrize("versions", [[5, 5], [3, 3], [], [4, 5]])
def test_samples_of_other_versions_are_left_alone(versions: list[int]) -> None:
    """The newest token counts: v, v - 2, none at all, and v - 1 that went on with v."""
    engine = Engine(5, lambda: pytest.fail("the engine was asked"))
    before = made(1, *versions)
    trajectory = made(1, *versions)
    segment_wise.ProximalRecomputer(engine, Log()).recompute_batch([trajectory], prompt_len=1)
    assert trajectory == before


@pytest.mark.parametrize(
    ("version", "current", "stale"),
    [
        (5, 5, False),
        (4, 5, False),
        (3, 5, True),
        (2, 5, True),
        (9, 10, False),
        (8, 10, True),
        (0, 1, False),
        (0, 2, True),
    ],
)
def test_the_table_of_staleness(version: int, current: int, stale: bool) -> None:
    for sample in (made(1, version, version), columns(version, version)):
        assert segment_wise.SegmentWisePPOStrategy(ON).is_sample_too_stale(sample, current, ON) is stale
        assert segment_wise.StandardPPOStrategy(ON).is_sample_too_stale(sample, current, ON) is False


def test_the_strategies_filter_as_published() -> None:
    assert segment_wise.SegmentWisePPOStrategy(ON).should_filter_before_enqueue() is True
    assert segment_wise.StandardPPOStrategy(ON).should_filter_before_enqueue() is False
    with pytest.raises(TypeError, match="abstract"):
        segment_wise.StalenessControlStrategy(ON)  # type: ignore[abstract]


@pytest.mark.parametrize(
    "sample",
    [
        {},
        {"output_version": "new"},
        {"output_version": [0.5]},
        made(1),
        columns(0, versions=None),
        columns(0, loss_mask=None),
        columns(0, versions=torch.zeros(1, 2)),
        columns(0, versions=torch.zeros(1, 3, dtype=torch.int64)),
        columns(-1, -1),
    ],
    ids=str,
)
def test_what_says_no_versions_is_kept(sample: Any) -> None:
    assert segment_wise.SegmentWisePPOStrategy(ON).is_sample_too_stale(sample, 9, ON) is False


def test_factories_follow_the_switch() -> None:
    engine, log = Engine(0), Log()
    assert type(segment_wise.create_staleness_strategy(ON)) is segment_wise.SegmentWisePPOStrategy
    assert type(segment_wise.create_staleness_strategy(OFF)) is segment_wise.StandardPPOStrategy
    assert type(segment_wise.create_proximal_recomputer(engine, log, ON)) is segment_wise.ProximalRecomputer
    assert segment_wise.create_proximal_recomputer(engine, log, OFF) is None
    assert type(segment_wise.create_filtered_capacity_modifier(ON)) is segment_wise.FilteredSamplesCapacityModifier
    assert segment_wise.create_filtered_capacity_modifier(OFF) is None
    executor, _, _ = executor_of(OFF)
    assert (executor.recomputer, executor.modifier) == (None, None)


def test_registering_none_changes_nothing_and_twice_is_once() -> None:
    manager = segment_wise.create_staleness_manager(ON)
    segment_wise.register_capacity_modifiers(manager, None)
    assert manager.get_capacity(0) == 4
    modifier = segment_wise.FilteredSamplesCapacityModifier()
    modifier.on_samples_filtered(5)
    segment_wise.register_capacity_modifiers(manager, modifier)
    segment_wise.register_capacity_modifiers(manager, modifier)
    assert manager.get_capacity(0) == 9  # as published: above the concurrency of 4
    with pytest.raises(StructureError, match="capacity modifier is int, wanted modify_capacity"):
        manager.register_capacity_modifier(5)  # type: ignore[arg-type]


def test_the_executor_clamps_and_the_queue_has_room() -> None:
    executor, _, _ = executor_of()
    assert executor.modifier is not None
    executor.modifier.on_samples_filtered(50)
    assert (executor.manager.get_capacity(0), executor.get_capacity()) == (54, 4)
    executor, _, _ = executor_of(replace(ON, queue_size=1))
    assert executor.get_capacity() == 1


# --- recomputing ---


def test_only_tokens_of_the_version_before_are_recomputed() -> None:
    engine, log = Engine(3), Log()
    sample, plain = columns(1, 2, 3), made(0, 1, 2, 3)
    cache, waiting = segment_wise.LocalRolloutCache(), segment_wise.LocalRolloutQueue(4)
    cache.add(sample)
    waiting.put(plain)
    waiting.put(columns(3))
    segment_wise.ProximalRecomputer(engine, log).recompute_all(waiting, cache)
    assert sample["proximal_logprobs_t"].tolist() == [[0.0, -1.0, -3.125, -1.0]]
    assert plain["proximal_logprobs_t"] == [-1.0, -3.125, -1.0]
    assert (sample["_recompute_version"].tolist(), plain["_recompute_version"]) == ([3], 3)
    assert waiting.get_nowait() is plain
    assert "_recompute_version" not in waiting.get_nowait()
    assert log.warnings == []


def test_rows_and_padding() -> None:
    """The engine sees no padding, and each answer comes back to its own place."""
    asked: list[tuple[list[int], int]] = []

    class Asked(Engine):
        def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
            asked.append((input_ids, start_index))
            return [float(-token) for token in input_ids[start_index:]]

    sample = TensorDict(
        {
            "input_ids": torch.tensor([[10, 11, 12, 13, 0], [0, 20, 21, 22, 23], [30, 31, 32, 33, 34]]),
            "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]),
            "loss_mask": torch.tensor([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]),
            "versions": torch.tensor([[-1, 0, -1, 0, 0], [-1, -1, -1, 0, 1], [-1, -1, -1, -1, 1]]),
            "proximal_logprobs_t": torch.zeros(3, 5),
        },
        batch_size=[3],
    )
    segment_wise.ProximalRecomputer(Asked(1), Log()).recompute_samples([sample])
    assert asked == [([10, 11, 12, 13], 1), ([20, 21, 22, 23], 2)]
    wanted = [[0.0, -11.0, 0.0, -13.0, 0.0], [0.0, 0.0, 0.0, -22.0, 0.0], [0.0] * 5]
    assert sample["proximal_logprobs_t"].tolist() == wanted
    assert sample["_recompute_version"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("answer", [[-1.0], [-1.0, -2.0, -3.0], [-1.0, float("nan")], None, ["a", "b"], -1.0])
def test_an_engine_that_answers_garbage_changes_nothing(answer: Any) -> None:
    class Garbage(Engine):
        def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
            found: list[float] = answer
            return found

    log = Log()
    plain, sample = made(1, 0, 0), columns(0, 0)
    recomputer = segment_wise.ProximalRecomputer(Garbage(1), log)
    recomputer.recompute_samples([plain, sample])
    recomputer.recompute_for_sample(plain, 1)
    assert plain == made(1, 0, 0)
    assert "_recompute_version" not in sample
    assert torch.equal(sample["proximal_logprobs_t"], columns(0, 0)["proximal_logprobs_t"])
    assert len(log.warnings) == 3
    assert "wanted 2 finite numbers" in log.warnings[0]


@pytest.mark.parametrize(
    "sample",
    [
        {},
        {**made(1, 0), "proximal_logprobs_t": [-1.0, -1.0]},
        {**made(1, 0), "input_ids": []},
        {**made(1, 0), "output_version": None},
        columns(0, input_ids=None),
        columns(0, proximal_logprobs_t=None),
        columns(0, proximal_logprobs_t=torch.zeros(1, 3)),
        columns(0, versions=torch.zeros(1, 3, dtype=torch.int64)),
        7,
    ],
    ids=str,
)
def test_samples_that_lack_something_are_named_and_left(sample: Any) -> None:
    log, good = Log(), made(1, 0)
    segment_wise.ProximalRecomputer(Engine(1), log).recompute_samples([sample, good])
    assert len(log.warnings) == 1
    assert good["proximal_logprobs_t"] == [-1.0625]


def test_a_batch_of_samples_of_several_ages_can_be_put_together() -> None:
    executor, engine, _ = executor_of()
    for number, versions in enumerate(((0, 0), (1, 1))):
        engine.version = number
        executor.submit(versions, lambda engine, data: columns(*data))
    batch: Any = torch.cat(executor.wait(2, 1.0))
    assert batch["_recompute_version"].tolist() == [1, -1]
    assert batch["proximal_logprobs_t"].tolist() == [[0.0, -1.0625, -1.125], [0.0, -1.0, -1.0]]


LOCKS: dict[str, Callable[[TensorDict], Any]] = {
    "locked": lambda sample: sample.lock_(),
    "shared": lambda sample: sample.share_memory_(),
    "mapped": lambda sample: sample.memmap_(),
}


@pytest.mark.parametrize("lock", LOCKS)
def test_samples_that_are_locked_are_recomputed_and_taken(lock: str) -> None:
    executor, engine, log = executor_of()
    for versions in ((0, 0), (0, 1)):
        executor.submit(
            versions, lambda engine, data: LOCKS[lock](columns(*data)), lambda sample: bool(sample.is_locked)
        )
    with executor.updating():  # nothing is one version old yet
        pass
    engine.version = 1
    batch: Any = torch.cat(executor.wait(2, 1.0))
    assert batch["_recompute_version"].tolist() == [1, 1]
    assert batch["proximal_logprobs_t"].tolist() == [[0.0, -1.0625, -1.125], [0.0, -1.0625, -1.0]]
    assert log.warnings == []
    executor.submit((1,), lambda engine, data: LOCKS[lock](columns(*data)))
    (fresh_one,) = executor.wait(1, 1.0)
    assert fresh_one["_recompute_version"].tolist() == [-1]
    assert executor.account().consumed == 3


def test_a_prompt_of_another_length_is_named() -> None:
    log, sample = Log(), made(1, 0)
    segment_wise.ProximalRecomputer(Engine(1), log).recompute_for_sample(sample, prompt_len=2)
    assert sample == made(1, 0)
    assert "0 tokens after the prompt, wanted 1" in log.warnings[0]


def test_an_engine_that_raises_is_no_end() -> None:
    class Down(Engine):
        def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
            raise ConnectionError("no answer")

    executor, _, log = executor_of()
    executor.recomputer = segment_wise.ProximalRecomputer(Down(1), log)
    executor.submit(1, fresh)
    executor.submit(2, fresh)
    with executor.updating():
        pass
    assert len(executor.wait(2, 1.0)) == 2
    assert "ConnectionError" in log.warnings[0]


# --- queue and cache ---


def test_a_full_queue_and_an_empty_one_say_so_in_time() -> None:
    waiting = segment_wise.LocalRolloutQueue(1)
    with pytest.raises(queue.Empty):
        waiting.get(timeout=0.01)
    waiting.put("a")
    with pytest.raises(queue.Full):
        waiting.put("b", timeout=0.01)
    with pytest.raises(queue.Full):
        waiting.put_nowait("b")
    assert (waiting.get_nowait(), waiting.empty()) == ("a", True)
    with pytest.raises(queue.Empty):
        waiting.get_nowait()
    with pytest.raises(ChoiceError, match="maxsize is 0"):
        segment_wise.LocalRolloutQueue(0)
    with pytest.raises(ChoiceError, match="n is -1"):
        segment_wise.LocalRolloutCache().take_first_n(-1)


def test_whoever_waits_for_room_gets_it_and_nobody_comes_between_while_it_is_held() -> None:
    waiting = segment_wise.LocalRolloutQueue(2)
    waiting.put("a")
    waiting.put("b")
    threads = [threading.Thread(target=waiting.put, args=(item, 20.0), daemon=True) for item in "cd"]
    for thread in threads:
        thread.start()
    with waiting.held():
        for _ in range(20):
            assert everything(waiting) == ["a", "b"]  # there is room in between, and nobody takes it
    assert [waiting.get(20.0) for _ in range(2)] == ["a", "b"]
    assert sorted(waiting.get(20.0) for _ in range(2)) == ["c", "d"]
    for thread in threads:
        thread.join(20.0)


class Crowded(segment_wise.LocalRolloutQueue):
    """A queue that cannot be held, which somebody fills as soon as there is room."""

    def held(self) -> Any:
        return segment_wise.RolloutQueue.held(self)

    def get_nowait(self) -> Any:
        item = super().get_nowait()
        if not str(item).startswith("more"):
            self.put_nowait(f"more than {item}")
        return item


def test_what_finds_no_room_when_it_is_put_back_is_told() -> None:
    waiting, told = Crowded(3), list[int]()
    for item in ("a", "b", "c"):
        waiting.put(item)
    with pytest.raises(RuntimeError, match="room to put back is 0, wanted 1"):
        remove_items(waiting, ["c", waiting._items[0]], told.append)
    assert told == [3]  # two that were not wanted, and one for which there was no room, in one number


def test_a_purge_works_once_for_each_version_and_keeps_the_order() -> None:
    strategy, waiting, told = segment_wise.SegmentWisePPOStrategy(ON), segment_wise.LocalRolloutQueue(9), list[int]()
    for number, version in enumerate((2, 0, 2, 1, 0)):
        waiting.put(made(number, version))
    assert strategy.purge_stale_samples_from_queue(waiting, 0, -1, ON, told.append) == 0
    assert strategy.purge_stale_samples_from_queue(waiting, 2, 2, ON, told.append) == 2
    assert strategy.purge_stale_samples_from_queue(waiting, 1, 2, ON, told.append) == 2
    assert (waiting.qsize(), told) == (5, [])
    assert strategy.purge_stale_samples_from_queue(waiting, 2, 0, ON, told.append) == 2
    assert [item["input_ids"][0] for item in everything(waiting)] == [0, 2, 3]
    assert told == [2]


# --- the executor: bad input ---


@pytest.mark.parametrize("count", [0, -1, 5])
def test_a_batch_that_could_never_fill_is_refused_at_once(count: int) -> None:
    executor, _, _ = executor_of()
    with pytest.raises(ChoiceError, match=rf"count is {count}, wanted 1 to 4, \(staleness \+ 1\) batches"):
        executor.wait(count)


@pytest.mark.parametrize("place", range(3))
def test_numbers_below_zero_are_refused(place: int) -> None:
    with pytest.raises(ChoiceError, match="is -1, wanted 0 or more"):
        segment_wise.StalenessManager(*[-1 if one == place else 1 for one in range(3)])


@pytest.mark.parametrize(
    "wrong",
    [{"max_head_offpolicyness": -1}, {"queue_size": 0}, {"consumer_batch_size": 0}, {"max_concurrent_rollouts": 0}],
)
def test_configurations_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ChoiceError, match=f"InferenceEngineConfig: {name} is {value}, wanted"):
        replace(ON, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match=r"c_clip is 0\.5, wanted 1 or more"):
        segment_wise.PPOActorConfig(c_clip=0.5)


def test_counts_that_cannot_be_are_refused() -> None:
    manager = segment_wise.create_staleness_manager(ON)
    for ended in (manager.on_rollout_accepted, manager.on_rollout_rejected):
        with pytest.raises(ChoiceError, match="rollouts under way is 0, wanted 1 or more"):
            ended()
    with pytest.raises(ChoiceError, match="version is -1"):
        manager.get_capacity(-1)
    manager.on_rollout_submitted()
    with pytest.raises(ChoiceError, match="before the first"):
        manager.on_version_recovered(3)


def test_a_run_that_goes_on_begins_no_burst() -> None:
    manager = segment_wise.create_staleness_manager(replace(ON, max_concurrent_rollouts=99))
    manager.on_version_recovered(10)
    assert manager.get_capacity(10) == 4


def test_a_queue_that_somebody_else_fills_loses_nothing_in_silence() -> None:
    executor, _, log = executor_of(replace(ON, queue_size=1))
    executor.queue.put_nowait(made(99, 0))
    executor.submit(1, fresh)
    assert "somebody else filled the output queue" in log.warnings[0]
    assert executor.account() == segment_wise.Account(submitted=1, rejected=1)


def test_a_workflow_that_fails_now_and_then_is_rejected_and_named() -> None:
    executor, _, log = executor_of()

    def flaky(engine: Any, number: int) -> Any:
        if number % 2 == 0:
            raise KeyError(number)
        return fresh(engine, number)

    for number in range(4):
        executor.submit(number, flaky)
    assert [sample["input_ids"][0] for sample in executor.wait(2, 1.0)] == [1, 3]
    assert log.warnings == ["a rollout is rejected: KeyError(0)", "a rollout is rejected: KeyError(2)"]


@pytest.mark.parametrize("result", [5, "text", [made(1, 0)]])
def test_a_workflow_that_always_gives_garbage_stops_the_run(result: Any) -> None:
    executor, _, _ = executor_of(replace(ON, max_concurrent_rollouts=2))
    executor.submit(1, lambda engine, data: result)
    with pytest.raises(segment_wise.RolloutError, match=r"workflow: result is .*, wanted a TensorDict or a dict"):
        executor.submit(2, lambda engine, data: result)
    assert executor.account() == segment_wise.Account(submitted=2, rejected=2)
    executor.submit(3, fresh)  # said once, it can go on
    executor.submit(4, fresh)
    assert len(executor.wait(2, 1.0)) == 2


def test_errors_of_every_callback_come_out_of_wait() -> None:
    def go_on(executor: segment_wise.WorkflowExecutor) -> None:
        for number in range(9):
            executor.submit(number, fresh, lambda sample: sample["missing"])
        executor.wait(1, 1.0)

    def stopped(executor: segment_wise.WorkflowExecutor) -> str:
        with pytest.raises(segment_wise.RolloutError) as error:
            go_on(executor)
        balanced = executor.account()
        assert balanced.submitted == balanced.running + balanced.accepted + balanced.rejected
        assert balanced.running == 0
        return repr(error.value.__cause__)

    assert "missing" in stopped(executor_of()[0])  # should_accept
    broken = segment_wise.SegmentWisePPOStrategy(ON)
    broken.is_sample_too_stale = lambda *_: bool(1 // 0)  # type: ignore[method-assign]
    executor, _, _ = executor_of(strategy=broken)
    with pytest.raises(segment_wise.RolloutError, match="ZeroDivisionError"):
        executor.submit(1, fresh)
    executor, _, _ = executor_of()
    executor.manager.register_capacity_modifier(Mock(modify_capacity=Mock(return_value=None)))
    assert "modify_capacity is None, wanted an int" in stopped(executor)
    executor, _, _ = executor_of(start=lambda job: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
    assert "can't start new thread" in stopped(executor)


def test_a_strategy_that_fails_while_a_batch_is_taken_loses_no_sample() -> None:
    executor, _, _ = executor_of()
    executor.submit(1, fresh)
    kept = executor.strategy.filter_stale_from_cache
    executor.strategy.filter_stale_from_cache = lambda *_: int("many")  # type: ignore[method-assign]
    with pytest.raises(segment_wise.RolloutError, match=r"rollouts stopped: ValueError\(.*'many'") as error:
        executor.wait(1, 1.0)
    assert isinstance(error.value.__cause__, ValueError)
    executor.strategy.filter_stale_from_cache = kept  # type: ignore[method-assign]
    assert [sample["input_ids"][0] for sample in executor.wait(1, 1.0)] == [1]


def test_nothing_wanted_is_nothing_kept() -> None:
    executor, _, log = executor_of()
    executor.submit(1, lambda engine, data: None)
    executor.submit(2, fresh, lambda sample: False)
    executor.submit(3, fresh, lambda sample: True)
    assert executor.account() == segment_wise.Account(submitted=3, accepted=1, rejected=2, queued=1)
    assert log.warnings == []


def test_time_runs_out_and_the_samples_stay() -> None:
    executor, _, _ = executor_of()
    executor.submit(1, fresh)
    with pytest.raises(TimeoutError, match=r"no 2 samples in 0.05 s; Account\(submitted=1"):
        executor.wait(2, 0.05)
    executor.submit(2, fresh)
    assert [sample["input_ids"][0] for sample in executor.wait(2, 0.0)] == [1, 2]


def test_a_key_shuffles() -> None:
    executor, _, _ = executor_of(replace(ON, max_head_offpolicyness=3))
    for number in range(8):
        executor.submit(number, fresh)
    taken = [sample["input_ids"][0] for sample in executor.wait(8, 1.0, key=keys.key(3))]
    assert taken == keys.permutation(keys.key(3), 8).tolist() != list(range(8))


def test_pausing_closing_and_a_version_that_rises_by_itself() -> None:
    executor, engine, _ = executor_of()
    executor.pause()
    for number in range(6):
        executor.submit(number, fresh)
    assert executor.account().submitted == 0
    executor.resume()
    assert executor.account().submitted == 4  # (1 + 0 + 1) * 2
    engine.version = 1  # and nobody is told
    assert len(executor.wait(4, 5.0)) == 4
    assert executor.account().submitted == 6
    ended = list[str]()

    def wait() -> None:
        try:
            executor.wait(4)
        except segment_wise.RolloutError as error:
            ended.append(str(error))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    executor.close()
    waiter.join(20.0)
    assert not waiter.is_alive()
    assert ended == ["executor is closed, wanted open; make another one"]
    with pytest.raises(segment_wise.RolloutError, match="executor is closed"):
        executor.submit(9, fresh)


def test_what_comes_in_while_weights_change_waits_for_the_new_ones() -> None:
    jobs: list[Callable[[], None]] = []
    executor, engine, _ = executor_of(start=jobs.append)
    executor.submit(1, lambda engine, data: made(data, 0, 1))
    executor.submit(2, lambda engine, data: made(data, 0))
    engine.version = 1
    with executor.updating():
        jobs.pop(0)()
        assert executor.account().running == 2
        engine.version = 2
        jobs.pop(0)()
    assert executor.account() == segment_wise.Account(submitted=2, accepted=1, rejected=1, queued=1)


# --- the executor: threads ---


class Curious(segment_wise.CapacityModifier):
    """Lets another thread ask for everything while it is asked, and waits for it."""

    def __init__(self, executor: segment_wise.WorkflowExecutor) -> None:
        self.executor, self.answers, self.asking = executor, list[Any](), False

    def modify_capacity(self, base_capacity: int, current_version: int, stats: segment_wise.RolloutStat) -> int:
        if not self.asking:
            self.asking = True
            other = threading.Thread(target=self.ask, daemon=True)
            other.start()
            other.join(20.0)
            assert not other.is_alive()
            self.ask()
            self.asking = False
        return base_capacity

    def ask(self) -> None:
        executor = self.executor
        executor.manager.register_capacity_modifier(self)
        executor.submit(0, fresh)
        self.answers.append((executor.manager.get_stats(), executor.account(), executor.get_capacity()))


def test_a_modifier_may_ask_for_anything_from_any_thread() -> None:
    executor, _, _ = executor_of(start=run_in_thread)
    modifier = Curious(executor)
    executor.manager.register_capacity_modifier(modifier)
    executor.submit(1, fresh)
    assert len(executor.wait(2, 20.0)) == 2
    assert len(modifier.answers) >= 2


@frozen
class Watched:
    """What a thread saw that looks at the account all the time."""

    looks: list[segment_wise.Account]
    wrong: list[segment_wise.Account]


def watching(executor: segment_wise.WorkflowExecutor, ended: threading.Event) -> tuple[threading.Thread, Watched]:
    seen = Watched([], [])

    def look() -> None:
        while not ended.is_set():
            now = executor.account()
            right = now.submitted == now.running + now.accepted + now.rejected
            right = right and now.accepted == now.consumed + now.filtered + now.queued + now.cached
            right = right and now.running <= 4 and min(now.running, now.queued, now.cached, now.filtered) >= 0
            (seen.looks if right else seen.wrong).append(now)
            time.sleep(0.0002)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread, seen


def test_threads_lose_nothing_and_count_nothing_twice() -> None:
    """Rollouts of uneven length, several feeders and takers, weights that change: every sample has one fate."""
    executor, engine, log = executor_of(start=run_in_thread)
    made_, taken, told = list[int](), list[int](), list[int]()
    dice, ended = random.Random(0), threading.Event()
    naps = [dice.random() ** 4 * 0.03 for _ in range(400)]

    def workflow(engine: Any, number: int) -> Any:
        version = engine.get_version()
        time.sleep(naps[number % 400])
        made_.append(number)
        return None if number % 11 == 0 else made(number, version)

    modifier = executor.modifier
    assert modifier is not None
    tell = modifier.on_samples_filtered
    modifier.on_samples_filtered = lambda count, version=None: (told.append(count), tell(count, version))[1]  # type: ignore

    def feed(first: int) -> None:
        for number in range(first, 400, 2):
            executor.submit(number, workflow)

    def take() -> None:
        while len(taken) < 120:
            try:
                taken.extend(sample["input_ids"][0] for sample in executor.wait(2, 0.05))
            except TimeoutError:
                continue
            except segment_wise.RolloutError:
                return

    watcher, seen = watching(executor, ended)
    threads = [threading.Thread(target=feed, args=(first,), daemon=True) for first in (0, 1)]
    threads += [threading.Thread(target=take, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60.0
    while len(taken) < 120 and time.monotonic() < end:
        time.sleep(0.004)
        with executor.updating():
            engine.version = 1 + len(taken) // 2
    for thread in threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in threads)
    executor.submit(400, workflow)  # and a sample that certainly waits until it is too old
    while not (executor.account().queued or executor.account().cached) and time.monotonic() < end:
        time.sleep(0.01)
    with executor.updating():
        engine.version += 5
    executor.close()
    while executor.account().running and time.monotonic() < end:
        time.sleep(0.01)
    ended.set()
    watcher.join(20.0)
    assert not seen.wrong
    assert seen.looks
    now = executor.account()
    assert len(taken) == len(set(taken)) == now.consumed
    assert now.submitted == len(made_)
    assert (now.running, now.filtered) == (0, sum(told))
    assert (now.queued, now.cached) == (executor.queue.qsize(), executor.cache.size())
    assert now.rejected >= sum(number % 11 == 0 for number in made_)
    assert now.filtered
    assert log.warnings == []


# --- configuration ---


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_file_and_a_command_line(written: Callable[[str], str]) -> None:
    text = "experiment_name: a\nrollout:\n  queue_size: 3\n  max_concurrent_rollouts: null\nactor:\n  eps_clip: 1\n"
    changes = ["actor.eps_clip_higher=3e-1", "trial_name='7'", "rollout.queue_size=4", "rollout.queue_size=5"]
    config, _ = segment_wise.load_expr_config(["--config", written(text), *changes])
    assert (config.experiment_name, config.trial_name, config.rollout.queue_size) == ("a", "7", 5)
    assert (config.actor.eps_clip, config.actor.eps_clip_higher) == (1.0, 0.3)
    assert segment_wise.load_expr_config(["--config", written("")])[0] == segment_wise.BaseExperimentConfig()


@dataclass
class Mine:
    """A configuration of one's own, without a part for the loss."""

    steps: int
    enable_segment_wise_ppo: bool = True
    rollout: segment_wise.InferenceEngineConfig = field(default_factory=segment_wise.InferenceEngineConfig)
    evaluation: segment_wise.InferenceEngineConfig | None = None


@frozen
class Attrs:
    """The same as an attrs class, whose values cannot be changed."""

    steps: int
    enable_segment_wise_ppo: bool = True
    rollout: segment_wise.InferenceEngineConfig = attrs.field(factory=segment_wise.InferenceEngineConfig)
    evaluation: segment_wise.InferenceEngineConfig | None = None


@pytest.mark.parametrize("kind", [Mine, Attrs])
def test_a_configuration_of_ones_own(written: Callable[[str], str], kind: type[Mine]) -> None:
    text = "steps: 3\nevaluation: {queue_size: 2}\n"
    config, _ = segment_wise.load_expr_config(["--config", written(text), "enable_segment_wise_ppo=off"], kind)
    assert (config.steps, config.rollout.enable_segment_wise_ppo) == (3, False)
    assert config.evaluation == segment_wise.InferenceEngineConfig(queue_size=2)
    assert (
        segment_wise.load_expr_config(["--config", written("steps: 3\nevaluation:")], kind)[0].rollout
        == kind(1).rollout
    )
    with pytest.raises(ChoiceError, match="key steps is absent, wanted a value"):
        segment_wise.load_expr_config(["--config", written("")], kind)


def test_what_is_no_dataclass_is_refused(written: Callable[[str], str]) -> None:
    with pytest.raises(StructureError, match="config_class is <class 'dict'>, wanted a dataclass"):
        segment_wise.load_expr_config(["--config", written("")], dict)


def test_configurations_can_be_changed_as_published() -> None:
    config = segment_wise.BaseExperimentConfig()
    config.enable_segment_wise_ppo = False
    if hasattr(config, "rollout") and hasattr(config.rollout, "enable_segment_wise_ppo"):
        config.rollout.enable_segment_wise_ppo = config.enable_segment_wise_ppo
    assert segment_wise.create_proximal_recomputer(Engine(0), Log(), config.rollout) is None
    assert config.actor.enable_segment_wise_ppo is True


@pytest.mark.parametrize(
    ("text", "changes", "says"),
    [
        ("enable_segmentwise_ppo: true", [], "did you mean 'enable_segment_wise_ppo'"),
        ("rollout:\n  queue: 1", [], "key rollout.queue is 'queue', wanted one of"),
        ("rollout: 3", [], "rollout is 3, wanted a section"),
        ("enable_segment_wise_ppo: 'false'", [], "enable_segment_wise_ppo is 'false', wanted bool"),
        ("rollout:\n  queue_size: true", [], "rollout.queue_size is True, wanted int or null"),
        ("rollout:\n  queue_size: 1.5", [], "rollout.queue_size is 1.5, wanted int or null"),
        ("rollout:\n  max_head_offpolicyness: -1", [], "max_head_offpolicyness is -1, wanted 0 or more"),
        ("- a\n- b", [], "is list, wanted a mapping"),
        ("a: [", [], "wanted YAML; see where it stops"),
        ("", ["enable_segment_wise_ppo"], "argument is 'enable_segment_wise_ppo', wanted key=value"),
        ("", ["=1"], "argument is '=1', wanted key=value"),
        ("", ["rollout.queue_size=[1"], "rollout.queue_size= is .*, wanted YAML"),
        ("", ["experiment_name=!!python/object:os.system {}"], "wanted YAML"),
    ],
)
def test_configurations_with_mistakes_are_refused(
    written: Callable[[str], str], text: str, changes: list[str], says: str
) -> None:
    with pytest.raises((ChoiceError, StructureError), match=says) as error:
        segment_wise.load_expr_config(["--config", written(text), *changes])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arguments", [[], ["--config"], ["a=1", "--config"], ["--config", "nowhere.yaml"]])
def test_a_command_line_without_a_file_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ChoiceError, match=r"wanted --config FILE|wanted a YAML file"):
        segment_wise.load_expr_config(arguments)


# --- the page ---


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_tells_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    train, *others = blocks("python")
    lines = blocks("bash")[0].splitlines()
    names: dict[str, Any] = {}
    for line in reversed(lines):
        words = line.split()
        assert words[:2] == ["python", "train.py"]
        monkeypatch.setattr(sys, "argv", words[1:])
        names = {}
        exec(compile(train, "train.py", "exec"), names)
    for block in others:
        exec(compile(block, "segment_wise.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert said == blocks("text")[0].splitlines()[::-1]
    assert names["manager"].get_capacity(5) > names["executor"].get_capacity()
    assert torch.isfinite(names["losses"]).all()
