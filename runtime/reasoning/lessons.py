"""Demonstrations for a warm start: steps of reasoning, some of them wrong on purpose, and summaries.

Both begin somewhere on a list of the training stream, with the right summary of what lies behind.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from ...core import keys
from ...core.keys import Key
from ...core.language.attempt import Attempt, Said, hear
from ...core.language.reasoning_cache import get_filled_reasoning_prompt, get_filled_summarization_prompt
from ...core.language.reasoning_demonstrations import aloud, show_reasoning, show_summary
from ...core.language.reasoning_state import InferenceProblemState
from ...core.language.reasoning_tasks import ListTask, list_problem, list_task, right_summary
from ...core.language.requests import key_of, requests, task_keys
from ..recipes.cache import lists_of
from .parts import Calls, Parts, attempts_at, rules_of
from .speaking import prompts_world

SUMMING = 1  # what is drawn from a demonstration's key beside its reasoning
FINISHED = 0.2  # the share of demonstrations behind the last number of their list


@frozen
class Shown:
    """A demonstration: what is asked, and what is said."""

    prompt: str
    text: str


def show(parts: Parts, task: ListTask, count: int, reasons: bool, key: Key) -> Shown:
    """A demonstration of either kind, behind the first `count` numbers of the list."""
    warm, numbers = parts.arguments.warm, parts.arguments.problems.numbers
    summary = right_summary(task, count)
    state = InferenceProblemState(problem=list_problem(task), curr_summary=summary)
    text = show_reasoning(task, count, key, skill=warm.skill, numbers=numbers)
    if reasons:
        said = aloud(text) if parts.cache.use_think_tags else text
        return Shown(get_filled_reasoning_prompt(parts.cache, state), said)
    prompt = get_filled_summarization_prompt(parts.cache, evolve(state, curr_reasoning=text))
    return Shown(prompt, show_summary(summary, text, keys.fold_in(key, SUMMING), skill=warm.summary_skill))


def shown(parts: Parts, key: Key, number: int) -> tuple[Attempt[Any], ...]:
    """So many demonstrations as attempts that ended; one that is too long for a reply is left out."""
    named, hands, samples, places, finished, kinds = keys.split(key, 6)
    lists = lists_of(parts.arguments.problems)
    tasks = [list_task(lists, key_of(words)) for words in task_keys(named, "training", number)]
    lengths = torch.tensor([len(task.numbers) for task in tasks])
    begun = (keys.uniform(places, (number,)) * lengths).long()
    counts = torch.where(keys.bernoulli(finished, FINISHED, (number,)), lengths, begun).tolist()
    reasons = (~keys.bernoulli(kinds, parts.arguments.warm.summaries, (number,))).tolist()
    own = keys.split(hands, number)
    every = [show(parts, *each) for each in zip(tasks, counts, reasons, own, strict=True)]
    return _heard(parts, every, samples)


def _heard(parts: Parts, every: Sequence[Shown], samples: Key) -> tuple[Attempt[Any], ...]:
    """Demonstrations as attempts at calls."""
    longest = parts.arguments.speech.llm_max_tokens
    calls = Calls(prompts_world([one.prompt for one in every]), (longest,) * len(every))
    asked = requests(tuple((2 * place, 0) for place in range(len(every))), samples)
    told = []
    for one, begun in zip(every, attempts_at(parts, calls, asked), strict=True):
        ids = parts.spell(one.text)
        if len(ids) <= begun.room:
            zeros = (0,) * len(ids)
            said = Said(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros)
            told.append(hear(rules_of(calls.world), parts.codec, begun, said))
    return tuple(told)
