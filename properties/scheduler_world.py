"""Generators and a trainer that exist on paper: what a scheduler asks for is noted, and drawn moves decide what comes of it.

A world keeps its own book of who has what under way, from commands and events alone, so that laws can hold a scheduler's
state against it. Moves are numbers: each picks one of the things that can happen now, faults included.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from attrs import Factory, define, frozen

from ..core.machine import Command, Event, Failed, Interrupted, Machine, Started, Stop
from ..runtime.scheduler import begin, scheduler
from ..runtime.scheduling import messages as say
from ..runtime.scheduling.state import CLASSES, Rules, Schedule
from ..runtime.values import decode, encode

K = TypeVar("K")
V = TypeVar("V")
Name = tuple[int, int, int]  # group, seat, attempt


@frozen
class Scheduling:
    """The subject of the laws: how a machine and its first state are made."""

    scheduler: Callable[[Rules], Machine[Schedule]]
    begin: Callable[..., Schedule]


def own_scheduling() -> Scheduling:
    """Our own."""
    return Scheduling(scheduler, begin)


@frozen
class Script:
    """Rules, who is there at the beginning, and the moves."""

    rules: Rules
    workers: int
    slots: int
    prompts: int
    moves: tuple[int, ...]


@define
class Flight:
    """An attempt under way."""

    worker: int
    prompt: int
    version: int  # it was begun with
    versions: tuple[int, ...] = ()  # of its chunks
    tokens: int = 0


@define
class World:
    """What is under way, what was said, and the book of all that happened."""

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
    trainer: list[Command] = Factory(list)  # what it does now, one thing or none
    fails: int = 0  # of that, in a row
    updates: int = 0
    told: list["Told"] = Factory(list)
    stop: str = ""
    newcomers: int = 100  # the number of the next worker to join


@frozen
class Told:
    """An event, what kind of move told it, and what came of it."""

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
    """Tells the machine, and notes what it asks for."""
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
        _end(here, (command.group, command.seat, command.attempt))
    elif isinstance(command, say.RetryAfter):
        here.due.append(command)
    elif isinstance(command, say.Recompute | say.Train | say.Publish):
        here.trainer, here.fails = [command], here.fails if here.trainer == [command] else 0
    elif isinstance(command, Stop):
        here.stop = command.reason


def _end(here: World, name: Name) -> None:
    if here.flights.pop(name, None) is not None:
        here.over.append(name)


def newest(here: World) -> int:
    """The newest version that a generator can have."""
    publishing = bool(here.trainer) and isinstance(here.trainer[0], say.Publish)
    return here.state.version + publishing


# --- what can happen ---


def chunk(here: World, pick: int) -> None:
    """More tokens of a sample, with its version or a newer one."""
    name, flight = _nth(here.flights, pick)
    version = min(newest(here), max((flight.version, *flight.versions)) + pick // 3 % 3)
    flight.versions, flight.tokens = (*flight.versions, version), flight.tokens + 1 + pick % 5
    tell(here, "chunk", say.TokenChunk(*name, 1 + pick % 5, version))


def finish(here: World, pick: int) -> None:
    """A sample is whole, the last begun rather than another; a few more tokens may come with that."""
    name, flight = _nth(here.flights, pick if pick % 3 == 0 else len(here.flights) - 1)
    if pick % 2 or not flight.versions:
        version = min(newest(here), max((flight.version, *flight.versions)) + pick // 3 % 3)
        flight.versions, flight.tokens = (*flight.versions, version), flight.tokens + 1
    del here.flights[name]
    here.samples[name] = flight
    event = say.Finished(*name, flight.tokens, min(flight.versions), max(flight.versions))
    tell(here, "finish", event)


def fail(here: World, pick: int) -> None:
    """A generator raises."""
    name, flight = _nth(here.flights, pick)
    _end(here, name)
    command = say.Dispatch(*name, flight.prompt, flight.worker, flight.version)
    tell(here, "fail", Failed(command, "RuntimeError: no"))


def time_out(here: World, pick: int) -> None:
    """A sample takes too long."""
    tell(here, "time_out", say.TimedOut(*_nth(here.flights, pick)[0]))


def garbage(here: World, pick: int) -> None:
    """A generator says what cannot be."""
    name, flight = _nth(here.flights, pick)
    last, tokens = max((flight.version, *flight.versions)), flight.tokens
    head = min(flight.versions, default=flight.version)
    wrong: list[Event] = [
        say.TokenChunk(*name, 1, newest(here) + 1 + pick % 2),
        say.TokenChunk(*name, 1, last - 1),
        say.TokenChunk(*name, 0, last),
        say.Finished(*name, tokens - 1, head, last),
        say.Finished(*name, tokens, last, last - 1),
        say.Finished(*name, tokens, head - 1, last),
        say.Finished(*name, tokens, head, newest(here) + 1),
    ]
    tell(here, "garbage", wrong[pick % len(wrong)])


def lose(here: World, pick: int) -> None:
    """A generator is gone, with its work."""
    worker, _ = _nth(here.workers, pick)
    del here.workers[worker]
    for name in [name for name, flight in here.flights.items() if flight.worker == worker]:
        _end(here, name)
    tell(here, "lose", say.Lost(worker))


def join(here: World, pick: int) -> None:
    """Another generator is there."""
    here.workers[here.newcomers] = 1 + pick % 2
    here.newcomers += 1
    tell(here, "join", say.Joined(here.newcomers - 1, 1 + pick % 2))


def wake(here: World, pick: int) -> None:
    """A pause is over."""
    tell(here, "due", say.Due(here.due.pop(pick % len(here.due)).command))


def trained(here: World, pick: int) -> None:
    """The trainer has done what it was asked for."""
    command = here.trainer.pop()
    if isinstance(command, say.Recompute):
        tell(here, "recomputed", say.Recomputed(command.version))
    elif isinstance(command, say.Train):
        here.updates += 1
        tell(here, "consumed", say.Consumed(command.version))
    else:
        tell(here, "published", say.Published(command.version))


def trainer_fails(here: World, pick: int) -> None:
    """The trainer raises."""
    here.fails += 1
    tell(here, "trainer_fails", Failed(here.trainer[0], "RuntimeError: out of memory"))


def unwanted(here: World, pick: int) -> None:
    """Somebody finds that a group is not worth learning from."""
    tell(here, "filter", say.Filtered(pick % max(1, here.state.next_group)))


def submit(here: World, pick: int) -> None:
    """More prompts."""
    tell(here, "submit", say.Submitted(1 + pick % 3))


def late(here: World, pick: int) -> None:
    """A message about an attempt that is over."""
    name = here.over[pick % len(here.over)]
    version = here.state.version
    stale: list[Event] = [
        say.Finished(*name, 9, version, version),
        say.TokenChunk(*name, 1, version),
        say.TimedOut(*name),
        Failed(say.Dispatch(*name, 0, 0, version), "RuntimeError: cancelled"),
    ]
    tell(here, "late", stale[pick % 4])


TWICE = (say.Finished, say.Recomputed, say.Consumed, say.Published, say.TimedOut)


def twice(here: World, pick: int) -> None:
    """A message that was told before."""
    heard = [one.event for one in here.told]
    kinds = [kind for kind in TWICE if any(isinstance(event, kind) for event in heard)]
    if kinds:
        same = [event for event in heard if isinstance(event, kinds[pick % len(kinds)])]
        tell(here, "twice", same[pick % len(same)])


def resume(here: World, pick: int) -> None:
    """Ctrl-C, or worse; then the run goes on in a new process, from the state as text."""
    if pick % 2:
        tell(here, "interrupt", Interrupted())
    here.state = through_text(here.state)
    here.over.extend(here.flights)
    here.flights, here.due, here.trainer, here.fails, here.stop = {}, [], [], 0, ""
    if pick % 3:
        here.workers = dict.fromkeys(range(1 + pick % 4), 1 + pick % 2)
        tell(here, "resume", say.Resumed(1 + pick % 4, 1 + pick % 2))
    else:
        tell(here, "restart", Started())


def through_text(state: Schedule) -> Schedule:
    """The state, written and read."""
    again: Schedule = decode(json.loads(json.dumps(encode(state))), CLASSES)
    return again


Move = Callable[[World, int], None]
MOVES: Mapping[Move, int] = {  # how often each, where it is possible
    finish: 10,
    trained: 12,
    chunk: 6,
    wake: 6,
    fail: 2,
    time_out: 1,
    garbage: 1,
    lose: 1,
    join: 1,
    trainer_fails: 1,
    unwanted: 1,
    submit: 1,
    late: 2,
    twice: 2,
    resume: 1,
}


def possible(here: World) -> Iterator[Move]:
    """The moves that can be made now, each as often as its weight."""
    allowed: dict[Move, bool] = {
        **dict.fromkeys((finish, chunk, fail, time_out, garbage), bool(here.flights)),
        trained: bool(here.trainer) and not _resting(here),
        trainer_fails: bool(here.trainer) and not _resting(here) and here.fails < here.rules.retries,
        wake: bool(here.due),
        lose: bool(here.workers),
        join: len(here.workers) < 5,
        late: bool(here.over),
    }
    for move, weight in MOVES.items():
        if allowed.get(move, True):
            yield from (move,) * weight


def _resting(here: World) -> bool:
    """Whether the trainer waits to do again what failed."""
    return any(not isinstance(one.command, say.Dispatch) for one in here.due)


def play(subject: Scheduling, script: Script, watch: Callable[[World, Told], None] = lambda here, told: None) -> World:
    """The world after all the moves, or after `Stop`."""
    here = world(subject, script, watch)
    tell(here, "start", Started())
    for move in script.moves:
        if here.stop:
            break
        moves = tuple(possible(here))
        moves[move // 64 % len(moves)](here, move % 64)
    return here


def fair(here: World, updates: int, patience: int = 2000) -> bool:
    """Lets everything that is under way end well, in order, and new prompts come; whether so many updates were made."""
    wanted = here.updates + updates
    for _ in range(patience):
        if here.updates >= wanted or here.stop:
            return here.updates >= wanted or here.stop == "complete"
        if not here.workers:
            join(here, 0)
        elif here.state.waiting < here.rules.batch:
            tell(here, "submit", say.Submitted(here.rules.batch))
        elif here.due:
            wake(here, 0)
        elif here.trainer:
            trained(here, 0)
        elif here.flights:
            finish(here, 0)  # the first begun
        else:
            return False
    return False


def _nth(table: Mapping[K, V], pick: int) -> tuple[K, V]:
    key = list(table)[pick % len(table)]
    return key, table[key]
