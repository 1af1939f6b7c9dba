"""Attempts that join and leave a running generation: added one by one, cancelled, and removed when they are finished."""

from collections.abc import Sequence

from attrs import evolve, frozen

from ...core.language.types import ModelTurn
from ..effects.generation.scheduling import FREE, AnyAttempt, Generation

Chunk = tuple[int, int]  # a task, and its number of new tokens


@frozen(kw_only=True)
class ActiveRollouts:
    """A generation and, for each of its attempts, the task it belongs to and the number of its tokens already reported."""

    generation: Generation
    tasks: tuple[int, ...] = ()
    reported: tuple[int, ...] = ()

    @property
    def idle(self) -> bool:
        """Return whether no attempt is under way."""
        return not self.tasks


def add(active: ActiveRollouts, task: int, attempt: AnyAttempt) -> ActiveRollouts:
    """Return the rollouts with another attempt, which takes a slot as soon as one is free."""
    generation = evolve(active.generation, attempts=(*active.generation.attempts, attempt))
    return ActiveRollouts(generation=generation, tasks=(*active.tasks, task), reported=(*active.reported, 0))


def cancel(active: ActiveRollouts, task: int) -> ActiveRollouts:
    """Return the rollouts without a task, whose slot becomes free; unchanged if there is none of that number."""
    return _without(active, [active.tasks.index(task)]) if task in active.tasks else active


def pop_finished(active: ActiveRollouts) -> tuple[ActiveRollouts, tuple[tuple[int, AnyAttempt], ...]]:
    """Return the rollouts without their finished attempts, and these, each with its task."""
    attempts = active.generation.attempts
    over = [place for place, attempt in enumerate(attempts) if not isinstance(attempt.end, tuple)]
    return _without(active, over), tuple((active.tasks[place], attempts[place]) for place in over)


def token_progress(active: ActiveRollouts) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    """Return the rollouts with all tokens marked as reported, and newly generated token counts per task since the last call.

    Tokens of the call under way count too.
    """
    generation = active.generation
    count, speaking = generation.decoding.count.tolist(), generation.decoding.speaking.tolist()
    under_way = {
        number: count[row]
        for row, (number, call) in enumerate(generation.seats)
        if number >= 0 and speaking[row] and generation.attempts[number].call == call
    }
    now = [_sampled(one) + under_way.get(place, 0) for place, one in enumerate(generation.attempts)]
    more = tuple(
        (task, new - old) for task, old, new in zip(active.tasks, active.reported, now, strict=True) if new > old
    )
    return evolve(active, reported=tuple(map(max, active.reported, now))), more


def _sampled(attempt: AnyAttempt) -> int:
    return sum(len(piece.said.ids) for piece in attempt.pieces if isinstance(piece, ModelTurn))


def _without(active: ActiveRollouts, places: Sequence[int]) -> ActiveRollouts:
    """Return the rollouts without the attempts at these indices; later ones move up."""
    gone = set(places)
    if not gone:
        return active
    left = [place for place in range(len(active.tasks)) if place not in gone]
    moved = {old: new for new, old in enumerate(left)}
    generation = active.generation
    return ActiveRollouts(
        generation=evolve(
            generation,
            attempts=tuple(generation.attempts[place] for place in left),
            seats=tuple((moved[number], call) if number in moved else FREE for number, call in generation.seats),
            following=generation.following - sum(place < generation.following for place in gone),
        ),
        tasks=tuple(active.tasks[place] for place in left),
        reported=tuple(active.reported[place] for place in left),
    )
