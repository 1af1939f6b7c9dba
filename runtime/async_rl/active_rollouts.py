"""Attempts that join and leave a running generation: added one by one, cancelled, and removed when they are finished."""

from collections.abc import Sequence

from attrs import evolve, frozen

from ...core.language.rollout import ModelTurn
from ..effects.generation.scheduling import FREE, AnyAttempt, Generation

Chunk = tuple[int, int]  # a task, and its number of new tokens


@frozen(kw_only=True)
class ActiveRollouts:
    """A generation and, for each of its attempts, the task it belongs to and the number of its tokens already reported."""

    generation: Generation
    tasks: tuple[int, ...] = ()
    told: tuple[int, ...] = ()

    @property
    def idle(self) -> bool:
        """Return whether no attempt is under way."""
        return not self.tasks


def add(desk: ActiveRollouts, task: int, attempt: AnyAttempt) -> ActiveRollouts:
    """Return the desk with another attempt, which takes a slot as soon as one is free."""
    generation = evolve(desk.generation, attempts=(*desk.generation.attempts, attempt))
    return ActiveRollouts(generation=generation, tasks=(*desk.tasks, task), told=(*desk.told, 0))


def cancel(desk: ActiveRollouts, task: int) -> ActiveRollouts:
    """Return the desk without a task, whose slot becomes free; unchanged if it has no task of that number."""
    return _without(desk, [desk.tasks.index(task)]) if task in desk.tasks else desk


def pop_finished(desk: ActiveRollouts) -> tuple[ActiveRollouts, tuple[tuple[int, AnyAttempt], ...]]:
    """Return the desk without its finished attempts, and these, each with its task."""
    attempts = desk.generation.attempts
    over = [place for place, attempt in enumerate(attempts) if not isinstance(attempt.end, tuple)]
    return _without(desk, over), tuple((desk.tasks[place], attempts[place]) for place in over)


def token_progress(desk: ActiveRollouts) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    """Return the desk with all tokens marked as reported, and newly generated token counts per task since the last call.

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
    return sum(len(piece.said.ids) for piece in attempt.pieces if isinstance(piece, ModelTurn))


def _without(desk: ActiveRollouts, places: Sequence[int]) -> ActiveRollouts:
    """Return the desk without the attempts at these indices; later ones move up."""
    gone = set(places)
    if not gone:
        return desk
    left = [place for place in range(len(desk.tasks)) if place not in gone]
    moved = {old: new for new, old in enumerate(left)}
    generation = desk.generation
    return ActiveRollouts(
        generation=evolve(
            generation,
            attempts=tuple(generation.attempts[place] for place in left),
            seats=tuple((moved[number], call) if number in moved else FREE for number, call in generation.seats),
            following=generation.following - sum(place < generation.following for place in gone),
        ),
        tasks=tuple(desk.tasks[place] for place in left),
        told=tuple(desk.told[place] for place in left),
    )
