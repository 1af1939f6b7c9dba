"""A task for a language model as one value: the only place of task-specific code in a run.

Only `env` and `parser` are required. The rest is for task-specific reports (`figures`, `diagnostics`, `label`), for the warm
start of an untrained model (`corpus`, `demonstrations`), for the system prompt of a trained one (`instructions`), and for
questions by users (`ask`, `solution`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, frozen

from ..keys import Key
from .evaluation import TaskEvaluation
from .grading import Grader
from .parsers import Parser
from .preparation import Preparation
from .requests import Draw
from .text_env import ENV, MAX_SEQ_LEN, MAX_STEPS, Raised, Terminated, TextEnv, Truncated
from .tools import ToolSet
from .types import Rollout

TERMINATED, RAISED, OPEN = "terminated", "raised", "open"
ENDS = (TERMINATED, ENV, MAX_STEPS, MAX_SEQ_LEN, RAISED, OPEN)
TRAINING, EVALUATION = "training", "evaluation"  # streams, with disjoint episodes
World = TextEnv[Any, Any]
Figure = Callable[[Rollout[Any]], float]
Script = Callable[[Any, Any, Key, float], Sequence[str]]
Conversation = tuple[str, ...]  # prompts and replies, alternating; the last is a reply


@frozen(kw_only=True)
class Room:
    """A prompt of maximum length, with the right reply to it, and the setting that limits the reply."""

    prompt: str
    reply: str
    setting: str  # by its flag
    limit: int  # tokens of the reply
    about: str  # explanation of the reply, for the error that refuses a limit


def end_of(attempt: Rollout[Any]) -> str:
    """Return how an attempt ended, one of `ENDS`: terminated, the reason of a truncation, raised, or open if unfinished.

    >>> from types import SimpleNamespace
    >>> end_of(SimpleNamespace(end=Terminated())), end_of(SimpleNamespace(end=Truncated("max_steps")))
    ('terminated', 'max_steps')
    """
    end = attempt.end
    if isinstance(end, Truncated):
        return end.reason
    return TERMINATED if isinstance(end, Terminated) else RAISED if isinstance(end, Raised) else OPEN


def ask_question(env: World, question: str) -> tuple[World, bool]:
    """Return the environment with this question as its first observation, and False, since its answer is unknown.

    >>> world, known = ask_question(TextEnv((), lambda _, key: (7, "?"), ()), "How far is it?")
    >>> world.reset((), ()), known
    ((7, 'How far is it?'), False)
    """
    reset = env.reset
    return evolve(env, reset=lambda params, key: (reset(params, key)[0], question)), False


@frozen(kw_only=True)
class TextTask:
    """A task: its environments, the parser of actions, and its reports.

    `env(stream)` is the environment of training or evaluation. `figures` are metrics of each attempt in training and
    evaluation, `diagnostics` in evaluation only; the one named "accuracy", 0 or 1, gets an interval. `label(attempt)` is one of
    `labels`. `demonstrations(params, state, key, skill)` are the completions of a script that is right with probability
    `skill`, in the episode that starts in this state; `conversations(key, number, skill)` are complete demonstrations.
    Without either there is no warm start. `corpus()` are the texts to train a tokenizer on, by default those of episodes.
    `incomplete="accept"` parses completions that were cut at their length limit.
    `grader(attempts)` gives finished attempts their rewards, many at a time: see `grading`. `draw(key, stream, number)` is the
    task key of prompt `number` of a stream, where episodes come from a list and not from random keys; `prompts` is the length
    of the training list, where such a key begins with twice the row.
    `tools` are shown to the model by its chat template, whose format of calls then replaces the parser: an action is a text, or
    a tuple of calls.
    `preparation` lets training episodes start in states that the model generates; `evaluation` replaces attempts at held-out
    episodes. `rooms()` are the longest prompts and replies, which token limits have to allow; `digest` identifies the task's
    data, so that a resumed run uses the same data.
    `ask(env, question)` is the environment that asks a user's question, and whether its reward then evaluates the answer;
    `solution(state)` is the right answer, for display.
    """

    name: str
    env: Callable[[str], World]
    parser: Parser
    instructions: str = ""
    tool_budget: int = 4
    figures: Mapping[str, Figure] = Factory(dict)
    diagnostics: Mapping[str, Figure] = Factory(dict)
    label: Callable[[Rollout[Any]], str] = end_of
    labels: tuple[str, ...] = ENDS
    corpus: Callable[[], Sequence[str]] | tuple[()] = ()
    demonstrations: Script | tuple[()] = ()
    conversations: Callable[[Key, int, float], Sequence[Conversation]] | tuple[()] = ()
    incomplete: str = "reject"
    grader: Grader | tuple[()] = ()
    draw: Draw | tuple[()] = ()
    prompts: int = 0
    preparation: Preparation | tuple[()] = ()
    evaluation: TaskEvaluation[Any] | tuple[()] = ()
    rooms: Callable[[], Sequence[Room]] | tuple[()] = ()
    digest: str = ""
    tools: ToolSet | tuple[()] = ()
    ask: Callable[[World, str], tuple[World, bool]] = ask_question
    solution: Callable[[Any], str] | tuple[()] = ()
