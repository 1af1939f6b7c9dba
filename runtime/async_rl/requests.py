"""Requests of samples by prompt number: prompts are numbered in the order in which a run without generators asks them."""

from collections.abc import Callable
from functools import lru_cache, partial

from ...core import keys
from ...core.keys import Key
from ...core.language.requests import Request, expand, requests, task_keys
from ..text.config import TextConfig
from ..text.training_loop import TASKS

KEPT = 4096  # largest number of prompts whose requests are cached


def prompt_requests(arguments: TextConfig, key: Key, prompt: int) -> tuple[Request, ...]:
    """Return the requests of a prompt, one for each member of its group: those of group p mod G in step p div G of training.

    So runs with and without generators ask the same in the same order.

    >>> from ..text.training_loop import asked
    >>> from ..text.config import TaskRun
    >>> few = TaskRun()
    >>> prompt_requests(few, keys.key(0), 17) == asked(few, keys.key(0), 1)[8:16]
    True
    """
    step, group = divmod(prompt, arguments.episodes.groups)
    tasks, samples = keys.split(keys.fold_in(keys.fold_in(key, TASKS), step))
    request = requests(task_keys(tasks, "training", 1, first=group), samples, first=prompt)[0]
    return expand(request, arguments.episodes.samples, samples)


def remembered(arguments: TextConfig, key: Key) -> Callable[[int, int], Request]:
    """Return a function (prompt, seat) -> request that caches the requests of a group."""
    group = lru_cache(KEPT)(partial(prompt_requests, arguments, key))
    return lambda prompt, seat: group(prompt)[seat]
