"""A text episode so far, as one value: its events, its recorded steps, and its end."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from attrs import Factory, frozen

from .events import STOP, Event
from .text_env import End

S = TypeVar("S")


@frozen
class Completion:
    """The completion of one model call. "abort": the call was cancelled from outside, and its text is not to be used."""

    text: str
    finish_reason: str = STOP


@frozen(kw_only=True)
class Step:
    """One step of an episode. `acted`: the environment made a step; else the completion had no action.

    Without an action, `reward` and `observation` are those of the parser. `observation` is shown to the model next, () if the
    step limit cleared it; `call` is the number of the model call.
    """

    reward: float
    terminated: bool = False
    truncated: bool = False
    reason: str = ""
    observation: str | tuple[()]
    acted: bool
    parse_error: bool = False
    incomplete: bool = False
    finish_reason: str
    call: int


@frozen(kw_only=True)
class Episode(Generic[S]):
    """An episode so far: a value of numbers, strings and tuples. `turn` counts env steps, `end` is () while it runs."""

    world: S
    events: tuple[Event, ...]
    steps: tuple[Step, ...] = ()
    calls: int = 0
    turn: int = 0
    tools_used: int = 0  # auxiliary calls since the last env step
    end: End | tuple[()] = ()


@frozen
class Prompt:
    """A request for the next model output: the new context since its last output, and its remaining auxiliary calls."""

    added: tuple[Event, ...]
    tools_left: int


@frozen
class Grade:
    """The reward of an attempt, with its parts by name. With an `error` the attempt has none, and is not trained on."""

    reward: float = 0.0
    parts: Mapping[str, float] = Factory(dict)
    error: str = ""


def total_reward(episode: Episode[S]) -> float:
    """Return the sum of the rewards of an episode's steps: R = sum_t r_t.

    >>> made = Step(reward=0.5, observation="", acted=True, finish_reason="stop", call=0)
    >>> total_reward(Episode(world=(), events=(), steps=(made, made)))
    1.0
    """
    return sum((made.reward for made in episode.steps), 0.0)
