"""Rewards of finished attempts that are computed together, after sampling, and not in a step of the environment.

A grader is called with many attempts, so that a reward model or a checker in other processes sees them as one batch. Its
grades are independent of the order of the attempts.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from ..errors import ShapeError, message
from .episode import Grade, Step
from .text_env import Raised
from .types import ModelTurn, Rollout

Attempts = tuple[Rollout[Any], ...]
Grader = Callable[[Attempts], Sequence[Grade]]


def graded(grader: Grader | tuple[()], attempts: Sequence[Rollout[Any]]) -> Attempts:
    """Return finished attempts with their grades: the reward is added to that of the last step and of the last model call.

    An attempt whose grade has an error ends as `Raised`, without a reward; those that ended so before, or without a step, are
    not graded. Raises: ShapeError for another number of grades than of attempts.

    >>> graded((), ())
    ()
    """
    if isinstance(grader, tuple):
        return tuple(attempts)
    places = [place for place, one in enumerate(attempts) if one.episode.steps and not isinstance(one.end, Raised)]
    asked = tuple(attempts[place] for place in places)
    grades = tuple(grader(asked)) if asked else ()
    if len(grades) != len(asked):
        remedy = "return one grade for each attempt, in their order"
        raise ShapeError(message("grader: grades", got=len(grades), wanted=len(asked), remedy=remedy))
    found = dict(zip(places, map(with_grade, asked, grades), strict=True))
    return tuple(found.get(place, one) for place, one in enumerate(attempts))


def with_grade(attempt: Rollout[Any], grade: Grade) -> Rollout[Any]:
    """Return a finished attempt with a grade.

    >>> from .codec import byte_codec
    >>> from .parsers import Parsed
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .types import ModelOutput
    >>> from .rollout import add_output, begin_rollout
    >>> from .text_env import Outcome, TextEnv
    >>> env = TextEnv((), lambda _, key: ((), "2?"), lambda _, state, action, key: (state, Outcome(terminated=True)))
    >>> rules, codec = protocol(env, Parsed, max_steps=1), byte_codec()
    >>> spec = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> begun = begin_rollout(rules, codec, spec, capacity=9, max_new_tokens=4)
    >>> ended = add_output(rules, codec, begun, ModelOutput(ids=(50, 256), log_probs=(0.0, 0.0), versions=(0, 0)))
    >>> with_grade(ended, Grade(0.5)).episode.steps[0].reward, with_grade(ended, Grade(error="no number")).end
    (0.5, Raised(error='no number'))
    """
    if grade.error:
        end = Raised(grade.error)
        return evolve(attempt, end=end, grade=grade, episode=evolve(attempt.episode, end=end))
    *before, last = attempt.episode.steps
    steps: tuple[Step, ...] = (*before, evolve(last, reward=last.reward + grade.reward))
    final = max(place for place, piece in enumerate(attempt.pieces) if isinstance(piece, ModelTurn))
    pieces = tuple(
        evolve(piece, reward=piece.reward + grade.reward) if place == final and isinstance(piece, ModelTurn) else piece
        for place, piece in enumerate(attempt.pieces)
    )
    return evolve(attempt, grade=grade, episode=evolve(attempt.episode, steps=steps), pieces=pieces)
