"""Machines: a pure step, folded over events."""

from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from purestep.core.machine import Command, Event, Failed, Interrupted, Machine, Started, Stop, run


@frozen
class Work:
    number: int


@frozen
class Done:
    number: int


@frozen
class Plan:
    """Two works at a time out of `left`, then a stop."""

    left: tuple[int, ...]
    active: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    retried: int = 0


def plan(state: Plan, event: Event) -> tuple[Plan, tuple[Command, ...]]:
    match event:
        case Done(number):
            active = tuple(n for n in state.active if n != number)
            state = evolve(state, active=active, finished=(*state.finished, number))
        case Failed(Work(number)):
            return evolve(state, retried=state.retried + 1), (Work(number),)
        case Interrupted():
            return evolve(state, left=()), (Stop("interrupted"),)
        case Started():
            pass
    if not state.left and not state.active:
        return state, (Stop(),)
    new = state.left[: 2 - len(state.active)]
    return evolve(state, left=state.left[len(new) :], active=state.active + new), tuple(map(Work, new))


MACHINE: Machine[Plan] = Machine(plan)
EVENTS = st.lists(
    st.just(Started())
    | st.builds(Done, st.integers(0, 3))
    | st.builds(lambda n: Failed(Work(n), "x"), st.integers(0, 3)),
    max_size=8,
)


def test_commands_follow_events_in_order() -> None:
    state, commands = run(MACHINE, Plan((1, 2, 3)), [Started(), Done(2), Failed(Work(1), "boom"), Done(1), Done(3)])
    assert commands == (Work(1), Work(2), Work(3), Work(1), Stop())
    assert state == Plan((), (), (2, 1, 3), retried=1)


def test_no_events_do_nothing() -> None:
    start = Plan((1,))
    assert run(MACHINE, start, ()) == (start, ())


@given(EVENTS, EVENTS)
def test_a_run_cut_in_two_is_the_whole(before: list[Any], after: list[Any]) -> None:
    start = Plan((0, 1, 2, 3))
    middle, first = run(MACHINE, start, before)
    end, second = run(MACHINE, middle, after)
    assert run(MACHINE, start, iter(before + after)) == (end, first + second)
    assert start == Plan((0, 1, 2, 3))


@pytest.mark.parametrize("value", [Started(), Stop("full"), Failed(Work(1), "boom"), Interrupted(), MACHINE])
def test_events_and_commands_are_values(value: Any) -> None:
    assert value == evolve(value)
    assert hash(value) == hash(evolve(value))
    with pytest.raises(AttributeError):
        value.reason = "changed"
