"""The driver: what it performs, in which order it tells, how it ends; and R1, replayed(log) = the live run."""

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any
from zlib import crc32

import pytest
import torch
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import ChoiceError, StructureError
from purestep.core.machine import Failed, Interrupted, Machine, Started, Stop
from purestep.runtime.machine.drive import Effects, Finished, Handlers, Received, drive, serial, threads
from purestep.runtime.machine.replay_log import Log, from_lines, record_events, replay_events, simulated, to_lines


@frozen
class Work:
    number: int
    pieces: int = 1


@frozen
class Done:
    number: int
    piece: int = 0


@frozen
class Random:
    """What happened so far, in order; the order decides what comes next."""

    history: tuple[Any, ...] = ()
    issued: int = 0
    finished: int = 0


def random_machine(table: tuple[int, ...], budget: int) -> Machine[Random]:
    """A machine whose every answer depends on the whole order of events; it ends when all its work is done."""

    def step(state: Random, event: Any) -> tuple[Random, tuple[Any, ...]]:
        state = evolve(state, history=(*state.history, event))
        if isinstance(event, Done | Failed):
            state = evolve(state, finished=state.finished + 1)
        choice = table[crc32(repr(state.history).encode()) % len(table)] if state.issued else max(table) + 1
        count = min(choice, budget - state.issued)
        work = tuple(Work(state.issued + index) for index in range(count))
        state = evolve(state, issued=state.issued + count)
        if state.finished < state.issued or state.issued < budget:
            if state.finished < state.issued or work:
                return state, work
            return evolve(state, issued=state.issued + 1), (Work(state.issued),)
        return state, (Stop("all done"),)

    return Machine(step)


tables = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple)
budgets = st.integers(1, 12)


def end(machine: Machine[Any], state: Any, effects: Effects | Handlers) -> Any:
    return list(drive(machine, state, effects))[-1]


def done(command: Work) -> Done:
    return Done(command.number)


def sometimes_failing(command: Work) -> Done:
    if command.number % 5 == 3:
        raise ValueError(f"work {command.number}")
    return Done(command.number)


@given(tables, budgets, st.lists(st.integers(0, 4), min_size=1))
def test_replay_goes_through_the_same_states(table: tuple[int, ...], budget: int, delays: list[int]) -> None:
    machine, log = random_machine(table, budget), Log()
    live = simulated({Work: sometimes_failing}, lambda number, command: delays[number % len(delays)])
    try:
        states = list(drive(machine, Random(), record_events(live, log)))
    except ValueError:
        states = []
    again = iter(drive(machine, Random(), replay_events(from_lines(to_lines(log), [Work, Done]))))
    if states:
        assert list(again) == states
    else:
        with pytest.raises(RuntimeError, match=r"recorded run: ValueError: work \d"):
            list(again)


@given(tables, budgets, st.lists(st.integers(0, 3), min_size=1), st.integers(1, 4))
def test_replay_of_threads_is_the_live_run(
    table: tuple[int, ...], budget: int, delays: list[int], workers: int
) -> None:
    used = set()

    def handler(command: Work) -> Done:
        used.add(threading.get_ident())
        time.sleep(delays[command.number % len(delays)] / 2000)
        return Done(command.number)

    log: Log = []
    machine = random_machine(table, budget)
    states = list(drive(machine, Random(), record_events(threads({Work: handler}, workers=workers), log)))
    assert threading.get_ident() not in used
    assert list(drive(machine, Random(), replay_events(log))) == states
    assert list(drive(machine, Random(), replay_events(from_lines(to_lines(log), [Done])))) == states


@given(tables, budgets, st.lists(st.integers(0, 4), min_size=1))
def test_every_command_is_performed_once_and_every_event_told_once(
    table: tuple[int, ...], budget: int, delays: list[int]
) -> None:
    performed: list[int] = []

    def handler(command: Work) -> Done:
        performed.append(command.number)
        return Done(command.number)

    worlds: list[Effects] = [
        serial({Work: handler}),
        threads({Work: handler}, workers=3),
        simulated({Work: handler}, lambda number, command: delays[number % len(delays)]),
    ]
    for world in worlds:
        performed.clear()
        last = end(random_machine(table, budget), Random(), world)
        assert sorted(performed) == list(range(budget))
        assert last.history[0] == Started()
        assert sorted(event.number for event in last.history[1:]) == list(range(budget))


def batch(*commands: Any) -> Machine[tuple[Any, ...]]:
    """Issues all commands at once and stops with them; the state is what it was told."""
    return Machine(lambda seen, event: ((*seen, event), (*commands, Stop()) if event == Started() else ("ignored",)))


@given(st.lists(st.integers(0, 5), max_size=8))
def test_simulated_time_tells_in_order_of_ending(delays: list[int]) -> None:
    commands = [Work(number) for number in range(len(delays))]
    told = end(batch(*commands), (), simulated({Work: done}, lambda number, command: delays[number]))
    expected = sorted(range(len(delays)), key=lambda number: (delays[number], number))
    assert [event.number for event in told[1:]] == expected


def test_a_command_begins_when_it_is_issued() -> None:
    answers = {Started(): (Work(0), Work(1)), Done(0): (Work(2),), Done(1): (), Done(2): (Stop(),)}
    machine: Machine[tuple[Any, ...]] = Machine(lambda seen, event: ((*seen, event), answers[event]))
    told = end(machine, (), simulated({Work: done}, lambda number, command: [1.0, 1.5, 1.0][number]))
    assert told[1:] == (Done(0), Done(1), Done(2))


def test_serial_is_simulated_without_latency() -> None:
    machine = random_machine((0, 2, 1), 20)
    instant = simulated({Work: done}, lambda number, command: 0)
    assert list(drive(machine, Random(), serial({Work: done}))) == list(drive(machine, Random(), instant))


def test_commands_of_one_batch_run_at_once_and_tell_in_order_of_completion() -> None:
    second_is_done = threading.Event()
    together = threading.Barrier(2, timeout=20)

    def handler(command: Work) -> Done:
        together.wait()
        if command.number == 0:
            second_is_done.wait(20)
            time.sleep(0.01)
        else:
            second_is_done.set()
        return Done(command.number)

    log: Log = []
    told = end(batch(Work(0), Work(1)), (), record_events({Work: handler}, log))
    assert told == (Started(), Done(1), Done(0))
    assert [entry.command for entry in log if isinstance(entry, Received)] == [1, 0]
    assert end(batch(Work(0), Work(1)), (), replay_events(log)) == told


def test_tensors_in_events_are_replayed_bit_for_bit() -> None:
    @frozen
    class Sum:
        total: Tensor
        count: int = 0

    def step(state: Sum, event: Any) -> tuple[Sum, tuple[Any, ...]]:
        if event == Started():
            return state, tuple(Work(number) for number in range(6))
        state = Sum(state.total / 3 + event, state.count + 1)
        return state, (Stop(),) if state.count == 6 else ()

    log: Log = []
    start = Sum(torch.zeros(3))
    handlers = {Work: lambda command: torch.full((3,), 0.1) ** command.number}
    live = list(drive(Machine(step), start, record_events(threads(handlers, workers=4), log)))
    again = list(drive(Machine(step), start, replay_events(log)))
    assert len(live) == len(again) == 7
    assert all(torch.equal(a.total, b.total) for a, b in zip(live, again, strict=True))


@pytest.mark.parametrize("wrap", [serial, threads])
def test_events_of_an_iterator_are_told_as_they_come(wrap: Callable[[Handlers], Effects]) -> None:
    order: list[str] = []

    def pieces(command: Work) -> Iterator[Done]:
        for piece in range(command.pieces):
            order.append(f"made {piece}")
            yield Done(command.number, piece)
            if wrap is threads:
                time.sleep(0.02)

    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        if isinstance(event, Done):
            order.append(f"told {event.piece}")
        return (*seen, event), (Work(0, 3), Stop()) if event == Started() else ()

    told = end(Machine(step), (), wrap({Work: pieces}))
    assert told[1:] == (Done(0, 0), Done(0, 1), Done(0, 2))
    assert order == ["made 0", "told 0", "made 1", "told 1", "made 2", "told 2"]


@pytest.mark.parametrize(
    ("result", "events"),
    [((), ()), ([], ()), (Done(4), (Done(4),)), ((Done(1), Done(2)), (Done(1), Done(2))), ("text", ("text",))],
)
def test_a_handler_gives_one_event_or_several_or_none(result: Any, events: tuple[Any, ...]) -> None:
    assert end(batch(Work(0)), (), {Work: lambda command: result})[1:] == events


def test_the_batch_of_stop_and_all_that_runs_is_finished_and_nothing_else_performed() -> None:
    performed: list[int] = []

    def handler(command: Work) -> Done:
        time.sleep(0.01 * command.number)
        performed.append(command.number)
        return Done(command.number)

    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        answers = {Started(): (Work(0), Work(3)), Done(0): (Work(1), Stop("enough"), Work(2)), Done(2): (Work(9),)}
        return (*seen, event), answers.get(event, ())

    told = end(Machine(step), (), threads({Work: handler}))
    assert sorted(performed) == [0, 1, 2, 3]
    assert {*told} == {Started(), Done(0), Done(1), Done(2), Done(3)}


def test_a_failure_is_an_event_and_an_answered_one_is_the_machines_own_affair() -> None:
    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        answers = {Started(): (Work(3),), Failed(Work(3), "ValueError: work 3"): (Work(4),), Done(4): (Stop(),)}
        return (*seen, event), answers[event]

    told = end(Machine(step), (), {Work: sometimes_failing})
    assert told == (Started(), Failed(Work(3), "ValueError: work 3"), Done(4))


class Sentinel(Exception):
    pass


@pytest.mark.parametrize("wrap", [serial, threads, lambda handlers: simulated(handlers, lambda n, c: 1)])
def test_an_unanswered_failure_is_raised_as_it_was(wrap: Callable[[Handlers], Effects]) -> None:
    original = Sentinel("the very one")

    def broken(command: Work) -> Done:
        raise original

    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (*seen, event), (Work(0),) if event == Started() else ()

    states = drive(Machine(step), (), wrap({Work: broken}))
    assert next(states) == (Started(),)
    with pytest.raises(Sentinel) as caught:
        next(states)
    assert caught.value is original


def test_an_exit_in_a_thread_ends_the_run() -> None:
    def leave(command: Work) -> Done:
        raise SystemExit(3)

    answers_all: Machine[int] = Machine(lambda count, event: (count, (Work(count),)))
    with pytest.raises(SystemExit):
        end(answers_all, 0, threads({Work: leave}))


def test_a_handler_that_returns_nothing_at_all_is_refused() -> None:
    machine = Machine(lambda seen, event: ((*seen, event), (Work(0),) if event == Started() else ()))
    with pytest.raises(StructureError, match="handler of Work returned is None"):
        end(machine, (), {Work: lambda command: None})


@pytest.mark.parametrize("wrap", [serial, threads])
def test_a_dead_end_is_an_error_not_a_wait(wrap: Callable[[Handlers], Effects]) -> None:
    silent: Machine[int] = Machine(lambda count, event: (count + 1, (Work(0),) if count == 0 else ()))
    with pytest.raises(RuntimeError, match=r"after Work is nothing, with no command running, wanted a command or Stop"):
        end(silent, 0, wrap({Work: done}))
    with pytest.raises(RuntimeError, match="after Started is nothing"):
        end(Machine(lambda count, event: (count, ())), 0, wrap({}))


def test_a_command_without_handler_is_refused_by_name() -> None:
    with pytest.raises(ChoiceError, match=r"handler of Work is absent, wanted one of those for \['Done'\]"):
        end(batch(Work(0)), (), {Done: lambda command: ()})


def test_an_exception_of_the_machine_is_raised_after_what_runs() -> None:
    finished = threading.Event()

    def slow(command: Work) -> Done:
        time.sleep(0.03)
        finished.set()
        return Done(0)

    def step(count: int, event: Any) -> tuple[int, tuple[Any, ...]]:
        if count == 1:
            raise Sentinel
        return count + 1, (Work(0), Work(1)) if count == 0 else ()

    with pytest.raises(Sentinel):
        end(Machine(step), 0, {Work: lambda command: Done(1) if command.number else slow(command)})
    assert finished.is_set()


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """A real SIGINT to this process, whatever the test runner did with the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def stops_when_interrupted(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if event == Interrupted():
        return (*seen, event), (Work(100), Stop("interrupted"))
    return (*seen, event), (Work(len(seen)),)


@pytest.mark.parametrize("wrap", [serial, threads])
def test_ctrl_c_becomes_an_event_between_events(
    wrap: Callable[[Handlers], Effects], ctrl_c: Callable[[], None]
) -> None:
    log: Log = []
    machine: Machine[tuple[Any, ...]] = Machine(stops_when_interrupted)
    states = []
    for state in drive(machine, (), record_events(wrap({Work: done}), log)):
        states.append(state)
        if state[-1] == Done(2):
            ctrl_c()
    assert Interrupted() in states[-1]
    assert Done(100) in states[-1]
    assert list(drive(machine, (), replay_events(from_lines(to_lines(log), [Done])))) == states


def test_a_handler_is_never_cut_by_the_first_ctrl_c(ctrl_c: Callable[[], None]) -> None:
    whole: list[int] = []

    def handler(command: Work) -> Done:
        if command.number == 2:
            ctrl_c()
        whole.append(command.number)
        return Done(command.number)

    told = end(Machine(stops_when_interrupted), (), serial({Work: handler}))
    assert whole == [0, 1, 2, 3, 100]
    assert told[-3:] == (Interrupted(), Done(3), Done(100)) or told[-2:] == (Interrupted(), Done(100))


@pytest.mark.parametrize("wrap", [serial, threads])
def test_a_second_ctrl_c_is_raised(wrap: Callable[[Handlers], Effects], ctrl_c: Callable[[], None]) -> None:
    deaf: Machine[int] = Machine(lambda count, event: (count + 1, (Work(count),)))
    states = drive(deaf, 0, wrap({Work: done}))
    assert next(states) == 1
    ctrl_c()
    assert next(states) == 2
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    assert isinstance(states, Generator)
    states.close()


def test_a_second_ctrl_c_does_not_wait_for_a_handler(ctrl_c: Callable[[], None]) -> None:
    release = threading.Event()

    def stuck(command: Work) -> Done:
        release.wait(5)
        return Done(command.number)

    states = drive(batch(Work(0)), (), threads({Work: stuck}))
    assert next(states) == (Started(),)
    ctrl_c()
    assert next(states) == (Started(), Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    assert isinstance(states, Generator)
    begin = time.monotonic()
    states.close()
    assert time.monotonic() - begin < 3
    release.set()


def test_ctrl_c_wakes_a_driver_that_waits(ctrl_c: Callable[[], None]) -> None:
    release = threading.Event()

    def long(command: Work) -> Done:
        assert release.wait(20)
        return Done(command.number)

    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        if event == Interrupted():
            release.set()
        return (*seen, event), (Work(0),) if event == Started() else (Stop(),) if event == Done(0) else ()

    threading.Timer(0.05, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    assert end(Machine(step), (), threads({Work: long})) == (Started(), Interrupted(), Done(0))


def test_ctrl_c_too_late_for_the_machine_is_raised(ctrl_c: Callable[[], None]) -> None:
    states = drive(batch(), (), serial({}))
    assert next(states) == (Started(),)
    ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        next(states)


def test_a_keyboard_interrupt_in_a_handler_is_told_once_then_raised() -> None:
    def handler(command: Work) -> Done:
        raise KeyboardInterrupt

    machine: Machine[tuple[Any, ...]] = Machine(lambda seen, event: ((*seen, event), (Work(0),)))
    states = drive(machine, (), serial({Work: handler}))
    assert next(states) == (Started(),)
    assert next(states) == (Started(), Interrupted())
    with pytest.raises(KeyboardInterrupt):
        next(states)


def test_breaking_off_finishes_what_runs_and_begins_nothing_more() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def handler(command: Work) -> Done:
        begun.append(command.number)
        time.sleep(0.02)
        ended.append(command.number)
        return Done(command.number)

    many = batch(*(Work(number) for number in range(50)))
    for _ in drive(many, (), threads({Work: handler}, workers=2)):
        break
    assert begun
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 50


def test_breaking_off_ends_a_stream_at_its_next_event() -> None:
    made: list[int] = []

    def stream(command: Work) -> Iterator[Done]:
        begin = time.monotonic()
        while time.monotonic() - begin < 2:
            made.append(len(made))
            yield Done(len(made))
            time.sleep(0.001)

    begin = time.monotonic()
    for state in drive(batch(Work(0)), (), threads({Work: stream})):
        if len(state) == 3:
            break
    assert time.monotonic() - begin < 1.5
    assert len(made) >= 2


def test_another_machine_than_the_recorded_is_refused() -> None:
    log: Log = []
    end(batch(Work(0), Work(1)), (), record_events(serial({Work: done}), log))
    with pytest.raises(RuntimeError, match="command 0 is Done, wanted Work"):
        end(batch(Done(0), Work(1)), (), replay_events(log))
    with pytest.raises(RuntimeError, match="command 1 is not issued, wanted Work"):
        end(batch(Work(0)), (), replay_events(log[2:]))


def test_a_log_cut_short_gives_its_states_and_then_says_so() -> None:
    log: Log = []
    whole = list(drive(batch(Work(0), Work(1)), (), record_events(serial({Work: done}), log)))
    states = drive(batch(Work(0), Work(1)), (), replay_events(log[:2]))
    assert [next(states), next(states)] == whole[:2]
    with pytest.raises(RuntimeError, match="the log is at its end"):
        next(states)


def test_a_log_keeps_no_exception_alive() -> None:
    log: Log = []
    failing = Machine(lambda count, event: (count + 1, (Work(3),) if count == 0 else (Stop(),)))
    end(failing, 0, record_events(serial({Work: sometimes_failing}), log))
    assert log == [Received(0, "Work", Failed(Work(3), "ValueError: work 3")), Finished(0, "Work")]
    assert all(entry.cause is None for entry in log if isinstance(entry, Received))


def test_a_torn_line_and_a_tensor_are_refused() -> None:
    log: Log = [Received(0, "Work", Done(1)), Finished(0, "Work")]
    assert from_lines(to_lines(log), [Done]) == log
    with pytest.raises(StructureError, match="line 2"):
        from_lines(to_lines(log)[:-4], [Done])
    with pytest.raises(ChoiceError, match="'Done'"):
        from_lines(to_lines(log))
    with pytest.raises(StructureError, match=r"log\[0\] is Tensor"):
        to_lines([Received(0, "Work", torch.ones(1))])


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ChoiceError, match="latency of Work is -1"):
        end(batch(Work(0)), (), simulated({Work: done}, lambda number, command: -1))
