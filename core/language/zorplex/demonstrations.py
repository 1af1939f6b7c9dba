"""Demonstrations of zorplex tasks, some of them intentionally wrong, for a supervised warm start with partial skill.

A model trained only on right ones would leave nothing to reinforce. Each wrong one shows one failure mode, so that the
warm-started model samples all of them.
"""

from collections.abc import Callable

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key
from ..parsers import Call
from .env import FETCH, GETKEY, LOOKUP, ZorplexEnv, ZorplexState, reply
from .tasks import ZorplexTask, follow_redirections

Texts = tuple[str, ...]
SPAM = 8  # calls of a demonstration that only calls tools, unless the episode ends before


def right_calls(params: ZorplexEnv, task: ZorplexTask) -> Texts:
    """Return the tool calls of the shortest solution, in order.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> right_calls(zorplex("simple").params, simple(two_syllables(), keys.key(0)))
    ('LOOKUP[quomun]',)
    """
    words = params.vocabulary.words
    if task.kind == "multi_step":
        (word,) = task.asked
        return f"{GETKEY}[{word}]", f"{FETCH}[{reply(params, task, Call(GETKEY, word))[0]}]"
    if task.kind == "recursive":
        return tuple(
            f"{LOOKUP}[{words[number]}]" for number in follow_redirections(task.links, words.index(task.asked[0]))
        )
    return tuple(f"{LOOKUP}[{word}]" for word in task.asked)


def right(params: ZorplexEnv, task: ZorplexTask, key: Key) -> Texts:
    """Return the shortest solution, and the answer.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> right(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1))
    ('LOOKUP[quomun]', '[ANSWER] 1')
    """
    del key
    return *right_calls(params, task), f"[ANSWER] {task.answer}"


def wrong_format(params: ZorplexEnv, task: ZorplexTask, key: Key) -> Texts:
    """Return the right calls, and then the result without the answer tag.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> wrong_format(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1))
    ('LOOKUP[quomun]', '1')
    """
    del key
    return *right_calls(params, task), str(task.answer)


def spam(params: ZorplexEnv, task: ZorplexTask, key: Key) -> Texts:
    """Return repeated calls of the first tool of the solution, for words of the task.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> set(spam(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1)))
    {'LOOKUP[quomun]'}
    """
    tool = GETKEY if task.kind == "multi_step" else LOOKUP
    picked = map(int, keys.randint(key, (SPAM,), 0, len(task.asked)))
    return tuple(f"{tool}[{task.asked[which]}]" for which in picked)


def random_answer(params: ZorplexEnv, task: ZorplexTask, key: Key) -> Texts:
    """Return an immediate answer, drawn from 0 to the largest possible sum of the task's values.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> random_answer(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1))
    ('[ANSWER] 5',)
    """
    most = len(task.asked) * max(abs(value) for value in task.values)
    return (f"[ANSWER] {int(keys.randint(key, (), 0, most + 1))}",)


def wrong_answer(params: ZorplexEnv, task: ZorplexTask, key: Key) -> Texts:
    """Return the right calls, and an answer that is off by one to three.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> wrong_answer(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1))
    ('LOOKUP[quomun]', '[ANSWER] 4')
    """
    size, sign = map(int, keys.randint(key, (2,), 0, 6))
    off = 1 + size % 3
    below = sign % 2 == 1 and (task.answer >= off or task.answer < 0)
    return *right_calls(params, task), f"[ANSWER] {task.answer - off if below else task.answer + off}"


WRONG: dict[str, Callable[[ZorplexEnv, ZorplexTask, Key], Texts]] = {
    "wrong_format": wrong_format,
    "spam": spam,
    "guess": random_answer,
    "wrong_answer": wrong_answer,
}


def script(params: ZorplexEnv, task: ZorplexTask, key: Key, *, skill: float) -> Texts:
    """Return a demonstration, call by call: `right` with probability `skill`, else one of `WRONG`, with equal probability.

    Raises: ChoiceError.

    >>> from .tasks import simple, two_syllables
    >>> from .env import zorplex
    >>> script(zorplex("simple").params, simple(two_syllables(), keys.key(0)), keys.key(1), skill=1.0)
    ('LOOKUP[quomun]', '[ANSWER] 1')
    """
    if not 0.0 <= skill <= 1.0:
        raise ChoiceError(message("script: skill", got=skill, wanted="from 0 to 1", remedy="give a probability"))
    whether, which, rest = keys.split(key, 3)
    ways = tuple(WRONG.values())
    number = int(keys.randint(which, (), 0, len(ways)))
    way = right if bool(keys.bernoulli(whether, skill)) else ways[number]
    return way(params, task, rest)


def play_script(params: ZorplexEnv, play: ZorplexState, key: Key, skill: float) -> Texts:
    """Return `script` for the task of an episode's initial state, in the form of `TextTask.demonstrations`.

    >>> from .env import zorplex
    >>> world = zorplex("simple")
    >>> play_script(world.params, world.reset(world.params, keys.key(0))[0], keys.key(1), 1.0)
    ('LOOKUP[quomun]', '[ANSWER] 1')
    """
    return script(params, play.task, key, skill=skill)
