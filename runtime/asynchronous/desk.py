"""Attempts that come to a generation under way and leave it: given out one by one, given up, taken when they have ended."""

from collections.abc import Sequence

from attrs import evolve, frozen

from ...core.language.attempt import Heard
from ..effects.generate_turns import FREE, AnyAttempt, Generation

Chunk = tuple[int, int]  # a task, and how many more tokens it has


@frozen(kw_only=True)
class Desk:
    """A generation, and of each of its attempts the task it was begun for and how many of its tokens were told."""

    generation: Generation
    tasks: tuple[int, ...] = ()
    told: tuple[int, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.tasks


def added(desk: Desk, task: int, attempt: AnyAttempt) -> Desk:
    """The desk with another attempt, which takes a slot as soon as one is free."""
    generation = evolve(desk.generation, attempts=(*desk.generation.attempts, attempt))
    return Desk(generation=generation, tasks=(*desk.tasks, task), told=(*desk.told, 0))


def given_up(desk: Desk, task: int) -> Desk:
    """The desk without a task, whose slot is free; as it is where it has none of that number."""
    return _without(desk, [desk.tasks.index(task)]) if task in desk.tasks else desk


def taken(desk: Desk) -> tuple[Desk, tuple[tuple[int, AnyAttempt], ...]]:
    """The desk without the attempts that have ended, and these, each with its task."""
    attempts = desk.generation.attempts
    over = [place for place, attempt in enumerate(attempts) if not isinstance(attempt.end, tuple)]
    return _without(desk, over), tuple((desk.tasks[place], attempts[place]) for place in over)


def chunks(desk: Desk) -> tuple[Desk, tuple[Chunk, ...]]:
    """Who has more tokens than was told, and how many more; and the desk that knows it was told.

    Tokens of the call under way count too.
    """
    generation = desk.generation
    count, speaking = generation.decoding.count.tolist(), generation.decoding.speaking.tolist()
    under_way = {
        number: count[row]
        for row, (number, call) in enumerate(generation.seats)
        if number >= 0 and speaking[row] and generation.attempts[number].call == call
    }
    now = [_said(one) + under_way.get(place, 0) for place, one in enumerate(generation.attempts)]
    more = tuple((task, new - old) for task, old, new in zip(desk.tasks, desk.told, now, strict=True) if new > old)
    return evolve(desk, told=tuple(map(max, desk.told, now))), more


def _said(attempt: AnyAttempt) -> int:
    return sum(len(piece.said.ids) for piece in attempt.pieces if isinstance(piece, Heard))


def _without(desk: Desk, places: Sequence[int]) -> Desk:
    """The desk without the attempts in these places; those behind them move up."""
    gone = set(places)
    if not gone:
        return desk
    left = [place for place in range(len(desk.tasks)) if place not in gone]
    moved = {old: new for new, old in enumerate(left)}
    generation = desk.generation
    return Desk(
        generation=evolve(
            generation,
            attempts=tuple(generation.attempts[place] for place in left),
            seats=tuple((moved[number], call) if number in moved else FREE for number, call in generation.seats),
            following=generation.following - sum(place < generation.following for place in gone),
        ),
        tasks=tuple(desk.tasks[place] for place in left),
        told=tuple(desk.told[place] for place in left),
    )
