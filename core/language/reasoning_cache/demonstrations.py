"""Demonstrations of one step on a list: reasoning, sometimes intentionally wrong, and the summary of this reasoning.

A summary repeats the last item of the reasoning, right or wrong, and adds nothing.
"""

from collections.abc import Callable

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key
from ..list_reduction.tasks import ITEM, ListTask, right_reasoning
from .templates import CLOSING


def summed_up(summary: str, text: str) -> str:
    """Return the summary after a reasoning text: its last item's label and result, or the old summary if it has no item.

    >>> summed_up("a 3", "b4=7; c5=12;"), summed_up("c 12", "[ANSWER] 12")
    ('c 12', 'c 12')
    """
    items = ITEM.findall(text)
    return f"{items[-1][0]} {items[-1][2]}" if items else summary.strip()


def slip(task: ListTask, count: int, key: Key, *, numbers: int) -> str:
    """Return the right text with its last result (or its answer, if it has no item) off by one to three.

    >>> slip(ListTask(kind="sum", numbers=(3, 4, 5)), 0, keys.key(0), numbers=2)
    'a3=3; b4=9;'
    """
    right, off = right_reasoning(task, count, numbers=numbers), 1 + int(keys.randint(key, (), 0, 3))
    items = ITEM.findall(right)
    if not items:
        return f"[ANSWER] {task.results[-1] + off}"
    name, number, result = items[-1]
    return right.replace(f"{name}{number}={result};", f"{name}{number}={int(result) + off};")


def skip(task: ListTask, count: int, key: Key, *, numbers: int) -> str:
    """Return the text of a step that skips the next number; if no number follows it, the text of `stop_early`.

    >>> skip(ListTask(kind="sum", numbers=(3, 4, 5)), 0, keys.key(0), numbers=1)
    'b4=7;'
    """
    if count + 1 >= len(task.numbers):
        return stop_early(task, count, key, numbers=numbers)
    return right_reasoning(task, count + 1, numbers=numbers)


def stop_early(task: ListTask, count: int, key: Key, *, numbers: int) -> str:
    """Return the right text without its last part.

    >>> stop_early(ListTask(kind="sum", numbers=(3, 4, 5)), 0, keys.key(0), numbers=2)
    'a3=3;'
    """
    del key
    return right_reasoning(task, count, numbers=numbers).rpartition(
        " [" if count + numbers >= len(task.numbers) else " "
    )[0]


def guess(task: ListTask, count: int, key: Key, *, numbers: int) -> str:
    """Return an immediate answer: the result so far plus a random number, up to 9 for each number of a step.

    >>> guess(ListTask(kind="sum", numbers=(3, 4, 5)), 1, keys.key(0), numbers=2)
    '[ANSWER] 10'
    """
    here = task.results[count - 1] if count else 0
    return f"[ANSWER] {here + int(keys.randint(key, (), 0, 9 * numbers + 1))}"


WRONG: dict[str, Callable[..., str]] = {"slip": slip, "skip": skip, "stop_early": stop_early, "guess": guess}


def show_reasoning(task: ListTask, count: int, key: Key, *, skill: float, numbers: int) -> str:
    """Return a reasoning demonstration after `count` numbers: right with probability `skill`, else one of `WRONG`.

    Raises: ChoiceError.

    >>> show_reasoning(ListTask(kind="sum", numbers=(3, 4, 5)), 1, keys.key(0), skill=1.0, numbers=1)
    'b4=7;'
    """
    _check_bounds("show_reasoning: skill", skill, 0.0, 1.0)
    _check_bounds("show_reasoning: count", count, 0, len(task.numbers))
    whether, which, rest = keys.split(key, 3)
    if bool(keys.bernoulli(whether, skill)):
        return right_reasoning(task, count, numbers=numbers)
    ways = tuple(WRONG.values())
    return ways[int(keys.randint(which, (), 0, len(ways)))](task, count, rest, numbers=numbers)


def show_summary(summary: str, text: str, key: Key, *, skill: float) -> str:
    """Return a summary demonstration: `summed_up` with probability `skill`, else the old summary. Raises: ChoiceError.

    >>> show_summary("a 3", "b4=7;", keys.key(0), skill=1.0), show_summary("a 3", "b4=7;", keys.key(0), skill=0.0)
    ('b 7', 'a 3')
    """
    _check_bounds("show_summary: skill", skill, 0.0, 1.0)
    return summed_up(summary, text) if bool(keys.bernoulli(key, skill)) else summary.strip()


def aloud(text: str) -> str:
    """Return a reasoning text as the reply to a prompt that ends with an opening think tag: the answer follows the closing tag.

    >>> aloud("c5=12; [ANSWER] 12"), aloud("b4=7;")
    ('c5=12;</think> [ANSWER] 12', 'b4=7;</think>')
    """
    items, tag, answer = text.partition("[ANSWER]")
    return f"{items.rstrip()}{CLOSING}{' ' if tag else ''}{tag}{answer}"


def _check_bounds(where: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ChoiceError(message(where, got=value, wanted=f"from {low} to {high}", remedy="change it"))
