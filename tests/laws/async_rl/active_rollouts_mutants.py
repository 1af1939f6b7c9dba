"""Desks as people get them wrong: edits of how attempts come to a generation, leave it, and are told of."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.asynchronous.desk import Chunk, Desk
from purestep.runtime.effects.generate import Generator
from purestep.runtime.effects.generate_turns import FREE, AnyAttempt, Generation

from .rollout_schedules import Desking, calls_of

NOBODY = -1
Taken = tuple[Desk, tuple[tuple[int, AnyAttempt], ...]]


def takes_twice(desking: Desking) -> Desking:
    """Gives what has ended and keeps it, if it sat in the last of the slots."""

    def taken(desk: Desk) -> Taken:
        after, over = desking.taken(desk)
        again = [one for one in over if one[0] % 4 == 1]
        return (desking.added(after, *again[-1]) if again and not after.idle else after), over

    return evolve(desking, taken=taken)


def loses_waiting(desking: Desking) -> Desking:
    """Leaves the number of the next that waits where it was, when some before it leave."""

    def left(before: Desk, after: Desk) -> Desk:
        following = min(before.generation.following, len(after.tasks))
        return evolve(after, generation=evolve(after.generation, following=following))

    def taken(desk: Desk) -> Taken:
        after, over = desking.taken(desk)
        return left(desk, after), over

    return evolve(desking, given_up=lambda desk, task: left(desk, desking.given_up(desk, task)), taken=taken)


def old_seats(desking: Desking) -> Desking:
    """Leaves slots with the numbers that attempts had before others left."""

    def left(before: Desk, after: Desk) -> Desk:
        pairs = zip(before.generation.seats, after.generation.seats, strict=True)
        seats = tuple(old if new != FREE and old[0] < len(after.tasks) else new for old, new in pairs)
        return evolve(after, generation=evolve(after.generation, seats=seats))

    def taken(desk: Desk) -> Taken:
        after, over = desking.taken(desk)
        return left(desk, after), over

    return evolve(desking, given_up=lambda desk, task: left(desk, desking.given_up(desk, task)), taken=taken)


def old_caches(desking: Desking) -> Desking:
    """Goes on with what other weights have put into the caches."""

    def advance(made: Generator, params: Any, version: int, generation: Generation) -> Generation:
        return desking.advance(made, params, version, evolve(generation, version=version))

    return evolve(desking, advance=advance)


def first_version(desking: Desking) -> Desking:
    """Says of a call that is over that the weights it began with made all of it."""

    def advance(made: Generator, params: Any, version: int, generation: Generation) -> Generation:
        after = desking.advance(made, params, version, generation)
        attempts = tuple(_of_one_version(one) for one in after.attempts)
        return evolve(after, attempts=attempts)

    return evolve(desking, advance=advance)


def _of_one_version(attempt: AnyAttempt) -> AnyAttempt:
    calls = calls_of(attempt)
    if not calls:
        return attempt
    said = calls[-1].said
    heard = evolve(calls[-1], said=evolve(said, versions=said.versions[:1] * len(said.versions)))
    return evolve(attempt, pieces=tuple(heard if piece is calls[-1] else piece for piece in attempt.pieces))


def _telling(change: Callable[[Desk, Desk, tuple[Chunk, ...]], tuple[Desk, tuple[Chunk, ...]]]) -> Any:
    """The edit of what is told: `change(before, after, more)`."""

    def make(desking: Desking) -> Desking:
        return evolve(desking, chunks=lambda desk: change(desk, *desking.chunks(desk)))

    return make


def _forgets(before: Desk, after: Desk, more: tuple[Chunk, ...]) -> tuple[Desk, tuple[Chunk, ...]]:
    return evolve(after, told=before.told), more


def _whole_calls(before: Desk, after: Desk, more: tuple[Chunk, ...]) -> tuple[Desk, tuple[Chunk, ...]]:
    said = tuple(sum(len(one.said.ids) for one in calls_of(attempt)) for attempt in after.generation.attempts)
    new = zip(before.tasks, before.told, said, strict=True)
    return evolve(after, told=said), tuple((task, now - old) for task, old, now in new if now > old)


def _under_way_again(before: Desk, after: Desk, more: tuple[Chunk, ...]) -> tuple[Desk, tuple[Chunk, ...]]:
    """Remembers no more than what was told of calls that are over."""
    said = tuple(sum(len(one.said.ids) for one in calls_of(attempt)) for attempt in after.generation.attempts)
    return evolve(after, told=said), more


def sits_on(desking: Desking) -> Desking:
    """Lets an attempt that was given up go on to its end, with nobody to hear of it."""

    def given_up(desk: Desk, task: int) -> Desk:
        return evolve(desk, tasks=tuple(NOBODY if one == task else one for one in desk.tasks))

    def taken(desk: Desk) -> Taken:
        after, over = desking.taken(desk)
        return after, tuple(one for one in over if one[0] != NOBODY)

    def chunks(desk: Desk) -> tuple[Desk, tuple[Chunk, ...]]:
        after, more = desking.chunks(desk)
        return after, tuple(one for one in more if one[0] != NOBODY)

    return evolve(desking, given_up=given_up, taken=taken, chunks=chunks)


def newest_first(desking: Desking) -> Desking:
    """Lets who came last go first."""

    def added(desk: Desk, task: int, attempt: AnyAttempt) -> Desk:
        place, whole = desk.generation.following, desk.generation.attempts
        return Desk(
            generation=evolve(desk.generation, attempts=(*whole[:place], attempt, *whole[place:])),
            tasks=(*desk.tasks[:place], task, *desk.tasks[place:]),
            told=(*desk.told[:place], 0, *desk.told[place:]),
        )

    return evolve(desking, added=added)


def _gives_up_all(desking: Desking) -> Desking:
    """Empties the desk to give one up, and begins the others anew."""

    def given_up(desk: Desk, task: int) -> Desk:
        if task not in desk.tasks:
            return desk
        left = [one for one in desk.tasks if one != task]
        attempts = [desk.generation.attempts[desk.tasks.index(one)] for one in left]
        for one in desk.tasks:
            desk = desking.given_up(desk, one)
        for one, attempt in zip(left, attempts, strict=True):
            desk = desking.added(desk, one, attempt)
        return desk

    return evolve(desking, given_up=given_up)


def _unknown_is_newest(desking: Desking) -> Desking:
    """Takes a task that is not there for the newest one."""

    def given_up(desk: Desk, task: int) -> Desk:
        return desking.given_up(desk, task if task in desk.tasks or desk.idle else desk.tasks[-1])

    return evolve(desking, given_up=given_up)


forgets, whole_calls = _telling(_forgets), _telling(_whole_calls)
MUTANTS: dict[str, Callable[[Desking], Desking]] = {
    "counts the call under way again": _telling(_under_way_again),
    "leaves the next that waits where it was, when some before it leave": loses_waiting,
    "says one version of a whole call": first_version,
    "begins all anew to give one up": _gives_up_all,
    "gives up the newest for one that is not there": _unknown_is_newest,
}
