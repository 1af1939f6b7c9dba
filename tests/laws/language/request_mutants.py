"""How people get the multiplicity of requests wrong."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.requests import Request, Rollout, Words, words_of


@frozen
class Asking:
    """The functions of core.language.requests, under their names there."""

    task_keys: Callable[..., tuple[Words, ...]]
    expand: Callable[[Request, int, Key], tuple[Request, ...]]
    repeat: Callable[[Request, int, Key], tuple[Request, ...]]
    rollouts: Callable[[Request], tuple[Rollout, ...]]


def _expanding(change: Callable[[Request, Request], Request]) -> Callable[[Asking], Asking]:
    def make(asking: Asking) -> Asking:
        def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
            return tuple(change(request, attempt) for attempt in asking.expand(request, n, key))

        return evolve(asking, expand=expand)

    return make


def same_for_all_groups(asking: Asking) -> Asking:
    """Draws the sampling keys of every group from the key alone."""

    def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        attempts = asking.expand(request, n, key)
        return tuple(
            evolve(attempt, sampling=words_of(own)) for attempt, own in zip(attempts, keys.split(key, n), strict=True)
        )

    return evolve(asking, expand=expand)


def counts_runs(asking: Asking) -> Asking:
    """Folds into the key how often it was asked."""
    asked: list[int] = []

    def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        asked.append(n)
        return asking.expand(request, n, keys.fold_in(key, len(asked)))

    return evolve(asking, expand=expand)


def one_stream(asking: Asking) -> Asking:
    """Evaluates on the training tasks from number 1000 on."""

    def task_keys(key: Key, stream: str, n: int, *, first: int = 0) -> tuple[Words, ...]:
        return asking.task_keys(key, "training", n, first=first + (1000 if stream == "evaluation" else 0))

    return evolve(asking, task_keys=task_keys)


def always_from_the_start(asking: Asking) -> Asking:
    """Begins each chunk of a stream at its first task."""
    return evolve(asking, task_keys=lambda key, stream, n, *, first=0: asking.task_keys(key, stream, n))


def repeats_one_task(asking: Asking) -> Asking:
    """Repeats the task along with the request."""

    def repeat(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        return tuple(evolve(again, task=request.task) for again in asking.repeat(request, n, key))

    return evolve(asking, repeat=repeat)


def one_voice(asking: Asking) -> Asking:
    """Lets all participants sample with the request's own key."""

    def rollouts(request: Request) -> tuple[Rollout, ...]:
        return tuple(evolve(rollout, sampling=request.sampling) for rollout in asking.rollouts(request))

    return evolve(asking, rollouts=rollouts)


own_groups = _expanding(lambda request, attempt: evolve(attempt, group=attempt.id))
ids_from_zero = _expanding(lambda request, attempt: evolve(attempt, id=attempt.id - request.id * 2))

MUTANTS: dict[str, Callable[[Any], Any]] = {
    "numbers the attempts of neighbours over one another": ids_from_zero,
}
