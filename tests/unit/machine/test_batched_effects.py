"""Commands that go together: how they are batched, in which order, and what becomes of their failures."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import frozen

from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.machine import Command, Event, Failed, Machine, Started, Stop
from purestep.runtime.machine.batched_effects import batch_commands, side_by_side
from purestep.runtime.machine.drive import drive


@frozen
class Ask:
    """A command that goes with others of its kind."""

    number: int


@frozen
class Later:
    """Another kind, which comes behind."""

    number: int


@frozen
class Single:
    """A command on its own."""

    number: int


@frozen
class Done:
    """What came of a command."""

    what: str


def told(commands: Sequence[Command]) -> tuple[list[str], list[str]]:
    """What the machine heard of these commands, and the batches in which handlers saw them."""
    batches: list[str] = []

    def together(kind: str) -> Callable[[Sequence[Any]], list[Event]]:
        def handle(several: Sequence[Any]) -> list[Event]:
            batches.append(f"{kind} {[one.number for one in several]}")
            return [Done(f"{kind} {one.number}") for one in several]

        return handle

    def move(heard: tuple[str, ...], event: Event) -> tuple[tuple[str, ...], tuple[Command, ...]]:
        if isinstance(event, Started):
            return heard, tuple(commands)
        name = event.what if isinstance(event, Done) else type(event).__name__
        heard = (*heard, name)
        follows = (Ask(9),) if name == "single 1" else ()
        return heard, (*follows, *((Stop(),) if len(heard) == len(commands) + (Single(1) in commands) else ()))

    effects = batch_commands(
        {Single: lambda one: Done(f"single {one.number}")},
        {Ask: together("ask"), Later: together("later")},
    )
    *_, last = drive(Machine(move), (), effects)
    return list(last), batches


def test_those_of_a_kind_wait_until_all_else_is_done_and_go_as_one() -> None:
    heard, batches = told([Later(0), Ask(0), Single(0), Ask(1), Single(1), Later(1)])
    assert batches == ["ask [0, 1, 9]", "later [0, 1]"]
    assert heard == ["single 0", "single 1", "ask 0", "ask 1", "ask 9", "later 0", "later 1"]


def test_what_a_handler_of_several_raises_is_raised_where_nobody_answers() -> None:
    def refuse(several: Sequence[Any]) -> list[Event]:
        raise PermissionError(f"{len(several)} calls")

    def move(heard: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        return (*heard, event), (Ask(0), Ask(1)) if isinstance(event, Started) else ()

    def answered(heard: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        return move(heard, event)[0], (Stop(),) if isinstance(event, Failed) else move(heard, event)[1]

    with pytest.raises(PermissionError, match="2 calls"):
        list(drive(Machine(move), (), batch_commands({}, {Ask: refuse})))
    *_, last = drive(Machine(answered), (), batch_commands({}, {Ask: refuse}))
    assert [type(event).__name__ for event in last] == ["Started", "Failed"]
    with pytest.raises(ShapeError, match="events of Ask is 1, wanted 2; answer each command"):
        list(drive(Machine(move), (), batch_commands({}, {Ask: lambda several: [Done("")]})))
    with pytest.raises(ChoiceError, match="the handler of Ask is absent"):
        list(drive(Machine(move), (), batch_commands({}, {})))


def test_ctrl_c_in_a_handler_of_several_is_heard_as_one() -> None:
    def pressed(several: Sequence[Any]) -> list[Event]:
        raise KeyboardInterrupt

    def move(heard: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        begun = isinstance(event, Started)
        return (*heard, type(event).__name__), (Ask(0),) if begun else (Stop(),)

    *_, last = drive(Machine(move), (), batch_commands({}, {Ask: pressed}))
    assert last == ("Started", "Interrupted")


@pytest.mark.parametrize("number", [0, 1, 3])
def test_work_side_by_side_keeps_its_order(number: int) -> None:
    assert side_by_side(lambda n: n * n, range(number)) == tuple(n * n for n in range(number))
