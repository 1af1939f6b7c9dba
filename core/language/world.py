"""A world of text as pure functions, and how an episode in it ends.

As an env of tensors has, a text env has `reset` and `step` over explicit keys; observations are texts, actions are whatever
its parser finds. Tools that change the world are actions: one env step each. Tools that only read it are auxiliary: they
answer within a turn, and what they say is context.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import Factory, frozen

from ..keys import Key

P = TypeVar("P")
S = TypeVar("S")

ENV, MAX_STEPS, MAX_SEQ_LEN = "env", "max_steps", "max_seq_len"  # who cut an episode: the world, or a limit


@frozen
class Outcome:
    """What an action led to; `observation` may be empty. Both flags may be true: then the world ended."""

    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


@frozen
class TextEnv(Generic[P, S]):
    """A world of text.

    `reset(params, key) -> (state, first observation)`, `step(params, state, action, key) -> (state, Outcome)`, and the
    auxiliary tools by their names in capitals, `tool(params, state, argument) -> text`. All should be total: whatever a
    parser makes of a completion has an outcome. An episode in which one raises ends as `Raised`. States are frozen values
    of numbers, strings and tuples.
    """

    params: P
    reset: Callable[[P, Key], tuple[S, str]]
    step: Callable[[P, S, Any, Key], tuple[S, Outcome]]
    tools: Mapping[str, Callable[[P, S, str], str]] = Factory(dict)


@frozen
class Terminated:
    """The world ended; nothing lies beyond."""


@frozen
class Truncated:
    """Only the watching ended, for this reason; there would have been more."""

    reason: str


@frozen
class Raised:
    """The world, a tool or the parser raised: the episode counts for nothing, and `error` says why."""

    error: str


End = Terminated | Truncated | Raised
