"""Zorplex: a text environment in which answers must be looked up with tools.

Each call is an env step, since calls are counted: unnecessary ones have a penalty. An answer ends the episode. Rewards depend
on strict answers only; probably intended answers are used for diagnosis.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import evolve, frozen

from ...errors import ChoiceError, choose, message
from ...keys import Key
from ..parsers import Answer, Call, Parser, answer, either, tool_call
from ..text_env import Outcome, TextEnv
from .tasks import (
    CODES,
    DIFFICULTIES,
    WordTable,
    ZorplexTask,
    check_vocabulary,
    compositional,
    multi_step,
    recursive,
    simple,
    two_syllables,
)

LOOKUP, GETKEY, FETCH = "LOOKUP", "GETKEY", "FETCH"
TOOLS = (LOOKUP, GETKEY, FETCH)
KINDS = {"simple": (LOOKUP,), "compositional": (LOOKUP,), "multi_step": (GETKEY, FETCH), "recursive": (LOOKUP,)}
FREE = 2  # calls without penalty, even if fewer are needed
USE = {
    LOOKUP: "LOOKUP[word] gives the zorplex value of a word.",
    GETKEY: "GETKEY[word] gives the key of a word.",
    FETCH: "FETCH[key] gives the zorplex value stored under a key.",
}
EXAMPLES = {
    "simple": "LOOKUP[mirp]\n7\n[ANSWER] 7",
    "compositional": "LOOKUP[mirp]\n7\nLOOKUP[dosk]\n2\n[ANSWER] 9",
    "multi_step": "GETKEY[mirp]\nZK_00A1F3\nFETCH[ZK_00A1F3]\n7\n[ANSWER] 7",
    "recursive": "LOOKUP[mirp]\nSEE: dosk\nLOOKUP[dosk]\n2\n[ANSWER] 2",
}


@frozen(kw_only=True)
class ZorplexEnv:
    """The constants of a zorplex environment; construct it with `zorplex`."""

    kind: str
    vocabulary: WordTable
    generate: Callable[[WordTable, Key], ZorplexTask]
    correct: float
    format: float
    tool_spam: float


@frozen
class Reward:
    """The parts of a reward: for the right answer, for its format, and the penalty (<= 0) for unnecessary calls."""

    correct: float = 0.0
    format: float = 0.0
    tool_spam: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.correct + self.format + self.tool_spam


@frozen(kw_only=True)
class ZorplexState:
    """The state of an episode: the task, its calls, answer and reward so far; `valid_calls` are those with a valid result."""

    task: ZorplexTask
    calls: int = 0
    valid_calls: int = 0
    answer: int | tuple[()] = ()
    reward: Reward = Reward()


def zorplex(
    kind: str = "compositional",
    *,
    difficulty: str = "easy",
    vocabulary: WordTable | tuple[()] = (),
    max_depth: int = 3,
    correct: float = 1.0,
    format: float = 0.1,
    tool_spam: float = 0.1,
) -> TextEnv[ZorplexEnv, ZorplexState]:
    """Return the environment of one kind of task: simple, compositional (easy, medium, hard), multi_step or recursive.

    reward = correct [right answer] + format [an answer, and it is right or a valid call came before it]
             - tool_spam [each call beyond max(2, those needed)]
    Raises: ChoiceError.

    >>> from purestep.core import keys
    >>> world = zorplex()
    >>> state, question = world.reset(world.params, keys.key(0))
    >>> question
    'What is zorplex[quomun] + zorplex[shiyor]?'
    >>> world.step(world.params, state, Answer(state.task.answer), keys.key(1))[1].reward
    1.1
    """
    chosen = check_vocabulary(vocabulary or two_syllables())
    choose("zorplex: kind", kind, KINDS)
    choose("zorplex: difficulty", difficulty, DIFFICULTIES)
    most = len(chosen.words) // 2
    if kind == "recursive" and not 1 <= max_depth <= most:
        remedy = "each depth needs a word of its own"
        raise ChoiceError(message("zorplex: max_depth", got=max_depth, wanted=f"1 to {most}", remedy=remedy))
    params = ZorplexEnv(
        kind=kind,
        vocabulary=chosen,
        generate=_generators(difficulty, max_depth)[kind],
        correct=correct,
        format=format,
        tool_spam=tool_spam,
    )
    return TextEnv(params, _reset, _step)


def _generators(difficulty: str, max_depth: int) -> dict[str, Callable[[WordTable, Key], ZorplexTask]]:
    return {
        "simple": simple,
        "compositional": partial(compositional, difficulty=difficulty),
        "multi_step": multi_step,
        "recursive": partial(recursive, max_depth=max_depth),
    }


def zorplex_parser() -> Parser:
    """Return the parser of zorplex completions: the answer, else the single tool call.

    >>> zorplex_parser()("[ANSWER] 5").action, zorplex_parser()("lookup['kramun']").action
    (Answer(value=5), Call(name='LOOKUP', argument='kramun'))
    """
    return either(answer(), tool_call(TOOLS))


def instructions(kind: str) -> str:
    """Return the system prompt of a kind of task: its tools and the format of an answer, with an example.

    >>> instructions("simple").splitlines()[1]
    'LOOKUP[word] gives the zorplex value of a word.'
    """
    lines = (
        "Words have zorplex values that only tools know.",
        *(USE[name] for name in choose("instructions: kind", kind, KINDS)),
        "Write one call, nothing behind it, and wait for its result before the next. Write no code.",
        "When you know the result, end with `[ANSWER] ` and the number. For example:",
        EXAMPLES[kind],
    )
    return "\n".join(lines)


def reply(params: ZorplexEnv, task: ZorplexTask, call: Call) -> tuple[str, bool]:
    """Return the result of a tool call, and whether it is valid. Words are converted to lower case, keys to upper case.

    >>> from purestep.core import keys
    >>> params = zorplex("simple").params
    >>> reply(params, params.generate(params.vocabulary, keys.key(0)), Call("LOOKUP", "nothing"))
    ('UNKNOWN', False)
    """
    words, word = params.vocabulary.words, call.argument.lower()
    if call.name not in KINDS[task.kind]:
        return "UNKNOWN_TOOL", False
    if call.name == FETCH:
        stored = {_code(task, number): value for number, value in enumerate(task.values)}
        found = stored.get(call.argument.upper())
        return ("INVALID_KEY", False) if found is None else (str(found), True)
    if word not in words:
        return ("UNKNOWN_WORD" if call.name == GETKEY else "UNKNOWN"), False
    number = words.index(word)
    if call.name == GETKEY:
        return _code(task, number), True
    if task.links and task.links[number] >= 0:
        return f"SEE: {words[task.links[number]]}", True
    return str(task.values[number]), True


def free_calls(task: ZorplexTask) -> int:
    """Return the number of calls without penalty: max(2, those needed).

    >>> from purestep.core import keys
    >>> free_calls(simple(two_syllables(), keys.key(0)))
    2
    """
    return max(FREE, task.needed)


def _code(task: ZorplexTask, number: int) -> str:
    factor, offset = task.code
    return f"ZK_{(factor * number + offset) % CODES:06X}"


def _reset(params: ZorplexEnv, key: Key) -> tuple[ZorplexState, str]:
    task = params.generate(params.vocabulary, key)
    return ZorplexState(task=task), task.question


def _step(params: ZorplexEnv, play: ZorplexState, action: Any, key: Key) -> tuple[ZorplexState, Outcome]:
    if isinstance(action, Answer):
        right = action.value == play.task.answer
        earned = Reward(
            correct=params.correct if right else 0.0,
            format=params.format if right or play.valid_calls else 0.0,
        )
        return _paid(evolve(play, answer=action.value), earned), Outcome(reward=earned.total, terminated=True)
    text, valid = reply(params, play.task, action) if isinstance(action, Call) else ("UNKNOWN_TOOL", False)
    after = evolve(play, calls=play.calls + 1, valid_calls=play.valid_calls + valid)
    earned = Reward(tool_spam=-params.tool_spam if after.calls > free_calls(play.task) else 0.0)
    return _paid(after, earned), Outcome(text, earned.total)


def _paid(play: ZorplexState, earned: Reward) -> ZorplexState:
    """Return the play with the reward added, part by part."""
    before = play.reward
    after = Reward(before.correct + earned.correct, before.format + earned.format, before.tool_spam + earned.tool_spam)
    return evolve(play, reward=after)
