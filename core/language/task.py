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
from .parsers import Parser
from .world import ENV, MAX_SEQ_LEN, MAX_STEPS, Raised, Terminated, TextEnv, Truncated

TERMINATED, RAISED, OPEN = "terminated", "raised", "open"
ENDS = (TERMINATED, ENV, MAX_STEPS, MAX_SEQ_LEN, RAISED, OPEN)
TRAINING, EVALUATION = "training", "evaluation"  # streams, which share no episode
World = TextEnv[Any, Any]
Figure = Callable[[Attempt[Any]], float]
Script = Callable[[Any, Any, Key, float], Sequence[str]]


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
    `skill`, in the episode that begins with this state; without it there is no warm start. `corpus()` are texts from which a
    tokenizer is made, by default those of episodes. `ask(env, question)` is the world that asks a typed question, and whether
    its reward then says what is right; `solution(state)` is the right answer, for people.
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
    ask: Callable[[World, str], tuple[World, bool]] = asked
    solution: Callable[[Any], str] | tuple[()] = ()
