"""What a step of training reports: the columns of a run's metrics, and their numbers."""

import math
from collections.abc import Sequence

from ...core.language.attempt import Heard
from ...core.language.episode import total_reward
from ...core.language.reasoning_events import GroupResult
from ...core.language.reasoning_report import texts, turn_figures
from ..language.columns import FIGURES
from ..recipes.cache import Cache
from .parts import Attempts
from .standing import Standing

SAID = ("right", "tokens", "states", "throughput")
ON_THE_WAY = ("evaluation_first", "evaluation_trained", "evaluation_last")  # accuracy at T = 1, of training, the last
TIMES = ("rollout_seconds", "sample_seconds", "update_seconds")
COLUMNS = ("warm_loss", "episode_return", *SAID, *FIGURES, *ON_THE_WAY, *TIMES)


def turns(arguments: Cache) -> tuple[str, ...]:
    """The columns of the mean rewards of the turns of reasoning of a step's runs.

    >>> turns(Cache())
    ('reasoning_turn_1', 'reasoning_turn_2', 'reasoning_turn_3')
    """
    return tuple(f"reasoning_turn_{turn}" for turn in range(1, arguments.rollouts.num_reasoning_steps + 1))


def blank(arguments: Cache) -> dict[str, float]:
    """A row of which nothing is known."""
    return dict.fromkeys((*COLUMNS, *turns(arguments)), math.nan)


def row_of(arguments: Cache, results: Sequence[GroupResult], states: int, attempts: Attempts) -> dict[str, float]:
    """The numbers of a step: of its runs, by turn, and of the attempts at next steps from so many states."""
    rewards = [total_reward(one.episode) for one in attempts]
    said = [len(piece.said.ids) for one in attempts for piece in one.pieces if isinstance(piece, Heard)]
    figures = turn_figures(results)
    return {
        "episode_return": sum(rewards) / len(rewards),
        "right": sum(reward > 0 for reward in rewards) / len(rewards),
        "tokens": sum(said) / len(attempts),
        "states": float(states),
        **{name: figures.get(f"{name}/reward", math.nan) for name in turns(arguments)},
    }


def texts_of(results: Sequence[GroupResult]) -> int:
    """How many training texts there are in groups, of both kinds.

    >>> texts_of(())
    0
    """
    return sum(len(texts(one)) for result in results for one in result.attempts)


def on_the_way(found: Standing, trained_on: int) -> dict[str, float]:
    """The numbers of an evaluation on the way."""
    trained = min(trained_on, len(found.accuracy))
    return dict(zip(ON_THE_WAY, (found.accuracy[0], found.accuracy[trained - 1], found.accuracy[-1]), strict=True))
