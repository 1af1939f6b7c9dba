"""An episode of text so far, as one value: what was said, which steps were recorded, and how it ended."""

from typing import Generic, TypeVar

from attrs import frozen

from .events import STOP, Event
from .world import End

S = TypeVar("S")


@frozen
class Completion:
    """What one model call gave. "abort": the call was given up from outside, and its text is no choice of the model."""

    text: str
    finish_reason: str = STOP


@frozen(kw_only=True)
class Step:
    """One step of an episode. `acted`: the world moved; else a completion gave no action and its parser's word stands here.

    `observation` is what the model sees next, () where the limit of steps cleared it; `call` is the model call it came of.
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
    """An episode so far: a value of numbers, strings and tuples. `turn` counts env steps, `end` is () while it goes on."""

    world: S
    events: tuple[Event, ...]
    steps: tuple[Step, ...] = ()
    calls: int = 0
    turn: int = 0
    tools_used: int = 0  # auxiliary calls since the last env step
    end: End | tuple[()] = ()


@frozen
class Prompt:
    """The model is to speak: what came since its last text, and how many auxiliary calls it may make before it acts."""

    added: tuple[Event, ...]
    tools_left: int


def total_reward(episode: Episode[S]) -> float:
    """The sum of the rewards of an episode's steps: R = sum_t r_t.

    >>> made = Step(reward=0.5, observation="", acted=True, finish_reason="stop", call=0)
    >>> total_reward(Episode(world=(), events=(), steps=(made, made)))
    1.0
    """
    return sum((made.reward for made in episode.steps), 0.0)
