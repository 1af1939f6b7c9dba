"""Laws of requests: each is one episode, reproducible from its keys; more episodes are more requests.

The subject is an `Asking`: the functions that make requests.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.requests import Request, RolloutSpec, Words, requests, stream_of, words_of
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds

# --- mutants ---
# Common errors in the multiplicity of requests.


@frozen
class Asking:
    """The functions of core.language.requests, under their names there."""

    task_keys: Callable[..., tuple[Words, ...]]
    expand: Callable[[Request, int, Key], tuple[Request, ...]]
    repeat: Callable[[Request, int, Key], tuple[Request, ...]]
    rollouts: Callable[[Request], tuple[RolloutSpec, ...]]


def _expanding(change: Callable[[Request, Request], Request]) -> Callable[[Asking], Asking]:
    def make(asking: Asking) -> Asking:
        def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
            return tuple(change(request, attempt) for attempt in asking.expand(request, n, key))

        return evolve(asking, expand=expand)

    return make


def same_for_all_groups(asking: Asking) -> Asking:
    """Derive the sampling keys of every group from the key alone."""

    def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        attempts = asking.expand(request, n, key)
        return tuple(
            evolve(attempt, sampling=words_of(own)) for attempt, own in zip(attempts, keys.split(key, n), strict=True)
        )

    return evolve(asking, expand=expand)


def counts_runs(asking: Asking) -> Asking:
    """Fold the number of calls into the key."""
    asked: list[int] = []

    def expand(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        asked.append(n)
        return asking.expand(request, n, keys.fold_in(key, len(asked)))

    return evolve(asking, expand=expand)


def one_stream(asking: Asking) -> Asking:
    """Use the training tasks from number 1000 on for evaluation."""

    def task_keys(key: Key, stream: str, n: int, *, first: int = 0) -> tuple[Words, ...]:
        return asking.task_keys(key, "training", n, first=first + (1000 if stream == "evaluation" else 0))

    return evolve(asking, task_keys=task_keys)


def always_from_the_start(asking: Asking) -> Asking:
    """Begin each chunk of a stream at its first task."""
    return evolve(asking, task_keys=lambda key, stream, n, *, first=0: asking.task_keys(key, stream, n))


def repeats_one_task(asking: Asking) -> Asking:
    """Repeat the task along with the request."""

    def repeat(request: Request, n: int, key: Key) -> tuple[Request, ...]:
        return tuple(evolve(again, task=request.task) for again in asking.repeat(request, n, key))

    return evolve(asking, repeat=repeat)


def one_voice(asking: Asking) -> Asking:
    """Let all participants sample with the request's own key."""

    def rollouts(request: Request) -> tuple[RolloutSpec, ...]:
        return tuple(evolve(rollout, sampling=request.sampling) for rollout in asking.rollouts(request))

    return evolve(asking, rollouts=rollouts)


own_groups = _expanding(lambda request, attempt: evolve(attempt, group=attempt.id))
ids_from_zero = _expanding(lambda request, attempt: evolve(attempt, id=attempt.id - request.id * 2))

MUTANTS: dict[str, Callable[[Any], Any]] = {
    "numbers the attempts of neighbours over one another": ids_from_zero,
}


# --- laws ---


SOURCE = "core.language.requests: everything random in an episode comes from a task key and a sampling key"
PEOPLE = ("asks", "answers", "judges")


@frozen
class Batch:
    """Seeds of tasks and samplers, the number of requests and of attempts, the first task, the participants and the stream."""

    tasks: int
    samplers: int
    count: int
    n: int
    first: int
    people: int
    stream: str

    def requests(self, asking: Asking) -> tuple[Request, ...]:
        """The requests of the batch."""
        found = asking.task_keys(keys.key(self.tasks), self.stream, self.count, first=self.first)
        return requests(found, keys.key(self.samplers), first=self.first, participants=PEOPLE[: self.people])


def batches() -> SearchStrategy[Batch]:
    """Draw batches of up to four requests; some begin where a fixed offset between streams would make them overlap."""
    return st.builds(
        Batch,
        seeds(),
        seeds(),
        st.integers(1, 4),
        st.integers(1, 4),
        st.sampled_from((0, 1, 997, 1000)),
        st.integers(1, 3),
        st.sampled_from(("training", "evaluation")),
    )


def request_laws() -> Suite:
    """The laws of requests."""
    return Suite("request_laws", (_group(), _samplers(), _again(), _streams(), _chunks(), _repeat(), _rollouts()))


_law = law_constructor(batches, SOURCE)


def _expanded(asking: Asking, batch: Batch) -> list[tuple[Request, tuple[Request, ...]]]:
    key = keys.key(batch.samplers + 1)
    return [(request, asking.expand(request, batch.n, key)) for request in batch.requests(asking)]


def _group() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        seen("a group of several", batch.n > 1)
        for request, attempts in _expanded(asking, batch):
            same("the number of attempts", len(attempts), batch.n)
            for attempt in attempts:
                same("task, group and people", _shared(attempt), _shared(request))

    mutant = Mutant("makes each attempt a group of its own", own_groups)
    claim = "The attempts of a group share the request's task, group and participants."
    return _law("one_task_in_a_group", claim, mutant, check, "a group of several")


def _shared(request: Request) -> tuple[Any, ...]:
    return request.task, request.group, request.participants


def _samplers() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        attempts = [attempt for _, group in _expanded(asking, batch) for attempt in group]
        seen("several groups", batch.count > 1)
        require(len({attempt.sampling for attempt in attempts}) == len(attempts), "a sampling key for each attempt")
        require(len({attempt.id for attempt in attempts}) == len(attempts), "an id for each attempt")

    mutant = Mutant("draws the same sampling keys for every group", same_for_all_groups)
    claim = "All attempts of all groups have sampling keys and ids of their own."
    return _law("sampling_keys_differ", claim, mutant, check, "several groups")


def _again() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        first, second = _expanded(asking, batch), _expanded(asking, batch)
        same("the groups, asked for twice", second, first)
        key = keys.key(batch.samplers)
        other, alone = first[-1][0], asking.expand(first[-1][0], batch.n, keys.key(batch.samplers + 1))
        seen("one of several", len(first) > 1)
        same("the last group, asked for alone", alone, first[-1][1])
        same("repeated twice", asking.repeat(other, batch.n, key), asking.repeat(other, batch.n, key))

    mutant = Mutant("counts how often it was asked", counts_runs)
    claim = "The same request and key give the same attempts, whatever else was asked before."
    return _law("reproducible", claim, mutant, check, "one of several")


def _streams() -> Law:
    def check(asking: Asking, inputs: tuple[Batch, int], seen: Seen) -> None:
        batch, other = inputs
        training = asking.task_keys(keys.key(batch.tasks), "training", 8, first=batch.first)
        seen("training beyond a thousand tasks", batch.first > 990)
        for seed in (batch.tasks, other):
            held_out = asking.task_keys(keys.key(seed), "evaluation", 8)
            require(not set(training) & set(held_out), "no training task is an evaluation task")
            same("the streams", {stream_of(task) for task in held_out}, {"evaluation"})
        same("the stream", {stream_of(task) for task in training}, {"training"})
        same("tasks that differ", len(set(training)), 8)

    mutant = Mutant("evaluates on later tasks of the training stream", one_stream)
    claim = "No key is in the training stream and in the evaluation stream, of the same seed or of any other."
    inputs = st.tuples(batches(), seeds())
    return _law("held_out", claim, mutant, check, "training beyond a thousand tasks", inputs=inputs)


def _chunks() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        key = keys.key(batch.tasks)
        whole = asking.task_keys(key, batch.stream, batch.count + batch.n, first=batch.first)
        head = asking.task_keys(key, batch.stream, batch.count, first=batch.first)
        tail = asking.task_keys(key, batch.stream, batch.n, first=batch.first + batch.count)
        seen("a chunk that begins later", batch.first)
        same("the stream in two chunks", head + tail, whole)
        same("no tasks at all", asking.task_keys(key, batch.stream, 0, first=batch.first), ())

    mutant = Mutant("begins each chunk with the first task", always_from_the_start)
    claim = "A stream is the same in one piece and in chunks."
    return _law("streams_in_chunks", claim, mutant, check, "a chunk that begins later")


def _repeat() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        key = keys.key(batch.samplers + 2)
        found = [again for request in batch.requests(asking) for again in asking.repeat(request, batch.n, key)]
        seen("several of each", batch.n > 1)
        seen("evaluation", batch.stream == "evaluation")
        for values in zip(*((again.task, again.group, again.id, again.sampling) for again in found), strict=True):
            same("different tasks, groups, ids and sampling keys", len(set(values)), len(found))
        same("the stream", {stream_of(again.task) for again in found}, {batch.stream})

    mutant = Mutant("repeats the task along with the request", repeats_one_task)
    claim = "Repeated requests have tasks, groups and sampling keys of their own, in the stream they came from."
    return _law("repeats_are_new_tasks", claim, mutant, check, "several of each", "evaluation")


def _rollouts() -> Law:
    def check(asking: Asking, batch: Batch, seen: Seen) -> None:
        attempts = [attempt for _, group in _expanded(asking, batch) for attempt in group]
        found = [rollout for attempt in attempts for rollout in asking.rollouts(attempt)]
        seen("several participants", batch.people > 1)
        wanted = [(attempt, name) for attempt in attempts for name in PEOPLE[: batch.people]]
        same("whose", [(rollout.request, rollout.participant) for rollout in found], wanted)
        same("sampling keys that differ", len({rollout.sampling for rollout in found}), len(found))

    mutant = Mutant("lets all participants sample with one key", one_voice)
    claim = "An episode gives a rollout for each participant, each with a sampling key of its own."
    return _law("a_rollout_for_each", claim, mutant, check, "several participants")
