"""The scheduler: by hand where its answers matter most, under drawn schedules, and driven with simulated latencies."""

import importlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import evolve

from purestep.core.errors import ChoiceError
from purestep.core.machine import Command, Failed, Interrupted, Started, Stop, run
from purestep.properties import Law, check, named_profile
from purestep.properties import run as run_law
from purestep.runtime.async_rl.scheduler.events import (
    COMMANDS,
    EVENTS,
    Abort,
    Consumed,
    Dispatch,
    Due,
    Filtered,
    Finished,
    Joined,
    Lost,
    Publish,
    Published,
    Recompute,
    Recomputed,
    Report,
    Resumed,
    RetryAfter,
    Submitted,
    TimedOut,
    TokenChunk,
    Train,
)
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import CLASSES, Rules, Schedule
from purestep.runtime.machine.drive import drive
from purestep.runtime.machine.json_codec import decode, encode
from purestep.runtime.machine.replay_log import Log, from_lines, record_events, replay_events, simulated, to_lines

from ...laws.scheduler.numbered import numbered_laws, own_filing
from ...laws.scheduler.scheduler import scheduler_laws
from ...laws.scheduler.scheduler_fault import scheduler_fault_laws
from ...laws.scheduler.scheduler_moves import fair, play
from ...laws.scheduler.scheduler_mutants import forgets_filtered
from ...laws.scheduler.scheduler_world import Script, own_scheduling

test_laws = check(scheduler_laws(), own_scheduling())
test_laws_among_faults = check(scheduler_fault_laws(), own_scheduling())
test_maps_and_queues = check(numbered_laws(), own_filing())

ONE = Rules(batch=1, concurrency=4, staleness=1, updates=9)
PAIR = Rules(batch=2, group=2, concurrency=4, staleness=1, updates=9)


def told(
    rules: Rules, *events: Any, workers: int = 2, slots: int = 1, prompts: int = 9
) -> tuple[Schedule, list[Command]]:
    """The state after these events, Started first, and what was said at the last one."""
    machine, state, said = scheduler(rules), begin_schedule(rules, prompts=prompts, workers=workers, slots=slots), ()
    for event in (Started(), *events):
        state, said = machine.step(state, event)
    return state, list(said)


def done(group: int, seat: int = 0, attempt: int = 0, *, head: int = 0, tail: int = 0) -> Finished:
    return Finished(group, seat, attempt, 5, head, tail)


def test_one_update_by_hand() -> None:
    state, said = told(ONE)
    assert said == [Dispatch(0, 0, 0, prompt=0, worker=0, version=0), Dispatch(1, 0, 0, prompt=1, worker=1, version=0)]
    state, said = told(ONE, TokenChunk(0, 0, 0, 3, 0), done(0))
    assert said == [Train(0, ((0, 0, 0),), 0)]  # and no third sample: (1 + 0 + 1) 1 were let in
    state, said = told(ONE, done(0), Consumed(0))
    assert (said, state.version) == ([Publish(1)], 0)
    state, said = told(ONE, done(0), Consumed(0), Published(1))
    assert (said, state.version) == ([Dispatch(2, 0, 0, prompt=2, worker=0, version=1)], 1)
    assert (state.consumed, state.tokens_used, state.running) == (1, 5, 2)


def test_staleness_0_is_taking_turns() -> None:
    """Generators have nothing to do until the update that their samples wait for is published."""
    rules = evolve(ONE, batch=2, staleness=0)
    _, said = told(rules, done(0), done(1), workers=4)
    assert said == [Train(0, ((0, 0, 0), (1, 0, 0)), 0)]
    assert told(rules, done(0), done(1), Consumed(0), workers=4)[1] == [Publish(1)]
    said = told(rules, done(0), done(1), Consumed(0), Published(1), workers=4)[1]
    assert [one.version for one in said] == [1, 1]


@pytest.mark.parametrize(
    ("stale", "says"),
    [
        ("drop", [Abort(0, 0, 0, 0), Report("group", 0, "stale"), Train(1, ((1, 0, 0),), 0)]),
        ("requeue", [Abort(0, 0, 0, 0), Report("group", 0, "stale"), Train(1, ((1, 0, 0),), 0)]),
        ("pace", []),
    ],
)
def test_a_straggler_is_dropped_requeued_or_waited_for(stale: str, says: list[Command]) -> None:
    """Version 0 began samples 0, 1, 2 with a bound of 1; at version 1 the batch of sample 2 would leave sample 0 behind."""
    rules = evolve(ONE, stale=stale)
    first = (done(1), Consumed(0), Published(1))  # sample 1 is used; sample 2 is begun at version 1
    state, said = told(rules, *first, done(2, head=1, tail=1))
    if stale == "pace":
        assert said == []
        late = told(rules, *first, done(2, head=1, tail=1), done(0, tail=1))[1]
        assert late[0] == Train(1, ((0, 0, 0),), 0)
        return
    assert [type(one) for one in said[:3]] == [Abort, Report, Train]
    assert said[:2] == says[:2]
    assert said[2] == Train(1, ((2, 0, 0),), 1)
    assert (state.rejected, state.filtered) == (1, 0)
    again = [one.prompt for one in said if isinstance(one, Dispatch)]
    assert again == [0 if stale == "requeue" else 3]


def test_groups_are_whole_or_not_at_all() -> None:
    state, said = told(PAIR, done(0, 1), workers=4)
    assert (said, state.cached, state.queued) == ([], 1, 0)
    assert told(PAIR, done(0, 1), done(1, 0), workers=4)[1] == []  # two samples, of two groups
    assert told(PAIR, done(0, 1), done(1, 0), done(1, 1), workers=4)[1] == [Train(0, ((1, 0, 0), (1, 1, 0)), 0)]


def test_a_member_that_fails_for_good_takes_its_group_with_it_or_is_replaced() -> None:
    never = Failed(Dispatch(0, 0, 0, 0, 0, 0), "RuntimeError: no")
    state, said = told(evolve(PAIR, retries=0), done(0, 1), never, workers=4)
    assert said[:2] == [Report("sample", 0, "RuntimeError: no"), Report("group", 0, "incomplete")]
    assert (state.rejected, state.filtered, state.cached) == (1, 1, 0)
    state, said = told(evolve(PAIR, retries=0, incomplete="repair"), done(0, 1), never, workers=4)
    assert said == [Report("sample", 0, "RuntimeError: no"), Dispatch(0, 0, 1, 0, 1, 0)]
    assert (state.rejected, state.filtered, state.cached) == (1, 0, 1)


def test_retries_wait_twice_as_long_each_time_and_end() -> None:
    rules, events, pauses, said = evolve(ONE, retries=2, backoff=0.5), list[Any](), list[float](), list[Command]()
    for attempt in range(3):
        events.append(Failed(Dispatch(0, 0, attempt, 0, 0, 0), "TimeoutError: 503"))
        said = told(rules, *events, workers=4)[1]
        pauses += [one.seconds for one in said if isinstance(one, RetryAfter)]
        events += [Due(one.command) for one in said if isinstance(one, RetryAfter)]
    assert pauses == [0.5, 1.0]
    assert Report("sample", 0, "TimeoutError: 503") in said


def test_a_lost_generator_gives_its_work_to_others() -> None:
    assert told(evolve(ONE, batch=4), Lost(0), workers=2)[1] == []
    _, said = told(evolve(ONE, batch=4), Lost(0), Joined(7), workers=2)
    assert said == [Dispatch(0, 0, 1, prompt=0, worker=7, version=0)]


def test_a_trainer_that_fails_is_asked_again_and_then_raises() -> None:
    train = Train(0, ((0, 0, 0),), 0)
    failed = Failed(train, "RuntimeError: out of memory")
    rules = evolve(ONE, retries=1)
    _, said = told(rules, done(0), failed)
    assert said == [RetryAfter(train, 1.0)]
    assert told(rules, done(0), failed, Due(train))[1] == [train]
    assert told(rules, done(0), failed, Due(train), Due(train))[1] == []
    assert told(rules, done(0), failed, Due(train), failed)[1] == []  # which a driver raises


def test_a_trainer_is_asked_again_though_its_samples_have_moved() -> None:
    """Sample 2 is being recomputed when that fails, and its generator too: the list is another one, the task the same."""
    rules = Rules(batch=2, concurrency=9, staleness=2, updates=9, proximal="recompute")
    at_one = (done(6, head=1, tail=1), done(7, head=1, tail=1))
    chunks = (TokenChunk(2, 0, 0, 4, 0), TokenChunk(3, 0, 0, 4, 0))
    events = (done(0), done(1), *chunks, Consumed(0), Published(1), *at_one)
    asked = Recompute(1, ((2, 0, 0), (3, 0, 0)))
    assert told(rules, *events, workers=6)[1][0] == asked
    moved, failed = TimedOut(2, 0, 0), Failed(asked, "RuntimeError: out of memory")
    for order in ((moved, failed), (failed, moved)):
        pauses = [one for n in (1, 2) for one in told(rules, *events, *order[:n], workers=6)[1]]
        assert RetryAfter(asked, 1.0) in pauses
        assert told(rules, *events, *order, Due(asked), workers=6)[1] == [Recompute(1, ((3, 0, 0),))]


def test_a_resumed_run_has_all_its_tries() -> None:
    train = Train(0, ((0, 0, 0),), 0)
    failed, rules = Failed(train, "RuntimeError: out of memory"), evolve(ONE, retries=1)
    for again in (Started(), Resumed(2)):
        state, said = told(rules, done(0), failed, again)
        assert (said[0], state.failures) == (train, 0)
        assert told(rules, done(0), failed, again, failed)[1] == [RetryAfter(train, 1.0)]


def test_a_trainer_that_rests_is_not_believed() -> None:
    train = Train(0, ((0, 0, 0),), 0)
    failed = Failed(train, "RuntimeError: out of memory")
    state, said = told(ONE, done(0), failed, Consumed(0))
    assert (said, state.phase, state.ignored) == ([], "train", 1)
    assert told(ONE, done(0), failed, Due(train), Consumed(0))[1] == [Publish(1)]


def test_an_abort_that_fails_changes_nothing_and_ends_no_run() -> None:
    failed = Failed(Abort(0, 0, 0, 0), "LookupError: no generator 0")
    state, said = told(ONE, TimedOut(0, 0, 0), failed)
    assert (state, said) == (told(ONE, TimedOut(0, 0, 0))[0], [Report("abort", 0, "LookupError: no generator 0")])

    def gone(command: Abort) -> Iterable[Any]:
        raise LookupError(f"no generator {command.worker}")

    def late(command: Dispatch) -> Iterable[Any]:
        name = (command.group, command.seat, command.attempt)
        yield TimedOut(*name) if name == (0, 0, 0) else Finished(*name, 4, command.version, command.version)

    rules = evolve(ONE, updates=3)
    world = simulated({**handlers(), Dispatch: late, Abort: gone}, lambda number, command: 1.0)
    *_, last = drive(scheduler(rules), begin_schedule(rules, prompts=9, workers=2), world)
    assert (last.version, last.stopped) == (3, True)


def test_a_publication_that_fails_makes_no_version() -> None:
    state, said = told(ONE, done(0), Consumed(0), Failed(Publish(1), "OSError: no route"))
    assert (state.version, said) == (0, [RetryAfter(Publish(1), 1.0)])


def test_what_is_recomputed_before_an_update() -> None:
    """Tokens of version 0 at version 1, wherever they are; those that are older had theirs, those of version 1 need none."""
    rules = Rules(batch=2, concurrency=9, staleness=2, updates=9, proximal="recompute")
    chunks = (TokenChunk(2, 0, 0, 4, 0), TokenChunk(3, 0, 0, 4, 1))
    at_one = (done(6, head=1, tail=1), done(7, head=1, tail=1))
    events = (done(0), done(1), chunks[0], Consumed(0), Published(1), chunks[1], *at_one)
    assert told(rules, *events, workers=6)[1][0] == Recompute(1, ((2, 0, 0),))
    assert told(rules, *events, Recomputed(1), workers=6)[1] == [Train(1, ((6, 0, 0), (7, 0, 0)), 1)]


def test_messages_that_cannot_be_true() -> None:
    for wrong in (TokenChunk(0, 0, 0, 1, 1), TokenChunk(0, 0, 0, 1, -1), TokenChunk(0, 0, 0, 0, 0), done(0, head=-1)):
        state, said = told(ONE, wrong)
        assert said[0] == Abort(0, 0, 0, 0)
        assert isinstance(said[1], RetryAfter)
    assert told(ONE, TokenChunk(0, 0, 0, 3, 0), TokenChunk(0, 0, 0, 3, 0), done(0))[0].ignored == 1
    for late in (done(0, 0, 7), done(99), done(0, 5), TimedOut(0, 0, 3), Published(5), Consumed(3), Lost(44), Due(1)):
        state, said = told(ONE, late)
        assert (said, state.ignored) == ([], 1)
    assert (
        told(ONE, Submitted(0))[0].ignored == told(ONE, Joined(0))[0].ignored == told(ONE, Joined(5, 0))[0].ignored == 1
    )


def test_a_version_may_be_known_before_its_publication_is_told() -> None:
    assert told(ONE, done(0), Consumed(0), TokenChunk(1, 0, 0, 2, 1))[1] == []
    assert told(ONE, done(0), Consumed(0), done(1, head=1, tail=1))[0].queued == 1


def test_a_run_ends_for_one_of_three_reasons() -> None:
    assert told(evolve(ONE, updates=1), done(0), Consumed(0), Published(1))[1] == [Abort(1, 0, 0, 1), Stop("complete")]
    assert told(ONE, done(0), Consumed(0), Published(1), prompts=1)[1] == [Stop("out of prompts")]
    assert told(ONE, Interrupted())[1] == [Abort(0, 0, 0, 0), Abort(1, 0, 0, 1), Stop("interrupted")]
    assert told(ONE, Interrupted(), done(0))[0].accepted == 1
    assert told(ONE, Interrupted(), Failed(Dispatch(0, 0, 0, 0, 0, 0), "cut"))[1] == [Report("stopped", -1, "cut")]


def test_a_run_goes_on_with_other_generators() -> None:
    state, said = told(ONE, TokenChunk(0, 0, 0, 4, 0), Interrupted(), Resumed(1))
    assert said == [Dispatch(0, 0, 1, prompt=0, worker=0, version=0)]
    assert state.tokens_wasted == 4
    state, said = told(ONE, done(0), Interrupted(), Started())
    assert said == [Train(0, ((0, 0, 0),), 0), Dispatch(1, 0, 1, prompt=1, worker=0, version=0)]


def test_a_judge_may_refuse_a_group() -> None:
    rules = evolve(ONE, batch=2)
    state, said = told(rules, done(0), Filtered(0))
    assert (state.filtered, said[0]) == (1, Report("group", 0, "filtered"))
    assert told(ONE, done(0), Filtered(0))[0].ignored == 1  # it is being learned from


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"staleness": -1}, "staleness is -1, wanted 0 or more"),
        ({"batch": 0}, "batch is 0, wanted 1 or more"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"batch": 8, "room": 4}, "room is 4, wanted 8 or more; a batch could never fill"),
        ({"batch": 3, "group": 2}, "batch is 3, wanted a multiple of group, 2"),
        ({"group": 2, "batch": 2, "room": 5}, "room is 5, wanted a multiple of group"),
        ({"stale": "pce"}, "did you mean 'pace'"),
        ({"incomplete": "keep"}, "Rules: incomplete is 'keep'"),
        ({"proximal": "recomputed"}, "did you mean 'recompute'"),
        ({"retries": -1}, "retries is -1"),
        ({"backoff": float("nan")}, "backoff is nan"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused_at_once(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        Rules(**{"batch": 1, "concurrency": 1, "staleness": 0, "updates": 1, **wrong})


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"slots": 0}, {"prompts": -1}, {"version": -1}])
def test_a_beginning_that_leads_nowhere_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ChoiceError, match=next(iter(wrong))):
        begin_schedule(ONE, **{"prompts": 1, "workers": 1, **wrong})


def test_an_event_of_another_class_is_refused_by_name() -> None:
    with pytest.raises(ChoiceError, match="event is 'Train'"):
        told(ONE, Train(0, (), 0))


# --- schedules, driven and drawn ---


def handlers() -> dict[type[Any], Any]:
    """A world in which sample 2 fails at first and all else goes well."""

    def sample(command: Dispatch) -> Iterable[Any]:
        if (command.group, command.attempt) == (2, 0):
            yield TokenChunk(command.group, command.seat, command.attempt, 2, command.version)
            raise RuntimeError("no")
        name = (command.group, command.seat, command.attempt)
        yield TokenChunk(*name, 2, command.version)
        yield Finished(*name, 4, command.version, command.version)

    return {
        Dispatch: sample,
        Abort: lambda command: (),
        Report: lambda command: (),
        RetryAfter: lambda command: Due(command.command),
        Recompute: lambda command: Recomputed(command.version),
        Train: lambda command: Consumed(command.version),
        Publish: lambda command: Published(command.version),
    }


def test_a_driven_run_ends_and_its_log_is_the_run() -> None:
    rules = evolve(PAIR, batch=4, updates=6, stale="requeue", proximal="recompute")
    state, log = begin_schedule(rules, prompts=99, workers=3), list[Any]()
    entries: Log = log
    world = simulated(handlers(), lambda number, command: float(number * 7 % 5))
    states = list(drive(scheduler(rules), state, record_events(world, entries)))
    assert (states[-1].version, states[-1].stopped, states[-1].consumed) == (6, True, 24)
    again = from_lines(to_lines(entries), (*EVENTS, *COMMANDS))
    assert list(drive(scheduler(rules), state, replay_events(again))) == states


def script(seed: int, **rules: Any) -> Script:
    draw = random.Random(seed)
    group = draw.choice([1, 2, 3])
    batch = group * draw.randint(1, 3)
    given = {
        "batch": batch,
        "group": group,
        "concurrency": draw.randint(1, 6),
        "staleness": draw.choice([0, 1, 2, 4]),
        "updates": 60,
        "retries": draw.choice([0, 1, 3]),
        "stale": draw.choice(["drop", "requeue", "pace"]),
        "incomplete": draw.choice(["drop", "repair"]),
        "proximal": draw.choice(["keep", "recompute"]),
    }
    moves = tuple(draw.randrange(1 << 16) for _ in range(60))
    return Script(Rules(**{**given, **rules}), draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 40), moves)


def test_every_kind_of_event_and_command_comes() -> None:
    seen = Counter[type]()
    for seed in range(60):
        for one in play(own_scheduling(), script(seed)).told:
            seen.update([type(one.event), *map(type, one.commands)])
    missing = {*EVENTS, *COMMANDS, Started, Interrupted, Failed, Stop} - {*seen}
    assert not missing


def test_states_have_their_fields_and_no_others() -> None:
    """`changed` writes whatever name it is given."""
    for seed in range(20):
        state = play(own_scheduling(), script(seed)).state
        assert set(vars(state)) == {field.name for field in attrs.fields(Schedule)}
        assert decode(encode(state), CLASSES) == state


@pytest.mark.parametrize("stale", ["drop", "requeue", "pace"])
def test_a_long_fair_run_makes_every_update(stale: str) -> None:
    rules = Rules(batch=6, group=3, concurrency=12, staleness=2, updates=50, stale=stale)
    here = play(own_scheduling(), Script(rules, 4, 3, 9, ()))
    assert fair(here, 50, patience=5000)
    assert (here.state.phase, here.state.version, here.state.consumed) == ("publish", 49, 300)
    assert here.state.tokens_wasted == 0


def test_a_machine_folds_over_events() -> None:
    rules = evolve(ONE, updates=1)
    events = [Started(), done(0), Consumed(0), Published(1)]
    _, said = run(scheduler(rules), begin_schedule(rules, prompts=4, workers=1), events)
    assert said[-1] == Stop("complete")


@pytest.mark.slow
@pytest.mark.parametrize("law", [*scheduler_laws(), *scheduler_fault_laws()], ids=lambda law: law.name)
def test_many_more_schedules(law: Law) -> None:
    assert run_law(law, own_scheduling(), profile=evolve(named_profile("ci"), seed=1)).holds


# --- what the benchmarks are made of ---


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_schedules_are_judged_and_a_violation_is_told(
    benchmark: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules = benchmark("schedules")
    told = schedules.merged([schedules.tally(range(5)), schedules.tally(range(5, 10))])
    assert (told.schedules, told.violations) == (10, ())
    assert told.events >= 500
    assert schedules.missing({}) > schedules.missing(told.counts)
    monkeypatch.setattr(schedules, "own_scheduling", lambda: forgets_filtered(own_scheduling()))
    assert "accepted: got" in schedules.tally(range(20)).violations[0]


def test_simulated_generators_keep_their_bounds(benchmark: Callable[[str], Any]) -> None:
    """Times by hand: 64 samples of 100 tokens, one after the other at 100 tokens a second, and an update as long."""
    simulated_run = benchmark("async_rl").measured
    even = {"sigma": 0.0, "updates": 4, "publish": 0.0, "load": 0.0, "chunk": 100, "group": 1}
    turns, free = simulated_run(1, 0, 1.0, **even), simulated_run(1, 2, 1.0, **even)
    assert (turns["t_g"], turns["t_t"]) == (64.0, 64.0)
    assert turns["seconds an update"] == pytest.approx(128.0)
    assert free["seconds an update"] == pytest.approx(64.0)
    assert (turns["largest staleness"], turns["share of tokens wasted"]) == (0, 0)
    for way in ("drop", "requeue", "pace"):
        row = simulated_run(8, 1, 1.0, updates=4, stale=way, sigma=1.0)
        assert row["largest staleness"] <= 1
        assert way != "pace" or row["share of tokens wasted"] == 0


def test_what_was_measured_is_drawn(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    row = {"samples a second": 4.0, "largest staleness": 2, "mean head staleness": 1.5, "share of tokens wasted": 0.25}
    compared = {f"{n} generators, t_t = 1.0 t_g": {"compared": {"ratio": 1.9, "ideal": 2.0}} for n in (1, 4)}
    rows = {
        "throughput": compared,
        "staleness": {"0": row, "1": row},
        "weights": {"next, 1": row},
        "stale": {"drop": row},
    }
    settings = {"settings": {"batch": 64, "updates": 10}}
    out = benchmark("parts.async_picture").picture({**rows, **settings}, tmp_path / "new" / "async.png")
    assert out.read_bytes().startswith(b"\x89PNG")
