"""Prompting as a pure machine: it sends prompts to a model, receives replies, and returns a result at the end.

(state, replies) -> (state, prompts), until there are no more prompts. The caller decides where the model runs.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from attrs import frozen

from ..keys import Key
from .events import STOP
from .requests import Words
from .types import ModelOutput

S = TypeVar("S")
R = TypeVar("R")


@frozen(kw_only=True)
class Query:
    """A prompt to be completed, as a separate conversation."""

    prompt: str
    sampling: Words  # the key of its tokens: the same key and the same weights give the same text
    max_new_tokens: int
    worker: int = 0  # queries of different workers are completed in parallel, each worker's by its own model
    delay: float = 0.0  # seconds to wait before sending, e.g. for a retry after an error


@frozen(kw_only=True)
class Response:
    """The completion of a query. `said` is () if the prompt left no room for a completion."""

    text: str = ""
    finish_reason: str = STOP
    said: ModelOutput | tuple[()] = ()
    version: int = 0  # of the weights
    error: str = ""  # of a call that failed with a transient error


@frozen(kw_only=True)
class Prompting(Generic[S, R]):
    """A pure machine that prompts a model.

    `begin(key, number, count)` starts `count` tasks from number `number * count` on; the key is the run's, so `begin` must
    fold the number into it. `step(state, responses)` takes a response to each query of the previous state, in their order.
    Both return the next queries, () at the end. `result(state)` is the result of the final state.
    """

    begin: Callable[[Key, int, int], tuple[S, tuple[Query, ...]]]
    step: Callable[[S, tuple[Response, ...]], tuple[S, tuple[Query, ...]]]
    result: Callable[[S], R]


def prompted(
    prompting: Prompting[S, R],
    key: Key,
    number: int,
    count: int,
    complete: Callable[[tuple[Query, ...]], Sequence[Response]],
) -> R:
    """Return the result of a prompting, with `complete` called for all pending queries at a time.

    >>> from .. import keys
    >>> ask = lambda text: (Query(prompt=text, sampling=(0, 0), max_new_tokens=4),)
    >>> twice = Prompting(
    ...     begin=lambda key, number, count: (0, ask("2 + 3?")),
    ...     step=lambda turn, said: (said[0].text, ask(said[0].text) if turn == 0 else ()),
    ...     result=lambda text: text,
    ... )
    >>> prompted(twice, keys.key(0), 0, 1, lambda queries: [Response(text=one.prompt + "!") for one in queries])
    '2 + 3?!!'
    """
    state, queries = prompting.begin(key, number, count)
    while queries:
        state, queries = prompting.step(state, tuple(complete(queries)))
    return prompting.result(state)
