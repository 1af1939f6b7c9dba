"""Text environments as pure functions, and the ends of episodes.

Like a tensor env, a text env has `reset` and `step` with explicit keys; observations are texts, actions are the results of
its parser. Tools that change the state are actions: one env step each. Tools that only read it are auxiliary: their results
are added to the context within a turn.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import Factory, field, frozen

from ..keys import Key
from .events import Event, ToolResult, User

P = TypeVar("P")
S = TypeVar("S")

ENV, MAX_STEPS, MAX_SEQ_LEN = "env", "max_steps", "max_seq_len"  # cause of a truncation: the environment, or a limit


@frozen
class Outcome:
    """The result of an action; `observation` may be empty. If both flags are true, the episode terminated.

    The `results` of an action of several calls are shown to the model in place of the observation, each as a message.
    """

    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    results: tuple[ToolResult, ...] = field(default=(), repr=False)


def user_message(params: Any, state: Any, observation: str) -> tuple[Event, ...]:
    """Return a first observation as the only message of a conversation.

    >>> user_message((), (), "2 + 3?")
    (User(text='2 + 3?'),)
    """
    return (User(observation),)


@frozen
class TextEnv(Generic[P, S]):
    """A text environment.

    `reset(params, key) -> (state, first observation)`, `step(params, state, action, key) -> (state, Outcome)`, and the
    auxiliary tools by their names in capitals, `tool(params, state, argument) -> text`. All should be total: every action
    that the parser can return has an outcome. If one raises, the episode ends as `Raised`. States are frozen values of
    numbers, strings and tuples.
    `opening(params, state, observation)` are the messages that an episode begins with, by default the first observation
    alone; a system message among them replaces the one of the protocol.
    """

    params: P
    reset: Callable[[P, Key], tuple[S, str]]
    step: Callable[[P, S, Any, Key], tuple[S, Outcome]]
    tools: Mapping[str, Callable[[P, S, str], str]] = Factory(dict)
    opening: Callable[[P, S, str], tuple[Event, ...]] = user_message


@frozen
class Terminated:
    """The episode terminated: no bootstrap beyond its end."""


@frozen
class Truncated:
    """The episode was cut, for this reason, although it could have continued."""

    reason: str


@frozen
class Raised:
    """The environment, a tool or the parser raised `error`: the episode is not used for training."""

    error: str


End = Terminated | Truncated | Raised
