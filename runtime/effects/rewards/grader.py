"""Rewards of finished attempts from functions of users and built-in ones, in the convention of TRL: see `function`.

    rewards, parts = rewards_of(["grader.py:accuracy", "regex=^<think>"], [1.0, 0.2])
    task = prompt_task("sums", training, held_out, rewards=rewards, parts=parts)

reward of a sample = sum_i weight_i r_i over the functions that apply to it. Named functions are imported and called in worker
processes, never in this one; their prints go to standard error. Function objects are called in threads of this process. A
function that raises, hangs, kills its worker or returns no numbers gives those samples an error, and never ends a run.
"""

import importlib.util
import math
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, at_least, message
from ....core.language.episode import Grade
from ....core.language.prompts import RepliedPrompt, Rewards
from ..tools.calls import TIMED_OUT, Perform, Returned, in_processes, in_threads
from .batch import Caller, batch_scores
from .built_in import ANSWERS, BUILT_IN, COMPARING
from .function import Reference, Score, call_fault, thread_scores, worker_scores

FORMS = f"MODULE:FUNCTION, FILE.py:FUNCTION or one of {', '.join(BUILT_IN)}".replace("regex", "regex=PATTERN")
LOOK = 30.0  # seconds to look at a function that was imported
LARGEST = 3.4e38  # of a reward, in float32
Named = str | Callable[..., Any]


@frozen
class Part:
    """One reward function: its name in metrics, its weight, and itself as it is sent to be called."""

    name: str
    weight: float
    function: Any  # a `Reference`, a built-in function or the user's own object
    place: str  # "worker" or "thread"
    alone: bool = False


def rewards_of(
    names: Sequence[Named], weights: Sequence[float] = (), *, seconds: float = 30.0, workers: int = 2
) -> tuple[Rewards, tuple[str, ...]]:
    """Return the function that grades replies, and the names of its parts: short, unique, usable in names of metrics.

    A name is MODULE:FUNCTION, FILE.py:FUNCTION or built in: exact, numeric, math, code, regex=PATTERN. Weights are 1 unless
    given. A call of a function has `seconds`; `workers` calls run at a time, and share a batch. A grade has the results of all
    functions that apply, unweighted, as its parts; with none, or if one fails, it has an error. The worker processes start
    at the first call and end with this process, or when the function returned is no longer referenced.
    Raises: ChoiceError for a name that has no such form or weights that do not fit; see `check_rewards` for all else.

    >>> from purestep.core.language.prompts import PromptRow
    >>> def short(completions, **columns):
    ...     return [1 / len(text) for text in completions]
    >>> rewards, parts = rewards_of(["exact", short], [1.0, 0.5])
    >>> rewards((RepliedPrompt(PromptRow("2 + 3?", {"answer": "5"}), "5"),))
    (Grade(reward=1.5, parts={'exact': 1.0, 'short': 1.0}, error=''),)
    """
    parts = _parts(names, weights)
    if not seconds > 0:
        remedy = "give a function some seconds for a batch"
        raise ChoiceError(message("rewards: seconds", got=seconds, wanted="more than 0", remedy=remedy))
    at_least("rewards: workers", workers, 1)
    stack = ExitStack()
    places = {
        "worker": partial(
            Caller, score=worker_scores, perform=stack.enter_context(in_processes(workers)), pieces=workers
        ),
        "thread": partial(Caller, score=thread_scores, perform=in_threads(workers)),
    }
    callers = [places[part.place](part.function, seconds=seconds, alone=part.alone) for part in parts]

    def rewards(replies: tuple[RepliedPrompt, ...]) -> tuple[Grade, ...]:
        with ThreadPoolExecutor(len(callers)) as threads:
            found = tuple(threads.map(lambda caller: _scores(caller, replies, workers), callers))
        return tuple(grade(parts, one) for one in zip(*found, strict=True))

    weakref.finalize(rewards, stack.close)
    return rewards, tuple(part.name for part in parts)


def check_rewards(names: Sequence[Named], weights: Sequence[float] = (), *, columns: Collection[str] = ()) -> None:
    """Refuse rewards that cannot be called, before anything is built; modules are imported in a worker process.

    With the names of the rows' `columns` a parameter that is none of them is refused too.
    Raises: ChoiceError, in one line, for an unknown name, module or function, a function that is no reward, another number
    of weights than of names, or a library that is not installed.

    >>> check_rewards(["exact", "no_such_module_here:reward"], [1.0])
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: weights of rewards is 1 numbers, wanted 2, one for each reward; give as many
    """
    parts = _parts(names, weights)
    with in_processes(1) as perform:
        for name, part in zip(names, parts, strict=True):
            wrong = _fault(perform, part, columns)
            if name in COMPARING and columns and not set(columns) & set(ANSWERS):
                got, wanted = f"in none of {sorted(columns)}", f"in one of {', '.join(ANSWERS)}"
                wrong = message("the answer", got=got, wanted=wanted, remedy="rename the column of answers")
            if wrong:
                raise ChoiceError(f"reward {name if isinstance(name, str) else part.name}: {wrong}")


def _fault(perform: Perform, part: Part, columns: Collection[str]) -> str:
    if not isinstance(part.function, Reference):
        return call_fault(part.function, columns)
    made = perform(call_fault, (part.function, tuple(columns)), LOOK)
    if isinstance(made, Returned):
        return str(made.value)
    got = "not imported in time" if made.kind == TIMED_OUT else made.error
    wanted, remedy = "a module that can be imported", "see that it can be imported on its own"
    return message("module", got=got, wanted=wanted, remedy=remedy)


def foreign(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are functions of a user, MODULE:FUNCTION or FILE.py:FUNCTION, and not built in.

    >>> foreign(["exact", "grader.py:accuracy", "regex=a:b"])
    ('grader.py:accuracy',)
    """
    return tuple(name for name in names if ":" in name and name.partition("=")[0] not in BUILT_IN)


def _parts(names: Sequence[Named], weights: Sequence[float]) -> tuple[Part, ...]:
    """Return the functions of a reward; nothing of a user's is imported. Raises: ChoiceError."""
    if not names or isinstance(names, str):
        got = repr(names) if names else "none"
        raise ChoiceError(message("rewards", got=got, wanted="a list of at least 1", remedy=f"name {FORMS}"))
    given = tuple(weights) or (1.0,) * len(names)
    if len(given) != len(names):
        got, wanted = f"{len(given)} numbers", f"{len(names)}, one for each reward"
        raise ChoiceError(message("weights of rewards", got=got, wanted=wanted, remedy="give as many"))
    for weight in given:
        if not math.isfinite(weight):
            raise ChoiceError(message("weight of a reward", got=weight, wanted="a finite number", remedy="change it"))
    taken = list[str]()
    for name in names:
        short = _short(name)
        numbered = (f"{short}_{number}" if number > 1 else short for number in count(1))
        taken.append(next(one for one in numbered if one not in taken))
    return tuple(_part(name, short, float(weight)) for name, short, weight in zip(names, taken, given, strict=True))


def _short(name: Named) -> str:
    """Return a name for metrics: that of the function, without its module, or of the built-in one."""
    if not isinstance(name, str):
        inner = name.func if isinstance(name, partial) else name
        text = str(getattr(inner, "__name__", type(inner).__name__))
    else:
        text = name.rpartition(":")[2] if foreign([name]) else name.partition("=")[0]
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "reward"


def _part(name: Named, short: str, weight: float) -> Part:
    if not isinstance(name, str):
        return Part(short, weight, name, "thread")
    if foreign([name]):
        place, _, function = name.rpartition(":")
        if not place or not function:
            raise ChoiceError(message("reward", got=repr(name), wanted=FORMS, remedy="name a module and a function"))
        return Part(short, weight, Reference(name), "worker")
    kind, equals, option = name.partition("=")
    if kind not in BUILT_IN:
        raise ChoiceError(message("reward", got=repr(name), wanted=FORMS, remedy="name one of these"))
    if (kind == "regex") != bool(option) or (equals and not option):
        wanted = "regex=PATTERN" if kind == "regex" else kind
        raise ChoiceError(message("reward", got=repr(name), wanted=wanted, remedy="write it so"))
    if kind == "math" and importlib.util.find_spec("math_verify") is None:
        where, remedy = "reward math: the library math-verify", "pip install 'purestep[math]'"
        raise ChoiceError(message(where, got="absent", wanted="installed", remedy=remedy))
    if kind == "regex":
        return Part(short, weight, partial(BUILT_IN[kind], _pattern(option)), "worker", alone=True)
    return Part(short, weight, BUILT_IN[kind], "worker", alone=True)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        got, remedy = f"no pattern ({error})", "mend it: see the module re of Python"
        raise ChoiceError(message(f"reward regex={text}", got=got, wanted="a pattern", remedy=remedy)) from error
    return text


def _scores(caller: Caller, replies: Sequence[RepliedPrompt], workers: int) -> list[Score]:
    """Return the scores of replies; those to chat messages and those to texts are given to the function separately."""
    found = dict[int, Score]()
    for chat in (False, True):
        places = [place for place, one in enumerate(replies) if isinstance(one.row.prompt, str) is not chat]
        if places:
            made = batch_scores(caller, reward_arguments([replies[place] for place in places]), workers)
            found.update(zip(places, made, strict=True))
    return [found[place] for place in range(len(replies))]


def reward_arguments(replies: Sequence[RepliedPrompt]) -> Mapping[str, list[Any]]:
    """Return the arguments of a reward function for replies to prompts of one kind: texts, or chat messages.

    A row without a column that others have gives None there.

    >>> from purestep.core.language.prompts import PromptRow
    >>> one = RepliedPrompt(PromptRow("2 + 3?", {"answer": "5"}), "5", (7,))
    >>> reward_arguments([one, RepliedPrompt(PromptRow("Hi"), "Hello")])
    {'answer': ['5', None], 'prompts': ['2 + 3?', 'Hi'], 'completions': ['5', 'Hello'], 'completion_ids': [[7], []]}
    """
    columns = dict.fromkeys(name for one in replies for name in one.row.columns)
    return {
        **{name: [one.row.columns.get(name) for one in replies] for name in columns},
        "prompts": [
            one.row.prompt if isinstance(one.row.prompt, str) else _messages(one.row.prompt) for one in replies
        ],
        "completions": [one.text if isinstance(one.row.prompt, str) else _completion(one) for one in replies],
        "completion_ids": [list(one.ids) for one in replies],
    }


def _completion(reply: RepliedPrompt) -> list[dict[str, str]]:
    return _messages(reply.messages or (("assistant", reply.text),))


def _messages(given: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in given]


def grade(parts: Sequence[Part], scores: Sequence[Score]) -> Grade:
    """Return the grade of a sample from the scores of all functions, or the first error.

    >>> both = [Part("right", 1.0, (), "thread"), Part("short", 0.5, (), "thread")]
    >>> grade(both, [1.0, 0.5]), grade(both, [1.0, None]).parts, grade(both, [None, "no result"]).error
    (Grade(reward=1.25, parts={'right': 1.0, 'short': 0.5}, error=''), {'right': 1.0}, 'reward short: no result')
    """
    scored = tuple(zip(parts, scores, strict=True))
    for part, score in scored:
        if isinstance(score, str):
            return Grade(error=f"reward {part.name}: {score}")
    found = {part.name: score for part, score in scored if isinstance(score, float)}
    if not found:
        return Grade(error=f"rewards {', '.join(part.name for part in parts)}: none applies to this sample")
    total = sum(part.weight * found[part.name] for part in parts if part.name in found)
    if not abs(total) <= LARGEST:
        return Grade(error=f"rewards {', '.join(found)}: their weighted sum is {total:g}, out of the range of float32")
    return Grade(total, found)
