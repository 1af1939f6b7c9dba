"""Requests of samples by prompt number: prompts are numbered in the order in which a run without generators asks them."""

from collections.abc import Callable
from functools import lru_cache, partial

from ...core.keys import Key
from ...core.language.requests import Draw, Request
from ..text.config import TextConfig
from ..text.training_loop import prompt_requests

KEPT = 4096  # largest number of prompts whose requests are cached


def caching_requests(arguments: TextConfig, key: Key, draw: Draw | tuple[()] = ()) -> Callable[[int, int], Request]:
    """Return a function (prompt, seat) -> request that caches the requests of a group."""
    group = lru_cache(KEPT)(partial(prompt_requests, arguments, key, draw=draw))
    return lambda prompt, seat: group(prompt)[seat]
