"""Effects as data: a pure state machine returns commands, and a driver performs them.

`step(state, event) -> (state, commands)` is pure. Events and commands are frozen attrs values of ints, strings, tuples and
records; `runtime.machine.drive` performs the commands and feeds their results back as events.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

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
    """The first event that a driver feeds to a machine."""

    TAG: ClassVar[str] = "started"


@frozen
class Stop:
    """The command to stop: a driver performs no command after it."""

    TAG: ClassVar[str] = "stop"
    reason: str = ""


@frozen
class Failed:
    """The event for a command whose handler raised."""

    TAG: ClassVar[str] = "failed"
    command: Command
    error: str


@frozen
class Interrupted:
    """The event for Ctrl-C."""

    TAG: ClassVar[str] = "interrupted"


def tag_of(kind: type) -> str:
    """Return the name by which checkpoints and logs refer to a class: its TAG, else the name of the class.

    A class that has a TAG can be renamed, and files stored before can still be read.

    >>> tag_of(Interrupted), tag_of(int)
    ('interrupted', 'int')
    """
    return str(vars(kind).get("TAG", kind.__name__))


def run(machine: Machine[S], state: S, events: Iterable[Event]) -> tuple[S, tuple[Command, ...]]:
    """Fold events through a machine; return the last state and all commands in order.

    >>> counter = Machine(lambda total, event: (total + event, (f"said {event}",)))
    >>> run(counter, 0, [2, 3])
    (5, ('said 2', 'said 3'))
    """
    commands: tuple[Command, ...] = ()
    for event in events:
        state, new = machine.step(state, event)
        commands = (*commands, *new)
    return state, commands
