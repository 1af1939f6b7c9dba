"""A task for a language model, as one value: all that a run has to know of it, and nothing else of the runtime knows.

Only `env` and `parser` are needed. The rest makes reports speak of the task (`figures`, `diagnostics`, `label`), lets a model
that knows nothing begin (`corpus`, `demonstrations`), tells one that knows something how to behave (`instructions`), and
lets people ask (`ask`, `solution`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, frozen

from ..keys import Key
from .attempt import Attempt
from .evaluation import Evaluation
from .parsers import Parser
from .preparation import Preparation
from .world import ENV, MAX_SEQ_LEN, MAX_STEPS, Raised, Terminated, TextEnv, Truncated

TERMINATED, RAISED, OPEN = "terminated", "raised", "open"
ENDS = (TERMINATED, ENV, MAX_STEPS, MAX_SEQ_LEN, RAISED, OPEN)
TRAINING, EVALUATION = "training", "evaluation"  # streams, which share no episode
World = TextEnv[Any, Any]
Figure = Callable[[Attempt[Any]], float]
Script = Callable[[Any, Any, Key, float], Sequence[str]]
Conversation = tuple[str, ...]  # what the model is shown and what it replies, in turns; a reply is last


@frozen(kw_only=True)
class Room:
    """A prompt that is as long as they come, with the right reply to it, and the setting that bounds the reply."""

    prompt: str
    reply: str
    setting: str  # by its flag
    limit: int  # tokens of the reply
    about: str  # of the reply, for the line that refuses a limit


def end_of(attempt: Attempt[Any]) -> str:
    """Return how an attempt ended, one of `ENDS`: terminated, by whom it was truncated, raised, or open if it has not.

    >>> from types import SimpleNamespace
    >>> end_of(SimpleNamespace(end=Terminated())), end_of(SimpleNamespace(end=Truncated("max_steps")))
    ('terminated', 'max_steps')
    """
    end = attempt.end
    if isinstance(end, Truncated):
        return end.reason
    return TERMINATED if isinstance(end, Terminated) else RAISED if isinstance(end, Raised) else OPEN


def asked(env: World, question: str) -> tuple[World, bool]:
    """Return the world with this question in place of its own first observation; nobody knows its answer.

    >>> world, known = asked(TextEnv((), lambda _, key: (7, "?"), ()), "How far is it?")
    >>> world.reset((), ()), known
    ((7, 'How far is it?'), False)
    """
    reset = env.reset
    return evolve(env, reset=lambda params, key: (reset(params, key)[0], question)), False


@frozen(kw_only=True)
class TextTask:
    """A task: its worlds, how its actions are read, and words for what comes of them.

    `env(stream)` is the world of training or of evaluation. `figures` are reported of each attempt in training and evaluation,
    `diagnostics` in evaluation alone; one of the name "accuracy", 0 or 1, is given an interval. `label(attempt)` is one of
    `labels`. `demonstrations(params, state, key, skill)` are the completions of a demonstrator who is right with probability
    `skill`, in the episode that begins with this state; `conversations(key, number, skill)` are demonstrations that are ready.
    Without either there is no warm start. `corpus()` are texts from which a tokenizer is made, by default those of episodes.
    `incomplete="accept"` reads completions that were cut at their length as they are.
    `preparation` lets training episodes begin in states that the model brings about; `evaluation` replaces attempts at
    held-out episodes. `rooms()` are the longest prompts and replies, which limits of tokens have to leave room for; `digest`
    tells the task's data from others, so that a run goes on with its own.
    `ask(env, question)` is the world that asks a typed question, and whether its reward then says what is right;
    `solution(state)` is the right answer, for people.
    """

    name: str
    env: Callable[[str], World]
    parser: Parser
    instructions: str = ""
    tool_budget: int = 4
    figures: Mapping[str, Figure] = Factory(dict)
    diagnostics: Mapping[str, Figure] = Factory(dict)
    label: Callable[[Attempt[Any]], str] = end_of
    labels: tuple[str, ...] = ENDS
    corpus: Callable[[], Sequence[str]] | tuple[()] = ()
    demonstrations: Script | tuple[()] = ()
    conversations: Callable[[Key, int, float], Sequence[Conversation]] | tuple[()] = ()
    incomplete: str = "reject"
    preparation: Preparation | tuple[()] = ()
    evaluation: Evaluation[Any] | tuple[()] = ()
    rooms: Callable[[], Sequence[Room]] | tuple[()] = ()
    digest: str = ""
    ask: Callable[[World, str], tuple[World, bool]] = asked
    solution: Callable[[Any], str] | tuple[()] = ()
