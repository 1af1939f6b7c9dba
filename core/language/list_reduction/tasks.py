"""List reduction: problems that one reasoning step cannot finish, with state that fits into a summary of two words.

Each number of the list has a label, `a3 b4 c5`; a reasoning step writes a label, its number and the result so far,
`a3=3; b4=7;`, and after the last one the answer, `[ANSWER] 12`. The right summary is the last label and its result, `b 7`.
The label gives the position in the list, so that no step has to be longer than a few numbers.
"""

import re
from collections.abc import Callable
from itertools import accumulate

from attrs import frozen

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key
from ..parsers import strict_answer
from ..reasoning_cache.rollouts import rollout_policy
from ..reasoning_cache.state import InferenceProblemState, ModelRequest, Problem, Reply, RolloutResult
from .lists import KINDS, MODULUS, Lists

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ITEM = re.compile(r"([a-z]+)(-?\d{1,9})=(-?\d{1,18});", re.ASCII)
LISTED = re.compile(r"([a-z]+)(-?\d{1,9})(?![\d=])", re.ASCII)


@frozen(kw_only=True)
class ListTask:
    """One list: the kind of reduction and the numbers."""

    kind: str
    numbers: tuple[int, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """The results up to each number; the last is the answer."""
        first = self.numbers[0] % MODULUS if self.kind == "modular_sum" else self.numbers[0]
        return tuple(accumulate((first, *self.numbers[1:]), KINDS[self.kind][1]))


def letter_label(index: int) -> str:
    """Return the label of the number at an index: a ... z, aa, ab, ...

    >>> letter_label(0), letter_label(25), letter_label(26), letter_label(701), letter_label(702)
    ('a', 'z', 'aa', 'zz', 'aaa')
    """
    above, letter = divmod(index, len(LETTERS))
    return (letter_label(above - 1) if above else "") + LETTERS[letter]


def list_task(lists: Lists, key: Key) -> ListTask:
    """Return a list drawn from the key: its length, then its numbers, all with equal probability.

    >>> list_task(Lists(shortest=3, longest=3), keys.key(0))
    ListTask(kind='sum', numbers=(4, 1, 7))
    """
    size, content = keys.split(key)
    length = int(keys.randint(size, (), lists.shortest, lists.longest + 1))
    return ListTask(
        kind=lists.kind, numbers=tuple(map(int, keys.randint(content, (length,), lists.low, lists.high + 1)))
    )


def list_problem(task: ListTask) -> Problem:
    """Return the list as a problem, fully described by its text, which is also its id.

    >>> list_problem(ListTask(kind="sum", numbers=(3, 4))).problem_text
    'Add: a3 b4'
    """
    listed = " ".join(f"{letter_label(index)}{number}" for index, number in enumerate(task.numbers))
    text = f"{KINDS[task.kind][0]}: {listed}"
    return Problem(problem_id=text, problem_text=text, answer=str(task.results[-1]), dataset_name=task.kind)


def read_list(text: str) -> ListTask:
    """Return the list described by a problem's text. Raises: ChoiceError.

    >>> read_list("Add: a3 b4")
    ListTask(kind='sum', numbers=(3, 4))
    """
    told, _, listed = text.partition(": ")
    kinds = {words: kind for kind, (words, _) in KINDS.items()}
    task = ListTask(kind=kinds.get(told, ""), numbers=tuple(int(number) for _, number in LISTED.findall(listed)))
    if not task.kind or not task.numbers or list_problem(task).problem_text != text:
        wanted, remedy = "a text of list_problem", "make problems with it"
        raise ChoiceError(message("read_list: text", got=repr(text[:40]), wanted=wanted, remedy=remedy))
    return task


def right_reasoning(task: ListTask, count: int, *, numbers: int) -> str:
    """Return the right text of a step after the first `count` numbers: the next ones, and the answer at the list's end.

    >>> task = ListTask(kind="sum", numbers=(3, 4, 5))
    >>> right_reasoning(task, 0, numbers=2), right_reasoning(task, 2, numbers=2), right_reasoning(task, 3, numbers=2)
    ('a3=3; b4=7;', 'c5=12; [ANSWER] 12', '[ANSWER] 12')
    """
    end = min(count + numbers, len(task.numbers))
    items = [f"{letter_label(i)}{task.numbers[i]}={task.results[i]};" for i in range(count, end)]
    return " ".join([*items, *([f"[ANSWER] {task.results[-1]}"] if end == len(task.numbers) else [])])


def right_summary(task: ListTask, count: int) -> str:
    """Return the right summary after the first `count` numbers: the last one's label and result; "" for `count` 0.

    >>> right_summary(ListTask(kind="sum", numbers=(3, 4)), 2), right_summary(ListTask(kind="sum", numbers=(3,)), 0)
    ('b 7', '')
    """
    return f"{letter_label(count - 1)} {task.results[count - 1]}" if count else ""


def carried(task: ListTask, summary: str) -> int:
    """Return the number of list entries that a summary covers; 0 if it is wrong.

    >>> task = ListTask(kind="sum", numbers=(3, 4))
    >>> carried(task, "b 7"), carried(task, "b 8"), carried(task, "")
    (2, 0, 0)
    """
    rights = (right_summary(task, count) for count in range(len(task.numbers) + 1))
    return next((count for count, right in enumerate(rights) if right == summary.strip()), 0)


def entries_covered(task: ListTask, summary: str, text: str) -> int | tuple[()]:
    """Return the number of list entries covered after a reasoning step that starts from a summary; () if the step is wrong.

    The step's items have to be correct: labels in order, each with its number and its result, from the summary's position or
    from an earlier one; a wrong summary covers nothing. An answer has to be right, and needs all numbers to be covered. An
    item that was cut before its semicolon is ignored.

    >>> task = ListTask(kind="sum", numbers=(3, 4, 5))
    >>> steps = ("a 3", "b4=7; c5=1"), ("", "b4=7;"), ("b 7", "c5=12; [ANSWER] 12")
    >>> tuple(entries_covered(task, summary, text) for summary, text in steps)
    (2, (), 3)
    """
    count, answer = carried(task, summary), strict_answer(text)
    items = ITEM.findall(text)
    if items:
        places = {letter_label(index): index for index in range(len(task.numbers))}
        first = places.get(items[0][0], len(task.numbers))
        span = range(first, first + len(items))
        true = [(letter_label(i), task.numbers[i], task.results[i]) for i in span if i < len(task.numbers)]
        if first > count or [(name, int(number), int(result)) for name, number, result in items] != true:
            return ()
        count = max(count, first + len(items))
    if answer != () and (answer != task.results[-1] or count < len(task.numbers)):
        return ()
    return count


def step_correct(task: ListTask, summary: str, text: str, *, numbers: int) -> bool:
    """Return whether one reasoning step is right: all its items are correct, and it covers enough numbers.

    Enough is `numbers` more than the summary covers, or all numbers of the list and then the answer.

    >>> task = ListTask(kind="sum", numbers=(3, 4, 5))
    >>> [step_correct(task, "a 3", text, numbers=2) for text in ("b4=7;", "b4=7; c5=12;", "b4=7; c5=12; [ANSWER] 12")]
    [False, False, True]
    """
    behind, count = entries_covered(task, summary, text), carried(task, summary)
    if isinstance(behind, tuple) or behind < min(count + numbers, len(task.numbers)):
        return False
    return behind < len(task.numbers) or strict_answer(text) == task.results[-1]


def list_reward(numbers: int) -> Callable[[InferenceProblemState, str], float]:
    """Return the reward function of a reasoning step on a list: 1 if `step_correct`, else 0; for `rollout_policy`.

    >>> state = InferenceProblemState(problem=list_problem(ListTask(kind="sum", numbers=(3, 4, 5))), curr_summary="a 3")
    >>> list_reward(1)(state, "b4=7;")
    1.0
    """
    return lambda state, text: float(
        step_correct(read_list(state.problem.problem_text), state.curr_summary, text, numbers=numbers)
    )


def list_rollout(state: InferenceProblemState, asked: ModelRequest, reply: Reply, *, numbers: int = 2) -> RolloutResult:
    """Return the rollout result of a reasoning step on a list: one training text with the reward `list_reward(numbers)`.

    >>> state = InferenceProblemState(problem=list_problem(ListTask(kind="sum", numbers=(3, 4, 5))), curr_summary="a 3")
    >>> asked = ModelRequest(cycle_step=2, turn_type="reasoning", turn_number=2, prompt_text="Add: a3 b4 c5")
    >>> list_rollout(state, asked, Reply(cycle_step=2, text="b4=7;"), numbers=1).training_texts[0].reward
    1.0
    """
    return rollout_policy(list_reward(numbers))(state, asked, reply)
