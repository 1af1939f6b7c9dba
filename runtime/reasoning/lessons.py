"""Demonstrations for a warm start: steps of reasoning, some of them wrong on purpose, and summaries.

Both begin somewhere on a list of the training stream, with the right summary of what lies behind.
"""

from typing import Any

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
from .cycles import prompts_world
from .parts import Calls, Parts, attempts_at, rules_of

FINISHED = 0.2  # the share of demonstrations behind the last number of their list


@frozen
class Shown:
    """A demonstration: what is asked, and what is said."""

    prompt: str
    text: str


def show(parts: Parts, task: ListTask, key: Key) -> Shown:
    """A demonstration of either kind, somewhere on the list."""
    finished, where, hand, summing, which = keys.split(key, 5)
    length, warm, numbers = len(task.numbers), parts.arguments.warm, parts.arguments.problems.numbers
    count = length if bool(keys.bernoulli(finished, FINISHED)) else int(keys.randint(where, (), 0, length))
    summary = right_summary(task, count)
    state = InferenceProblemState(problem=list_problem(task), curr_summary=summary)
    text = show_reasoning(task, count, hand, skill=warm.skill, numbers=numbers)
    if not bool(keys.bernoulli(which, warm.summaries)):
        said = aloud(text) if parts.cache.use_think_tags else text
        return Shown(get_filled_reasoning_prompt(parts.cache, state), said)
    prompt = get_filled_summarization_prompt(parts.cache, evolve(state, curr_reasoning=text))
    return Shown(prompt, show_summary(summary, text, summing, skill=warm.summary_skill))


def shown(parts: Parts, key: Key, number: int) -> tuple[Attempt[Any], ...]:
    """So many demonstrations as attempts that ended; one that is too long for a reply is left out."""
    tasks, hands, samples = keys.split(key, 3)
    named = task_keys(tasks, "training", number)
    lists = lists_of(parts.arguments.problems)
    own = keys.split(hands, number)
    every = [show(parts, list_task(lists, key_of(words)), hand) for words, hand in zip(named, own, strict=True)]
    longest = parts.arguments.speech.llm_max_tokens
    calls = Calls(prompts_world([one.prompt for one in every]), (longest,) * number)
    asked = requests(tuple((2 * place, 0) for place in range(number)), samples)
    told = []
    for one, begun in zip(every, attempts_at(parts, calls, asked), strict=True):
        ids = parts.spell(one.text)
        if len(ids) <= begun.room:
            zeros = (0,) * len(ids)
            said = Said(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros)
            told.append(hear(rules_of(calls.world), parts.codec, begun, said))
    return tuple(told)
