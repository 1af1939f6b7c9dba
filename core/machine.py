"""Effects as data: a pure machine says what should happen, somebody else makes it happen.

`step(state, event) -> (state, commands)` is pure. Events and commands are frozen attrs values of ints, strings, tuples and
records; `runtime.drive` performs the commands and feeds back what came of them.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from attrs import frozen

S = TypeVar("S")
Event = Any
Command = Any


@frozen
class Machine(Generic[S]):
    """A pure state machine."""

    step: Callable[[S, Event], tuple[S, tuple[Command, ...]]]


@frozen
class Started:
    """The first event a driver feeds to any machine."""


@frozen
class Stop:
    """The command after which a driver performs nothing more."""

    reason: str = ""


@frozen
class Failed:
    """The event for a command whose handler raised."""

    command: Command
    error: str


@frozen
class Interrupted:
    """The event for Ctrl-C."""


def run(machine: Machine[S], state: S, events: Iterable[Event]) -> tuple[S, tuple[Command, ...]]:
    """Folds events through a machine; gives the last state and all commands in order.

    >>> counter = Machine(lambda total, event: (total + event, (f"said {event}",)))
    >>> run(counter, 0, [2, 3])
    (5, ('said 2', 'said 3'))
    """
    commands: tuple[Command, ...] = ()
    for event in events:
        state, new = machine.step(state, event)
        commands = (*commands, *new)
    return state, commands
