"""The moves of a simulated scheduler run, faults among them, and functions that play schedules of moves.

A move is a number: it selects one of the possible events, and its target.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from purestep.core.machine import Command, Event, Failed, Interrupted, Started
from purestep.runtime.async_rl.scheduler import events as say

from .scheduler_world import Name, Scheduling, Script, Told, World, end, newest, tell, through_text, world

K = TypeVar("K")
V = TypeVar("V")


def chunk(here: World, pick: int) -> None:
    """Report more tokens of a sample, with its version or a newer one."""
    name, flight = _nth(here.flights, pick)
    version = min(newest(here), max((flight.version, *flight.versions)) + pick // 3 % 3)
    flight.versions, flight.tokens = (*flight.versions, version), flight.tokens + 1 + pick % 5
    tell(here, "chunk", say.TokenChunk(*name, flight.tokens, version))


def repeat(here: World, pick: int) -> None:
    """Report the tokens of a sample in progress a second time."""
    spoken = {name: flight for name, flight in here.flights.items() if flight.versions}
    name, flight = _nth(spoken, pick)
    tell(here, "twice", say.TokenChunk(*name, flight.tokens, flight.versions[-1]))


def finish(here: World, pick: int) -> None:
    """Finish a sample, the last begun rather than another; a few more tokens may come with that."""
    name, flight = _nth(here.flights, pick if pick % 3 == 0 else len(here.flights) - 1)
    if pick % 2 or not flight.versions:
        version = min(newest(here), max((flight.version, *flight.versions)) + pick // 3 % 3)
        flight.versions, flight.tokens = (*flight.versions, version), flight.tokens + 1
    del here.flights[name]
    here.samples[name] = flight
    event = say.Finished(*name, flight.tokens, min(flight.versions), max(flight.versions))
    tell(here, "finish", event)


def fail(here: World, pick: int) -> None:
    """Report an error of a rollout worker."""
    name, flight = _nth(here.flights, pick)
    end(here, name)
    command = say.Dispatch(*name, flight.prompt, flight.worker, flight.version)
    tell(here, "fail", Failed(command, "RuntimeError: no"))


def upset(here: World, pick: int) -> None:
    """Report an error of a rollout worker that has a sample to be recomputed, now or after a pause."""
    name = _recomputing(here)[pick % len(_recomputing(here))]
    fail(here, list(here.flights).index(name))


def _recomputing(here: World) -> list[Name]:
    """The samples in progress that the trainer was asked to recompute."""
    return [
        name for one in here.trainer if isinstance(one, say.Recompute) for name in one.samples if name in here.flights
    ]


def time_out(here: World, pick: int) -> None:
    """Report a time-out of a sample."""
    tell(here, "time_out", say.TimedOut(*_nth(here.flights, pick)[0]))


def garbage(here: World, pick: int) -> None:
    """Send an invalid message from a rollout worker."""
    name, flight = _nth(here.flights, pick)
    last, tokens = max((flight.version, *flight.versions)), flight.tokens
    head = min(flight.versions, default=flight.version)
    wrong: list[Event] = [
        say.TokenChunk(*name, tokens + 1, newest(here) + 1 + pick % 2),
        say.TokenChunk(*name, tokens + 1, last - 1),
        say.TokenChunk(*name, 0, last),
        say.Finished(*name, tokens - 1, head, last),
        say.Finished(*name, tokens, last, last - 1),
        say.Finished(*name, tokens, head - 1, last),
        say.Finished(*name, tokens, head, newest(here) + 1),
    ]
    tell(here, "garbage", wrong[pick % len(wrong)])


def lose(here: World, pick: int) -> None:
    """Remove a rollout worker, with its work."""
    worker, _ = _nth(here.workers, pick)
    del here.workers[worker]
    for name in [name for name, flight in here.flights.items() if flight.worker == worker]:
        end(here, name)
    tell(here, "lose", say.Lost(worker))


def join(here: World, pick: int) -> None:
    """Add another rollout worker."""
    here.workers[here.newcomers] = 1 + pick % 2
    here.newcomers += 1
    tell(here, "join", say.Joined(here.newcomers - 1, 1 + pick % 2))


def wake(here: World, pick: int) -> None:
    """End a pause."""
    tell(here, "due", say.Due(here.due.pop(pick % len(here.due)).command))


def trained(here: World, pick: int) -> None:
    """Report the trainer's command as finished."""
    command = here.trainer.pop()
    here.answers.append(command)
    here.updates += isinstance(command, say.Train)
    event = _answer(command)
    tell(here, type(event).__name__.lower(), event)


def _answer(command: Command) -> Event:
    kinds = {say.Recompute: say.Recomputed, say.Train: say.Consumed, say.Publish: say.Published}
    return kinds[type(command)](command.version)


def trainer_fails(here: World, pick: int) -> None:
    """Report an error of the trainer, which does nothing until it gets another command."""
    here.fails, here.resting = here.fails + 1, True
    tell(here, "trainer_fails", Failed(here.trainer[0], "RuntimeError: out of memory"))


def abort_fails(here: World, pick: int) -> None:
    """Report that an abort failed, because the rollout worker is not there."""
    command = here.aborts.pop(pick % len(here.aborts))
    tell(here, "abort_fails", Failed(command, "LookupError: no such generator"))


def unwanted(here: World, pick: int) -> None:
    """Report a group as not worth training on."""
    tell(here, "filter", say.Filtered(pick % max(1, here.state.next_group)))


def submit(here: World, pick: int) -> None:
    """Submit more prompts."""
    tell(here, "submit", say.Submitted(1 + pick % 3))


def late(here: World, pick: int) -> None:
    """Send a message about a finished attempt, or from a trainer that has failed or finished."""
    told = list[Event]()
    if here.over:
        name, version = here.over[pick % len(here.over)], here.state.version
        told += [
            say.Finished(*name, 9, version, version),
            say.TokenChunk(*name, 1, version),
            say.TimedOut(*name),
            Failed(say.Dispatch(*name, 0, 0, version), "RuntimeError: cancelled"),
        ]
    told += [_answer(here.trainer[0])] * 5 if here.resting else []
    told += [_answer(here.answers[pick % len(here.answers)])] if here.answers else []
    tell(here, "late", told[pick % len(told)])


TWICE = (say.TokenChunk, say.Finished, say.Recomputed, say.Consumed, say.Published, say.TimedOut)


def twice(here: World, pick: int) -> None:
    """Send a message a second time."""
    heard = [one.event for one in here.told if one.move != "late"]  # a late event may still be sent in time
    kinds = [kind for kind in TWICE if any(isinstance(event, kind) for event in heard)]
    if kinds:
        same = [event for event in heard if isinstance(event, kinds[pick % len(kinds)])]
        tell(here, "twice", same[pick % len(same)])


def resume(here: World, pick: int) -> None:
    """Interrupt the run, as by Ctrl-C, and resume it in a new process from the state as text."""
    if pick % 2:
        tell(here, "interrupt", Interrupted())
    here.state = through_text(here.state)
    here.over.extend(here.flights)
    here.flights, here.due, here.trainer, here.aborts, here.fails, here.stop = {}, [], [], [], 0, ""
    here.resting = False
    if pick % 3:
        here.workers = dict.fromkeys(range(1 + pick % 4), 1 + pick % 2)
        tell(here, "resume", say.Resumed(1 + pick % 4, 1 + pick % 2))
    else:
        tell(here, "restart", Started())


Move = Callable[[World, int], None]
MOVES: Mapping[Move, int] = {  # how often each, where it is possible
    finish: 10,
    trained: 12,
    chunk: 6,
    wake: 6,
    fail: 2,
    upset: 4,
    time_out: 1,
    garbage: 1,
    lose: 1,
    join: 1,
    trainer_fails: 4,
    abort_fails: 1,
    unwanted: 1,
    submit: 1,
    late: 3,
    twice: 2,
    repeat: 1,
    resume: 1,
}


def possible(here: World, weights: Mapping[Move, int] = MOVES) -> Iterator[Move]:
    """The moves that can be made now, each as often as its weight."""
    allowed: dict[Move, bool] = {
        **dict.fromkeys((finish, chunk, fail, time_out, garbage), bool(here.flights)),
        repeat: any(flight.versions for flight in here.flights.values()),
        trained: bool(here.trainer) and not here.resting,
        trainer_fails: bool(here.trainer) and not here.resting and here.fails < here.rules.retries,
        upset: bool(_recomputing(here)),
        abort_fails: bool(here.aborts),
        wake: bool(here.due),
        lose: bool(here.workers),
        join: len(here.workers) < 5,
        late: bool(here.over or here.resting or here.answers),
    }
    for move, weight in weights.items():
        if allowed.get(move, True):
            yield from (move,) * weight


def unwatched(here: World, told: Told) -> None:
    """Watch no step."""


def play(
    subject: Scheduling,
    script: Script,
    watch: Callable[[World, Told], None] = unwatched,
    weights: Mapping[Move, int] = MOVES,
) -> World:
    """The world after all the moves, or after `Stop`."""
    here = world(subject, script, watch)
    tell(here, "start", Started())
    for move in script.moves:
        if here.stop:
            break
        moves = tuple(possible(here, weights))
        moves[move // 64 % len(moves)](here, move % 64)
    return here


def fair(here: World, updates: int, patience: int = 2000) -> bool:
    """Finish all work in order and submit new prompts; return whether the given number of updates was made."""
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
        elif here.trainer and not here.resting:
            trained(here, 0)
        elif here.flights:
            finish(here, 0)  # the first begun
        else:
            return False
    return False


def _nth(table: Mapping[K, V], pick: int) -> tuple[K, V]:
    key = list(table)[pick % len(table)]
    return key, table[key]
