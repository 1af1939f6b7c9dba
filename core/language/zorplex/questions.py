"""Users' questions about zorplex words, as an environment with the answer if it can be computed."""

import re

from attrs import evolve

from ...errors import ChoiceError, message
from ...keys import Key
from ..text_env import TextEnv
from .env import ZorplexEnv, ZorplexState
from .tasks import OPERATORS, ZorplexTask, follow_redirections

TERM = r"zorplex\[(\w+)\]"


def typed(env: TextEnv[ZorplexEnv, ZorplexState], question: str) -> tuple[TextEnv[ZorplexEnv, ZorplexState], bool]:
    """Return the environment that asks this question, and whether its answer can be computed.

    Values are drawn from the task's key, as usual; the asked words are the vocabulary's words in the question. Computed are
    sums and differences of words, and products of words, if the other text has no signs that could change the meaning.
    Raises: ChoiceError for an empty question.

    >>> from ... import keys
    >>> from .env import zorplex
    >>> world, known = typed(zorplex(), "zorplex[kramun] + zorplex[kramun]")
    >>> play, text = world.reset(world.params, keys.key(0))
    >>> known, play.task.answer == 2 * play.task.values[world.params.vocabulary.words.index("kramun")]
    (True, True)
    """
    if not question.strip():
        raise ChoiceError(message("question", got="empty", wanted="a text", remedy="ask something"))
    words = env.params.vocabulary.words
    asked = tuple(word for word in re.findall(r"\w+", question.lower()) if word in words)

    def reset(params: ZorplexEnv, key: Key) -> tuple[ZorplexState, str]:
        play, shown = env.reset(params, key)
        task = evolve(play.task, question=question, asked=asked, needed=_needed(play.task, words, asked))
        made = ZorplexState(task=evolve(task, answer=_answer(task, words, question) or 0))
        return made, shown.replace(play.task.question, question)

    known = _answer(_zeros(words), words, question) is not None
    return evolve(env, reset=reset), known


def _zeros(words: tuple[str, ...]) -> ZorplexTask:
    return ZorplexTask(kind="simple", question="", asked=(), answer=0, needed=0, values=(0,) * len(words))


def _needed(task: ZorplexTask, words: tuple[str, ...], asked: tuple[str, ...]) -> int:
    """Return the minimum number of calls for the values of words, in a task of this kind."""
    numbers = {words.index(word) for word in asked}
    if task.links:
        return len({each for number in numbers for each in follow_redirections(task.links, number)})
    return len(numbers) * (2 if task.kind == "multi_step" else 1)


def _answer(task: ZorplexTask, words: tuple[str, ...], question: str) -> int | None:
    """Return the value of the expression in a question, evaluated from the left; None if there is none."""
    found = re.search(rf"{TERM}(?: *[-+*] *{TERM})*", question.lower())
    if not found or not _plain(question.lower().replace(found[0], "", 1)):
        return None
    terms, operators = re.findall(TERM, found[0]), re.findall(r"\] *([-+*]) *z", found[0])
    if any(word not in words for word in terms) or {"*"} < set(operators):
        return None
    numbers = [words.index(word) for word in terms]
    if task.links:
        numbers = [follow_redirections(task.links, number)[-1] for number in numbers]
    value, *rest = (task.values[number] for number in numbers)
    for operator, other in zip(operators, rest, strict=True):
        value = OPERATORS[operator](value, other)
    return value


def _plain(text: str) -> bool:
    """Return whether a text has only letters, spaces and punctuation, so that it does not change an expression next to it.

    >>> _plain("What is , please?"), _plain("2 * "), _plain("( / 2)"), _plain("\u00b2")
    (True, False, False, False)
    """
    return all(sign.isalpha() or sign.isspace() or sign in ".,:;?!'\"" for sign in text)
