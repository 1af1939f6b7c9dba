"""Demonstrations for a supervised warm start: reasoning steps, some of them intentionally wrong, and summaries.

Both start at a random position of a list of the training stream, with the right summary of the numbers before it.
"""

import torch
from attrs import evolve, frozen

from ... import keys
from ...keys import Key
from ..list_reduction.lists import Lists
from ..list_reduction.tasks import ListTask, list_problem, list_task, right_summary
from ..requests import key_of, task_keys
from ..task import Conversation
from .demonstrations import aloud, show_reasoning, show_summary
from .machine import ReasoningCache, get_filled_reasoning_prompt, get_filled_summarization_prompt
from .state import InferenceProblemState

SUMMING = 1  # folded into a demonstration's key for its summary
FINISHED = 0.2  # the share of demonstrations that start after the last number of their list


@frozen(kw_only=True)
class Shows:
    """Settings of demonstrations."""

    numbers: int  # per reasoning step
    summaries: float  # the share of demonstrations that are summaries
    summary_skill: float  # the share of right summaries


def show(
    cache: ReasoningCache, shows: Shows, task: ListTask, count: int, reasons: bool, key: Key, *, skill: float
) -> Conversation:
    """Return a demonstration of either turn type, after the first `count` numbers; a step is right with probability `skill`.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout)
    >>> shows = Shows(numbers=1, summaries=0.5, summary_skill=1.0)
    >>> show(cache, shows, ListTask(kind="sum", numbers=(3, 4)), 1, True, keys.key(0), skill=1.0)[1]
    'b4=7; [ANSWER] 7'
    """
    summary = right_summary(task, count)
    state = InferenceProblemState(problem=list_problem(task), curr_summary=summary)
    text = show_reasoning(task, count, key, skill=skill, numbers=shows.numbers)
    if reasons:
        return get_filled_reasoning_prompt(cache, state), aloud(text) if cache.use_think_tags else text
    prompt = get_filled_summarization_prompt(cache, evolve(state, curr_reasoning=text))
    return prompt, show_summary(summary, text, keys.fold_in(key, SUMMING), skill=shows.summary_skill)


def draw_conversations(
    cache: ReasoningCache, shows: Shows, lists: Lists, key: Key, number: int, *, skill: float
) -> tuple[Conversation, ...]:
    """Return `number` demonstrations, on lists of the training stream.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout)
    >>> shows = Shows(numbers=1, summaries=0.5, summary_skill=1.0)
    >>> len(draw_conversations(cache, shows, Lists(), keys.key(0), 3, skill=1.0))
    3
    """
    named, hands, _, places, finished, kinds = keys.split(key, 6)
    tasks = [list_task(lists, key_of(words)) for words in task_keys(named, "training", number)]
    lengths = torch.tensor([len(task.numbers) for task in tasks])
    begun = (keys.uniform(places, (number,)) * lengths).long()
    counts = map(int, torch.where(keys.bernoulli(finished, FINISHED, (number,)), lengths, begun))
    reasons = map(bool, ~keys.bernoulli(kinds, shows.summaries, (number,)))
    own = keys.split(hands, number)
    every = zip(tasks, counts, reasons, own, strict=True)
    return tuple(show(cache, shows, *each, skill=skill) for each in every)
