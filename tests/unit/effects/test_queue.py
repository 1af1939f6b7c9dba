"""Queues and replays in use: threads that wait, time that runs out, files, and what a checkpoint takes along."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.record import record, tensor
from purestep.runtime.effects import bounded_queue
from purestep.runtime.effects.bounded_queue import Queue, Snapshot, queue, restore_queue
from purestep.runtime.effects.replay_buffer import (
    BufferState,
    ReplayBuffer,
    add_samples,
    draw,
    empty_buffer,
    replay_buffer,
)

Compiled = Callable[..., Callable[..., Any]]


def started(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()
    return thread, given


# --- the queue ---


def test_many_threads_lose_nothing_and_take_nothing_twice() -> None:
    samples, made, threads, taken = queue(3), 40, [], list[Any]()

    def produce(who: int) -> None:
        for number in range(made):
            assert samples.put((who, number), 0, 20.0) == "accepted"

    def consume() -> None:
        while batch := samples.take(2, 20.0):
            taken.extend(batch)

    producers = [threading.Thread(target=produce, args=(who,)) for who in range(3)]
    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in (*producers, *threads):
        thread.start()
    for thread in producers:
        thread.join(30.0)
    samples.close()
    for thread in threads:
        thread.join(30.0)
    assert sorted(taken) == [(who, number) for who in range(3) for number in range(made)]
    state = samples.state()
    assert (state.accepted, state.taken, state.refused, state.expired) == (3 * made, 3 * made, 0, 0)


def test_one_producers_samples_come_in_order() -> None:
    samples = queue(2)
    thread, taken = started(lambda: [samples.take(1, 5.0)[0] for _ in range(10)])
    assert [samples.put(number, 0, 5.0) for number in range(10)] == ["accepted"] * 10
    thread.join(5.0)
    assert taken == [list(range(10))]


def test_time_runs_out_on_both_sides() -> None:
    samples = queue(1)
    start = time.monotonic()
    assert samples.take(1, 0.05) == ()
    assert samples.put("a", 0, 0.0) == "accepted"
    assert samples.put("b", 0, 0.05) == "full"
    assert 0.1 <= time.monotonic() - start < 5.0
    assert samples.take(1, 0.0) == ("a",)
    assert samples.take(1, 0.0) == ()  # "b" was refused and is nowhere


def test_closing_wakes_everybody_and_leaves_what_is_there() -> None:
    samples = queue(2)
    taker, taken = started(lambda: samples.take(2, 20.0))
    assert samples.put("a", 0, 0.0) == "accepted"
    samples.close()
    taker.join(10.0)
    assert taken == [("a",)]
    assert samples.put("b", 0, 10.0) == "closed"
    assert samples.take(2, 10.0) == ()
    full = queue(1)
    full.put("a", 0, 0.0)
    putter, told = started(lambda: full.put("b", 0, 20.0))
    full.close()
    putter.join(10.0)
    assert told == ["closed"]
    assert full.take(1, 10.0) == ("a",)


def test_what_gets_too_old_is_given_back_once() -> None:
    samples = queue(4, max_lag=1)
    for version in (0, 1, 2):
        assert samples.put(f"of {version}", version, 0.0) == "accepted"
    assert samples.advance(1) == ()
    assert samples.advance(3) == ("of 0", "of 1")
    assert samples.advance(2) == ()
    assert samples.put("late", 1, 0.0) == "old"
    assert samples.take(1, 0.0) == ("of 2",)
    state = samples.state()
    assert (state.version, state.accepted, state.expired, state.refused) == (3, 3, 2, 1)


def test_what_could_never_be_served_is_refused_at_once() -> None:
    samples = queue(2)
    for count in (0, 3):
        with pytest.raises(ChoiceError, match=f"count to take is {count}, wanted 1 to the capacity 2"):
            samples.take(count, 60.0)
    with pytest.raises(ChoiceError, match="capacity is 0"):
        queue(0)
    with pytest.raises(ChoiceError, match="max_lag is -1"):
        queue(1, max_lag=-1)
    assert samples.put("a", 0, 0.0) == "accepted"  # a refusal leaves nobody waiting


def test_a_snapshot_goes_on_as_the_queue_would_have() -> None:
    def fed(samples: Queue) -> list[Any]:
        put = [samples.put(name, version, 0.0) for name, version in (("c", 2), ("d", 2), ("e", 2))]
        return [put, samples.advance(2), samples.take(2, 0.0), samples.put("f", 2, 0.0), samples.state()]

    samples = queue(3, max_lag=1)
    samples.put("a", 0, 0.0)
    samples.put("b", 1, 0.0)
    snapshot = samples.snapshot()
    assert fed(restore_queue(snapshot)) == fed(samples)
    with pytest.raises(StructureError, match="tickets of the samples"):
        restore_queue(Snapshot(snapshot.line, {}))


def test_a_thread_that_gave_up_waiting_is_not_served_later() -> None:
    samples = queue(2)
    waiting, given = started(lambda: samples.take(2, 0.2))
    samples.put("a", 0, 0.0)
    waiting.join(10.0)
    assert given == [()]
    samples.put("b", 0, 0.0)
    assert samples.take(2, 0.0) == ("a", "b")


class Interrupted(float):
    """Seconds; when they begin to be waited for, something happens and Ctrl-C is pressed."""

    def __new__(cls, happens: Callable[[], Any] = tuple) -> "Interrupted":
        made = super().__new__(cls, 5.0)
        made.happens = happens
        return made

    happens: Callable[[], Any]

    def __radd__(self, other: float) -> float:
        self.happens()
        raise KeyboardInterrupt


def test_a_wait_without_end_is_no_error() -> None:
    samples = queue(1)
    waiting, given = started(lambda: samples.take(1, float("inf")))
    assert samples.put("a", 0, float("inf")) == "accepted"
    waiting.join(10.0)
    assert samples.put("b", 0, 1e300) == "accepted"
    assert (given, samples.take(1, float("inf"))) == ([("a",)], ("b",))


def test_ctrl_c_leaves_nobody_waiting() -> None:
    samples, main = queue(1), threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        samples.take(1, 60.0)
    assert samples.put("a", 0, 0.0) == "accepted"
    with pytest.raises(KeyboardInterrupt):
        samples.put("b", 0, Interrupted())
    assert samples.take(1, 0.0) == ("a",)
    assert samples.take(1, 0.0) == ()  # "b" is not in the queue
    state = samples.state()
    assert (state.accepted, state.taken, state.refused) == (1, 1, 1)


def test_what_an_interrupted_take_was_given_is_in_its_place() -> None:
    samples, taken = queue(3), list[Any]()
    for name in "abc":
        samples.put(name, 0, 0.0)
    with pytest.raises(KeyboardInterrupt):
        samples.take(2, Interrupted(lambda: taken.extend([samples.put("d", 0, 0.0), *samples.take(1, 0.0)])))
    assert taken == ["accepted", "c"]
    assert (samples.state().taken, samples.state().accepted) == (1, 4)
    waiting = samples.snapshot()
    assert samples.take(3, 0.0) == restore_queue(waiting).take(3, 0.0) == ("a", "b", "d")
    assert samples.take(1, 0.0) == ()


def test_what_comes_back_too_old_is_told_by_the_next_advance() -> None:
    samples = queue(2, max_lag=0)
    samples.put("a", 0, 0.0)
    with pytest.raises(KeyboardInterrupt):
        samples.take(1, Interrupted(lambda: samples.advance(1)))
    assert samples.take(1, 0.0) == ()
    assert (samples.advance(1), samples.advance(1)) == (("a",), ())
    assert (samples.state().accepted, samples.state().taken, samples.state().expired) == (1, 0, 1)


def test_the_rules_are_values() -> None:
    state = bounded_queue.empty_queue(1)
    bounded_queue.queue_step(state, bounded_queue.Put(1, bounded_queue.QueuedSample(1, 0)))
    assert state == bounded_queue.empty_queue(1)


# --- the replay ---


@record
class Step:
    """A sample."""

    observation: Tensor = tensor("* D", "float")
    action: Tensor = tensor("*", "int")


LIKE = Step(observation=torch.zeros(2), action=torch.tensor(0))


def steps(*numbers: int) -> Step:
    value = torch.tensor(numbers)
    return Step(observation=torch.stack([value, -value], -1).float(), action=value)


def filled(folder: Path | None = None, **limits: Any) -> ReplayBuffer:
    kept = replay_buffer(LIKE, 4, folder=folder, **limits)
    kept.add(steps(1, 2, 3), torch.tensor([0, 1, 2]))
    return kept


@pytest.mark.parametrize("on_disk", [False, True])
def test_samples_come_back_whole_with_their_versions(on_disk: bool, tmp_path: Path) -> None:
    kept = filled(tmp_path if on_disk else None)
    samples, versions = kept.draw(keys.key(0), 3, 2)
    assert torch.equal(samples.observation[:, 0], samples.action.float())
    assert torch.equal(samples.action, versions + 1)
    assert sorted(samples.action.tolist()) == [1, 2, 3]
    assert bool(list(tmp_path.iterdir())) == on_disk
    samples.action.zero_()  # a copy: what is kept stays
    assert sorted(kept.draw(keys.key(1), 3, 2)[0].action.tolist()) == [1, 2, 3]


def test_a_draw_is_its_keys_and_nothing_else() -> None:
    first, again, other = (filled().draw(keys.key(seed), 2, 2)[0].action.tolist() for seed in (0, 0, 5))
    assert first == again
    assert first != other


def test_samples_are_consumed_or_get_too_old() -> None:
    kept = filled(uses=1, max_age=1)
    assert (kept.size(2), kept.size(3), kept.size(9)) == (2, 1, 0)
    assert sorted(kept.draw(keys.key(0), 2, 2)[0].action.tolist()) == [2, 3]
    assert kept.draw(keys.key(1), 1, 2) == ()
    shelf, _ = kept.state()
    assert (int(shelf.consumed), int(shelf.expired), int(shelf.added)) == (2, 1, 3)


def test_the_oldest_are_overwritten() -> None:
    kept = filled()
    kept.add(steps(4, 5, 6), torch.tensor([3, 3, 3]))
    assert sorted(kept.draw(keys.key(0), 4, 3)[0].action.tolist()) == [3, 4, 5, 6]


def test_a_replay_is_restored_with_all_it_holds() -> None:
    kept, other = filled(uses=2), replay_buffer(LIKE, 4, uses=2)
    kept.draw(keys.key(0), 2, 2)
    other.restore(*kept.state())
    for seed in range(1, 4):
        a, b = (one.draw(keys.key(seed), 1, 2) for one in (kept, other))
        assert (a == b == ()) or torch.equal(a[0].action, b[0].action)
    for one, two in zip(vars(kept.state()[0]).values(), vars(other.state()[0]).values(), strict=True):
        assert torch.equal(one, two)


def test_samples_of_another_shape_are_refused() -> None:
    kept = filled()
    wrong = Step(observation=torch.zeros(1, 3), action=torch.zeros(1, dtype=torch.int64))
    with pytest.raises(StructureError, match=r"observation is \[3\] torch.float32, wanted \[2\]"):
        kept.add(wrong, torch.tensor([0]))
    with pytest.raises(ShapeError):
        kept.add(steps(1, 2), torch.tensor([0]))
    with pytest.raises(ChoiceError, match="samples is 5, wanted at most 4"):
        kept.add(steps(1, 2, 3, 4, 5), torch.zeros(5, dtype=torch.int64))
    assert sorted(kept.draw(keys.key(0), 3, 2)[0].action.tolist()) == [1, 2, 3]


@pytest.mark.parametrize(("limits", "says"), [({"uses": 0}, "uses is 0"), ({"max_age": -1}, "max_age is -1")])
def test_limits_without_sense_are_refused(limits: dict[str, int], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        replay_buffer(LIKE, 4, **limits)  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="count is 5, wanted 1 to the capacity 4"):
        draw(empty_buffer(4), 0, keys.key(0), 5)
    with pytest.raises(ChoiceError, match="capacity is 0"):
        empty_buffer(0)


def test_threads_that_share_a_replay_count_each_sample_once() -> None:
    kept, drawn = replay_buffer(LIKE, 64, uses=1), list[int]()

    def fill(who: int) -> None:
        for number in range(16):
            kept.add(steps(100 * who + number), torch.tensor([0]))

    def drain(who: int) -> None:
        for seed in range(60):
            found = kept.draw(keys.fold_in(keys.key(who), seed), 1, 0)
            drawn.extend(found[0].action.tolist() if found else [])

    threads = [threading.Thread(target=work, args=(who,)) for who in (1, 2) for work in (fill, drain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(set(drawn)) == len(drawn) == int(kept.state()[0].consumed)
    assert len(drawn) + kept.size(0) == 32


def test_drawing_and_adding_compile_as_one_graph(compiled: Compiled) -> None:
    def turn(shelf: BufferState, key: Tensor) -> Any:
        after, places, enough = draw(shelf, 2, key, 2, max_age=3, uses=2)
        return add_samples(after, torch.tensor([2]))[0], places, enough

    shelf, _ = add_samples(empty_buffer(4), torch.tensor([0, 1, 2]))
    whole = compiled(turn)
    for seed in range(3):
        (got, *drew), (wanted, *wanted_drew) = whole(shelf, keys.key(seed)), turn(shelf, keys.key(seed))
        assert all(torch.equal(a, b) for a, b in zip(drew, wanted_drew, strict=True))
        assert torch.equal(got.held, wanted.held)
        shelf = wanted
