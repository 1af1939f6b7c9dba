"""Requests of samples by prompt number: prompts are numbered in the order in which a run without generators asks them."""

from collections.abc import Callable
from functools import lru_cache, partial

from ...core import keys
from ...core.keys import Key
from ...core.language.requests import Draw, Request, expand, requests, task_keys
from ...core.language.task import TRAINING
from ..text.config import TextConfig
from ..text.training_loop import TASKS

KEPT = 4096  # largest number of prompts whose requests are cached


def prompt_requests(arguments: TextConfig, key: Key, prompt: int, draw: Draw | tuple[()] = ()) -> tuple[Request, ...]:
    """Return the requests of a prompt, one for each member of its group: those of group p mod G in step p div G of training.

    So runs with and without generators ask the same in the same order.

    >>> from ..text.training_loop import asked
    >>> from ..text.config import TaskRun
    >>> few = TaskRun()
    >>> prompt_requests(few, keys.key(0), 17) == asked(few, keys.key(0), 1)[8:16]
    True
    """
    step, group = divmod(prompt, arguments.episodes.groups)
    run = keys.fold_in(key, TASKS)
    tasks, samples = keys.split(keys.fold_in(run, step))
    drawn = task_keys(tasks, TRAINING, 1, first=group) if isinstance(draw, tuple) else (draw(run, TRAINING, prompt),)
    request = requests(drawn, samples, first=prompt)[0]
    return expand(request, arguments.episodes.samples, samples)


def remembered(arguments: TextConfig, key: Key, draw: Draw | tuple[()] = ()) -> Callable[[int, int], Request]:
    """Return a function (prompt, seat) -> request that caches the requests of a group."""
    group = lru_cache(KEPT)(partial(prompt_requests, arguments, key, draw=draw))
    return lambda prompt, seat: group(prompt)[seat]
