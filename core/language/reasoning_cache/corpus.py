"""Texts of list problems in cycles: the corpus for training a tokenizer, and the longest prompts and replies of a run."""

from attrs import evolve

from ..list_reduction.lists import KINDS, Lists
from ..list_reduction.tasks import ListTask, list_problem, right_reasoning, right_summary
from .demonstrations import aloud
from .machine import (
    ReasoningCache,
    get_filled_reasoning_prompt,
    get_filled_summarization_prompt,
)
from .state import InferenceProblemState
from .templates import REASONING_NAMES, SUMMARIZATION_NAMES, fill_template, open_think_tag

OFTEN = 48  # repetitions of each text


def texts_at(cache: ReasoningCache, task: ListTask, count: int, *, numbers: int) -> tuple[str, str, str, str]:
    """Return prompt and right reply, for reasoning and for summarization, after the first `count` numbers.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, reasoning_prompt_template="{problem}|{curr_summary}")
    >>> texts_at(cache, ListTask(kind="sum", numbers=(3, 4)), 1, numbers=1)[:2]
    ('Add: a3 b4|a 3', 'b4=7; [ANSWER] 7')
    """
    text = right_reasoning(task, count, numbers=numbers)
    state = InferenceProblemState(problem=list_problem(task), curr_summary=right_summary(task, count))
    prompt = get_filled_summarization_prompt(cache, evolve(state, curr_reasoning=text))
    said = aloud(text) if cache.use_think_tags else text
    behind = right_summary(task, min(count + numbers, len(task.numbers)))
    return get_filled_reasoning_prompt(cache, state), said, prompt, behind


def reasoning_texts(cache: ReasoningCache, lists: Lists) -> tuple[str, ...]:
    """Return the texts around the items of lists in a run's prompts and replies, each repeated `OFTEN` times.

    They contain no list, so that a label is the same token at the beginning of a reply as inside a list.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> template = "{problem} So far: {curr_summary}"
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, reasoning_prompt_template=template)
    >>> reasoning_texts(cache, Lists())[:3]
    ('Add:', ' So far: ', '[ANSWER]')
    """
    blank: dict[str, str] = dict.fromkeys((*REASONING_NAMES, *SUMMARIZATION_NAMES), "")
    prompt = fill_template(cache.reasoning_prompt_template, blank)
    around = open_think_tag(prompt) if cache.use_think_tags else prompt
    tags = (aloud("[ANSWER]"),) if cache.use_think_tags else ("[ANSWER]",)
    kind = f"{KINDS[lists.kind][0]}:"
    return (kind, around, *tags, fill_template(cache.summarization_prompt_template, blank)) * OFTEN


def longest_texts(cache: ReasoningCache, lists: Lists, *, numbers: int) -> tuple[str, str, str, str]:
    """Return the longest prompts and right replies, of both turn types, for the longest list with its widest numbers.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> longest_texts(reasoning_cache(solution_rollout, summarization_rollout), Lists(longest=4), numbers=2)[1::2]
    ('c9=27; d9=36; [ANSWER] 36', 'b 18')
    """
    widest = max((lists.low, lists.high), key=lambda number: (len(str(number)), abs(number)))
    task = ListTask(kind=lists.kind, numbers=(widest,) * lists.longest)
    every = [texts_at(cache, task, count, numbers=numbers) for count in range(lists.longest + 1)]
    one, two, three, four = (max(texts, key=len) for texts in zip(*every, strict=True))
    return one, two, three, four
