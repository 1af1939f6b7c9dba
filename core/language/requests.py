"""Requests for episodes: one request is one episode, and all its randomness comes from two keys.

The task key determines the environment, the sampling key the model's samples. For several episodes make several requests:
`expand` for a group of attempts at one task, `repeat` for more tasks. Task keys belong to one of two streams, training or
evaluation, distinguished by a bit of the key itself, so that no key is in both, for any seeds.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from attrs import evolve, frozen

from .. import keys
from ..errors import ChoiceError, choose, message
from ..keys import Key

Words = tuple[int, int]  # a key as two numbers: requests are values of numbers, strings and tuples
Draw = Callable[[Key, str, int], Words]  # (key, stream, number) -> task key, where tasks come from a list
STREAMS = {"training": 0, "evaluation": 1}  # the lowest bit of the first word of a task key
WORLD = 1 << 40  # separates the keys of an environment's steps from numbers that its reset may fold into the task key


@frozen(kw_only=True)
class Request:
    """One episode to run. `group` is shared by the attempts at one task; `participants` are the models that take part.

    The episode has one rollout for each participant.
    """

    id: int
    group: int
    task: Words
    sampling: Words
    participants: tuple[str, ...] = ("policy",)


@frozen
class RolloutSpec:
    """One participant's part of an episode: the request, the participant, and its own sampling key."""

    request: Request
    participant: str
    sampling: Words


def words_of(key: Key) -> Words:
    """Return the two numbers of a key [2].

    >>> words_of(keys.key(7))
    (7, 0)
    """
    return int(key[0]), int(key[1])


def key_of(words: Words) -> Key:
    """Return the key [2] of two numbers.

    >>> key_of((7, 0))
    tensor([7, 0])
    """
    return torch.tensor(words, dtype=torch.int64)


def task_keys(key: Key, stream: str, n: int, *, first: int = 0) -> tuple[Words, ...]:
    """Return the task keys number first..first + n - 1 of a stream, "training" or "evaluation".

    The lowest bit of the first word is 0 in training and 1 in evaluation: no key is in both streams, even if they are drawn
    from different keys. Raises: ChoiceError.

    >>> [words[0] % 2 for words in task_keys(keys.key(0), "evaluation", 3)]
    [1, 1, 1]
    """
    bit = choose("task_keys: stream", stream, STREAMS)
    if n < 0 or first < 0:
        got, remedy = (n, first), "count from 0"
        raise ChoiceError(message("task_keys: n and first", got=got, wanted="none below 0", remedy=remedy))
    drawn = keys.fold_in(key, torch.arange(first, first + n))
    return tuple((low & ~1 | bit, high) for low, high in map(words_of, drawn))


def drawn_keys(draw: Draw, key: Key, stream: str, n: int, first: int = 0) -> tuple[Words, ...]:
    """Return the task keys that `draw` gives prompts number first..first + n - 1 of a stream.

    >>> drawn_keys(lambda key, stream, number: (number, 0), keys.key(0), "training", 2, first=5)
    ((5, 0), (6, 0))
    """
    return tuple(draw(key, stream, number) for number in range(first, first + n))


def stream_of(task: Words) -> str:
    """Return the stream of a task key.

    >>> stream_of((6, 0)), stream_of((7, 0))
    ('training', 'evaluation')
    """
    return next(stream for stream, bit in STREAMS.items() if bit == task[0] & 1)


def requests(
    tasks: tuple[Words, ...], key: Key, *, first: int = 0, participants: tuple[str, ...] = ("policy",)
) -> tuple[Request, ...]:
    """Return a request for each task key, numbered from `first`, each its own group, with a sampling key drawn from `key`.

    Raises: ChoiceError for no participants, or one named twice.

    >>> [request.id for request in requests(((0, 0), (2, 0)), keys.key(1), first=5)]
    [5, 6]
    """
    if not participants or len(set(participants)) < len(participants):
        wanted, remedy = "names, each once", "name every participant"
        raise ChoiceError(message("requests: participants", got=participants, wanted=wanted, remedy=remedy))
    numbers = range(first, first + len(tasks))
    drawn = keys.fold_in(key, torch.arange(first, first + len(tasks)))
    return tuple(
        Request(id=number, group=number, task=task, sampling=words_of(sampling), participants=participants)
        for number, task, sampling in zip(numbers, tasks, drawn, strict=True)
    )


def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
    """Return n attempts at one task: the same task key and group, and different sampling keys, from `key` and the id.

    Attempt i has id `request.id * n + i`, so that requests with different ids have attempts with different ids. The same key
    can be used for all requests of a batch. Raises: ChoiceError.

    Source: the groups of GRPO, Shao et al. 2024, arXiv:2402.03300.

    >>> group = expand(Request(id=2, group=2, task=(6, 0), sampling=(1, 1)), 3, keys.key(0))
    >>> [attempt.id for attempt in group], {attempt.task for attempt in group}, len({a.sampling for a in group})
    ([6, 7, 8], {(6, 0)}, 3)
    """
    drawn = keys.split(keys.fold_in(key, request.id), _count("expand", n))
    return tuple(
        evolve(request, id=request.id * n + i, sampling=words_of(sampling)) for i, sampling in enumerate(drawn)
    )


def repeat(request: Request, n: int, key: Key) -> tuple[Request, ...]:
    """Return n requests with new tasks, groups and sampling keys, in the stream of the request's task.

    Request i has id and group `request.id * n + i`. Raises: ChoiceError.

    >>> again = repeat(Request(id=2, group=2, task=(7, 0), sampling=(1, 1)), 2, keys.key(0))
    >>> [request.group for request in again], {stream_of(request.task) for request in again}
    ([4, 5], {'evaluation'})
    """
    worlds, samplers = keys.split(key)
    tasks = task_keys(keys.fold_in(worlds, request.id), stream_of(request.task), _count("repeat", n))
    attempts = zip(expand(request, n, samplers), tasks, strict=True)
    return tuple(evolve(attempt, group=attempt.id, task=task) for attempt, task in attempts)


def rollouts(request: Request) -> tuple[RolloutSpec, ...]:
    """Return the rollouts of a request, one for each participant, each with its own sampling key.

    >>> request = Request(id=0, group=0, task=(0, 0), sampling=(1, 1), participants=("asks", "answers"))
    >>> [rollout.participant for rollout in rollouts(request)]
    ['asks', 'answers']
    """
    drawn = (_block(request.sampling, (number, 0, keys.SPLIT, 0)) for number in range(len(request.participants)))
    return tuple(
        RolloutSpec(request, participant, words) for participant, words in zip(request.participants, drawn, strict=True)
    )


def call_key(rollout: RolloutSpec, call: int) -> Key:
    """Return the sampling key [2] of a participant's model call number `call`; the same if the call is repeated.

    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(1, 1)))[0]
    >>> torch.equal(call_key(rollout, 0), call_key(rollout, 0)), torch.equal(call_key(rollout, 0), call_key(rollout, 1))
    (True, False)
    """
    return key_of(_folded(rollout.sampling, call))


def world_key(request: Request, call: int) -> Key:
    """Return the key [2] of the environment's step after model call number `call`. Its reset uses `key_of(request.task)`.

    >>> world_key(Request(id=0, group=0, task=(0, 0), sampling=(1, 1)), 0).shape
    torch.Size([2])
    """
    return key_of(_folded(_folded(request.task, WORLD), call))


def _folded(words: Words, number: int) -> Words:
    """Return the words of `keys.fold_in`."""
    return _block(words, (number & keys.WORD, number >> 32 & keys.WORD, keys.FOLD, 0))


def _block(words: Words, counter: tuple[int, int, int, int]) -> Words:
    """Return two words of Philox, computed with Python integers: on single keys tensors are 100 times slower."""
    first, second, *_ = cast(tuple[int, ...], keys.philox(cast(Any, words), counter))
    return first, second


def _count(where: str, n: int) -> int:
    if n < 1:
        raise ChoiceError(message(f"{where}: n", got=n, wanted="at least 1", remedy="ask for one or more"))
    return n
