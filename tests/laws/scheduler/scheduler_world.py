"""Simulated rollout workers and a simulated trainer: the scheduler's commands are recorded, and moves report their results.

A world records the work in progress of each worker, from commands and events alone, so that laws can compare a scheduler's
state with it. Its possible events are in `scheduler_moves`.
"""

import json
from collections.abc import Callable

from attrs import Factory, define, frozen

from purestep.core.machine import Command, Event, Machine, Stop
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import CLASSES, Rules, Schedule
from purestep.runtime.machine.json_codec import decode, encode

Name = tuple[int, int, int]  # group, seat, attempt


@frozen
class Scheduling:
    """The subject of the laws: functions that make a machine and its first state."""

    scheduler: Callable[[Rules], Machine[Schedule]]
    begin: Callable[..., Schedule]


def own_scheduling() -> Scheduling:
    """Return the library's own functions."""
    return Scheduling(scheduler, begin_schedule)


@frozen
class Script:
    """Rules, the workers, slots and prompts at the beginning, and the moves."""

    rules: Rules
    workers: int
    slots: int
    prompts: int
    moves: tuple[int, ...]


@define
class Flight:
    """An attempt in progress."""

    worker: int
    prompt: int
    version: int  # it was begun with
    versions: tuple[int, ...] = ()  # of its chunks
    tokens: int = 0


@define
class World:
    """The work in progress, the messages sent, and the history of all events."""

    rules: Rules
    machine: Machine[Schedule]
    state: Schedule
    watch: Callable[["World", "Told"], None]
    workers: dict[int, int]  # slots
    flights: dict[Name, Flight] = Factory(dict)
    over: list[Name] = Factory(list)  # attempts that ended without a sample
    samples: dict[Name, Flight] = Factory(dict)  # attempts that ended with one
    prompts: dict[int, int] = Factory(dict)  # of groups
    due: list[say.RetryAfter] = Factory(list)
    trainer: list[Command] = Factory(list)  # what it was asked for last and has not done, one thing or none
    resting: bool = False  # it has failed, and nobody has asked again
    fails: int = 0  # of that, in a row
    answers: list[Command] = Factory(list)  # what it has done
    aborts: list[say.Abort] = Factory(list)  # under way
    updates: int = 0
    told: list["Told"] = Factory(list)
    stop: str = ""
    newcomers: int = 100  # the number of the next worker to join


@frozen
class Told:
    """An event, the move that sent it, and its results."""

    move: str
    event: Event
    before: Schedule
    after: Schedule
    commands: tuple[Command, ...]


def world(subject: Scheduling, script: Script, watch: Callable[[World, Told], None]) -> World:
    """A world before the first event."""
    state = subject.begin(script.rules, prompts=script.prompts, workers=script.workers, slots=script.slots)
    workers = dict.fromkeys(range(script.workers), script.slots)
    return World(script.rules, subject.scheduler(script.rules), state, watch, workers)


def tell(here: World, move: str, event: Event) -> Told:
    """Send an event to the machine, and record its commands."""
    before = here.state
    here.state, commands = here.machine.step(before, event)
    told = Told(move, event, before, here.state, commands)
    here.told.append(told)
    for command in commands:
        _note(here, command)
    here.watch(here, told)
    return told


def _note(here: World, command: Command) -> None:
    if isinstance(command, say.Dispatch):
        here.flights[(command.group, command.seat, command.attempt)] = Flight(
            command.worker, command.prompt, command.version
        )
        here.prompts[command.group] = command.prompt
    elif isinstance(command, say.Abort):
        end(here, (command.group, command.seat, command.attempt))
        here.aborts.append(command)
    elif isinstance(command, say.RetryAfter):
        here.due.append(command)
    elif isinstance(command, say.Recompute | say.Train | say.Publish):
        again = [work_of(one) for one in here.trainer] == [work_of(command)]
        here.trainer, here.resting, here.fails = [command], False, here.fails if again else 0
    elif isinstance(command, Stop):
        here.stop = command.reason


def work_of(command: Command) -> tuple[type, int]:
    """The identity of a trainer command: its samples may have changed when it is sent again."""
    return type(command), command.version


def end(here: World, name: Name) -> None:
    """Record that an attempt ended without a sample."""
    if here.flights.pop(name, None) is not None:
        here.over.append(name)


def newest(here: World) -> int:
    """The newest version that a generator can have."""
    publishing = bool(here.trainer) and isinstance(here.trainer[0], say.Publish)
    return here.state.version + publishing


def through_text(state: Schedule) -> Schedule:
    """The state after a round trip through JSON."""
    again: Schedule = decode(json.loads(json.dumps(encode(state))), CLASSES)
    return again
