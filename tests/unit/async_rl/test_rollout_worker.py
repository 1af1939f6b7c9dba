"""Generators at work: what they sample, with which weights, what is given up, and what a wrong answer or a bad tool costs."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import define, evolve, field

from purestep.core import keys
from purestep.core.errors import ShapeError, StructureError
from purestep.core.language.episode import Grade
from purestep.core.language.parsers import Call, Parsed
from purestep.core.language.requests import Request
from purestep.core.language.text_env import Outcome
from purestep.core.language.types import Sample
from purestep.core.language.zorplex.env import ZorplexState
from purestep.core.record import replace
from purestep.core.transcript.log_probs import token_log_probs
from purestep.core.tree import leaves
from purestep.runtime.async_rl import rollout_worker
from purestep.runtime.async_rl.grading import Grading
from purestep.runtime.async_rl.orchestrator import faults_of_answers
from purestep.runtime.async_rl.rollout_worker import (
    Cancel,
    Cancelled,
    Progress,
    RolloutRequest,
    Spec,
    generate,
    samples_of,
)
from purestep.runtime.async_rl.tool_service import served_tools
from purestep.runtime.effects.tools.guard import ToolFailed
from purestep.runtime.effects.weight_sync.shared_memory.publisher import Publisher, publishing
from purestep.runtime.effects.workers.pool import (
    WorkerAnswer,
    WorkerLost,
    WorkerMessage,
    Workers,
    WorkersError,
    in_process,
    in_thread,
    working,
)
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text.components import TextComponents, attempts_at, sampler, text_components
from purestep.runtime.text.training_loop import training_requests

TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "groups": 3,
    "samples": 2,
    "max_turns": 3,
    "max_new_tokens": 8,
    "capacity": 96,
    "mode": "async",
    "generator_slots": 3,
}
WORDS: Any = "hello"
SECONDS = 60.0  # in which everything here comes, on a busy machine too


def tiny(**changes: Any) -> Zorplex:
    return changed(zorplex_defaults(), {**TINY, **changes})


PARTS = text_components(tiny())
REQUESTS = training_requests(tiny(), keys.key(0), 0)


def weights(version: int) -> dict[str, torch.Tensor]:
    return PARTS.model.init(keys.fold_in(keys.key(5), version))  # type: ignore[no-any-return]


@define
class Stepping:
    """A generator's mailbox. At its start and after each chunk that it has told of, the generator waits to be let on."""

    inner: Any
    gate: threading.Semaphore

    def receive(self, seconds: float) -> tuple[Any, ...]:
        return self.inner.receive(seconds)  # type: ignore[no-any-return]

    def answer(self, task: int, payload: Any) -> None:
        self.inner.answer(task, payload)

    def note(self, payload: Progress) -> None:
        self.inner.note(payload)
        if payload.tokens:
            assert self.gate.acquire(timeout=SECONDS)


@define
class Scene:
    """Generators, their weights, and what they have said."""

    workers: Workers
    weights: Publisher
    gate: threading.Semaphore
    answers: dict[int, Any] = field(factory=dict)
    told: list[tuple[int, int, int]] = field(factory=list)
    kinds: set[str] = field(factory=set)
    failures: int = 0
    lost: list[WorkerLost] = field(factory=list)
    order: list[str] = field(factory=list)

    def ask(self, jobs: dict[int, Any], worker: int = 0) -> None:
        for task, payload in jobs.items():
            self.workers.send(worker, task, payload)

    def until(self, enough: Callable[[], bool]) -> None:
        """Hears what is said until there is enough of it."""
        over = time.monotonic() + SECONDS
        while not enough():
            assert time.monotonic() < over, self
            self.heard(self.workers.receive(0.2))

    def heard(self, report: Any) -> None:
        if isinstance(report, WorkerAnswer):
            self.answers[report.task] = report.payload
            self.order.append(f"answer {report.task}")
        elif isinstance(report, WorkerLost):
            self.lost.append(report)
        elif isinstance(report, WorkerMessage):
            self.told.extend(report.payload.tokens)
            self.order.extend(f"tokens {task}" for task, _, _ in report.payload.tokens)
            self.kinds.update(kind for kind, *_ in report.payload.spans)
            self.failures += report.payload.tool_failures

    def made(self, task: int) -> Sample:
        answer = self.answers[task]
        assert isinstance(answer, Sample)
        return answer


@contextmanager
def at_work(
    arguments: Zorplex,
    *,
    version: int = 0,
    stepping: bool = False,
    body: Any = generate,
    engine: Any = in_thread,
    like: Any = (),
    tries: int = 5,
) -> Iterator[Scene]:
    """A generator with weights of a version, none for -1; one that is `stepping` waits for the gate again and again."""
    gate = threading.Semaphore(0)

    def stepped(mailbox: Any, spec: Spec) -> None:
        assert gate.acquire(timeout=SECONDS)
        body(Stepping(mailbox, gate), spec)

    with publishing(like or weights(0)) as publisher:
        if version >= 0:
            publisher.publish(version, like or weights(version))
        spec = Spec(arguments=arguments, tokenizer={}, weights=f"shared://{publisher.path}")
        refuse = faults_of_answers(arguments, PARTS)
        run = stepped if stepping else body
        with working(run, (spec,), size=1, patience=SECONDS, engine=engine, refuse=refuse, tries=tries) as workers:
            try:
                yield Scene(workers, publisher, gate)
            finally:
                gate.release(1000)


def directly(arguments: Zorplex, version: int, requests: Any, parts: TextComponents = PARTS) -> list[Sample]:
    """The samples of requests that are sampled in this process."""
    sampling = arguments.sampling
    attempts = sampler(parts, temperature=sampling.temperature)(weights(version), version, requests)
    return list(samples_of(parts.task, attempts, capacity=sampling.capacity, calls=arguments.episodes.max_turns))


def alike(got: Sample, wanted: Sample) -> None:
    """The same sample; log-probs may be rounded otherwise beside others."""
    blank = torch.zeros_like(wanted.row.token, dtype=torch.float32)
    columns = {"behaviour_log_prob": blank, "proximal_log_prob": blank}
    pairs = zip(leaves(replace(got.row, **columns)), leaves(replace(wanted.row, **columns)), strict=True)
    assert all(torch.equal(mine, its) for mine, its in pairs)
    assert torch.allclose(got.row.behaviour_log_prob, wanted.row.behaviour_log_prob, atol=1e-4)
    assert evolve(got, row=()) == evolve(wanted, row=())  # type: ignore[arg-type]


def of_their_versions(sample: Sample, told: list[tuple[int, int, int]]) -> None:
    """Each token has the log-prob that the weights of its version give it, and was told of as it was made."""
    row = sample.row
    for version in set(row.version[row.is_action].tolist()):
        params, chosen = weights(version), row.version == version
        logits = PARTS.speaker.head(params, PARTS.speaker.apply(params, row.token, (), ()))
        wanted = token_log_probs(logits, row.token)
        assert torch.allclose(row.behaviour_log_prob[chosen], wanted[chosen], atol=1e-4)
    said = Counter(row.version[row.is_action].tolist())
    heard = Counter[int]()
    for _, tokens, version in told:
        heard[version] += tokens
    assert heard == said


# --- rewards beside sampling ---


def test_sampling_goes_on_while_a_judge_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of, release = threading.Event(), threading.Event()

    def judge(attempts: Any) -> list[Grade]:
        asked_of.set()
        assert release.wait(SECONDS)
        return [Grade(0.5) for _ in attempts]

    judged = evolve(PARTS, task=evolve(PARTS.task, grader=judge))
    monkeypatch.setattr(rollout_worker, "text_components", lambda *given: judged)
    try:
        with at_work(tiny(), version=4) as scene:
            scene.ask({place: RolloutRequest(request, 3) for place, request in enumerate(REQUESTS)})
            scene.until(asked_of.is_set)
            for _ in range(2):
                before = len(scene.told)
                scene.until(lambda before=before: len(scene.told) > before)  # type: ignore[misc]
            assert not scene.answers
            release.set()
            scene.until(lambda: len(scene.answers) == len(REQUESTS))
    finally:
        release.set()
    rewards = [float(scene.made(place).row.reward.sum()) for place in range(len(REQUESTS))]
    plain = [float(wanted.row.reward.sum()) for wanted in directly(tiny(), 4, REQUESTS)]
    assert rewards == pytest.approx([reward + 0.5 for reward in plain])


def test_what_ends_during_a_call_of_the_grader_is_graded_by_the_next_and_cancelled_tasks_by_none() -> None:
    release, batches = threading.Semaphore(0), list[int]()

    def judge(attempts: Any) -> list[Grade]:
        batches.append(len(attempts))
        assert release.acquire(timeout=SECONDS)
        return [Grade(0.5) for _ in attempts]

    done = sampler(PARTS, temperature=1.0)(weights(0), 0, REQUESTS)
    grading, found = Grading(), list[int]()

    def heard(number: int) -> None:
        over = time.monotonic() + SECONDS
        while len(found) < number:
            assert time.monotonic() < over
            found.extend(task for task, _ in grading.graded(judge))

    grading.add(((0, done[0]), (1, done[1])))
    assert grading.graded(judge) == []
    grading.add(((2, done[2]), (3, done[3]), (4, done[4])))
    assert grading.graded(judge) == []
    assert [*grading.tasks] == [0, 1, 2, 3, 4]
    assert grading.cancel(1)
    assert grading.cancel(3)
    assert not grading.cancel(3)
    assert [*grading.tasks] == [0, 2, 4]
    release.release(2)
    heard(3)
    assert (found, batches, [*grading.tasks]) == ([0, 2, 4], [2, 2], [])


def test_an_error_of_the_grader_ends_the_generator_as_before() -> None:
    done = sampler(PARTS, temperature=1.0)(weights(0), 0, REQUESTS[:1])
    grading = Grading()
    grading.add(((0, done[0]),))
    grading.graded(lambda attempts: [])
    assert not isinstance(grading.result, tuple)
    grading.result.exception(SECONDS)
    with pytest.raises(ShapeError, match="grader: grades is 0, wanted 1"):
        grading.graded(lambda attempts: [])


# --- what is sampled ---


def test_a_generator_samples_what_is_sampled_without_one() -> None:
    arguments = tiny()
    with at_work(arguments, version=4) as scene:
        scene.ask({10 + place: RolloutRequest(request, 3) for place, request in enumerate(REQUESTS)})
        scene.until(lambda: len(scene.answers) == len(REQUESTS))
    for place, wanted in enumerate(directly(arguments, 4, REQUESTS)):
        alike(scene.made(10 + place), wanted)
        of_their_versions(wanted, [one for one in scene.told if one[0] == 10 + place])
    assert scene.kinds == {"sync", "generate"}
    assert scene.failures == 0


def test_jobs_wait_for_their_weights_and_a_generator_for_its_first() -> None:
    with at_work(tiny(), version=-1) as scene:
        scene.ask({0: RolloutRequest(REQUESTS[0], 2), 1: RolloutRequest(REQUESTS[1], 0)})
        scene.until(lambda: scene.workers.alive() == (0,))
        scene.weights.publish(1, weights(1))
        scene.until(lambda: "sync" in scene.kinds)
        scene.heard(scene.workers.receive(0.3))
        assert scene.told == []  # who came second does not pass who waits for newer weights
        scene.weights.publish(2, weights(2))
        scene.until(lambda: len(scene.answers) == 2)
    for task in (0, 1):
        alike(scene.made(task), directly(tiny(), 2, REQUESTS[task : task + 1])[0])


# --- weights that change ---


def test_what_is_under_way_goes_on_with_new_weights() -> None:
    with at_work(tiny(), stepping=True) as scene:
        scene.ask({place: RolloutRequest(request, 0) for place, request in enumerate(REQUESTS[:4])})
        for version in (1, 2):
            chunks = len(scene.told)
            scene.gate.release()
            scene.until(lambda chunks=chunks: len(scene.told) > chunks)  # type: ignore[misc]
            scene.weights.publish(version, weights(version))
        scene.gate.release(1000)
        scene.until(lambda: len(scene.answers) == 4)
    samples = [scene.made(task) for task in range(4)]
    assert {(one.head, one.tail) for one in samples} >= {(0, 2)}
    for task, sample in enumerate(samples):
        of_their_versions(sample, [one for one in scene.told if one[0] == task])


def test_what_is_not_to_be_interrupted_ends_with_the_weights_it_began_with() -> None:
    with at_work(tiny(interruptible=False), stepping=True) as scene:
        scene.ask({0: RolloutRequest(REQUESTS[0], 0)})
        scene.gate.release()
        scene.until(lambda: bool(scene.told))
        scene.weights.publish(1, weights(1))
        scene.ask({1: RolloutRequest(REQUESTS[1], 1)})
        scene.gate.release(1000)
        scene.until(lambda: len(scene.answers) == 2)
    alike(scene.made(0), directly(tiny(), 0, REQUESTS[:1])[0])
    alike(scene.made(1), directly(tiny(), 1, REQUESTS[1:2])[0])
    assert scene.order.index("answer 0") < scene.order.index("tokens 1")


# --- what is given up ---


def test_what_is_given_up_is_answered_once_and_nobody_else_notices() -> None:
    arguments = tiny(generator_slots=2)
    with at_work(arguments, stepping=True) as scene:
        scene.ask({place: RolloutRequest(request, 0) for place, request in enumerate(REQUESTS[:5])})
        scene.ask({5: RolloutRequest(REQUESTS[5], 9)})
        scene.gate.release()
        scene.until(lambda: bool(scene.told))
        assert {task for task, _, _ in scene.told} <= {0, 1}
        scene.ask(
            {10: Cancel(0), 13: Cancel(3), 15: Cancel(5), 17: Cancel(77)}
        )  # seated, waiting for a slot, for weights
        scene.gate.release(1000)
        scene.until(lambda: len(scene.answers) == 10)
        assert not scene.lost
        scene.ask({11: Cancel(1)})  # answered long ago
        scene.until(lambda: 11 in scene.answers)
    given_up = {task for task, answer in scene.answers.items() if isinstance(answer, Cancelled)}
    assert given_up == {0, 3, 5, 10, 11, 13, 15, 17}
    assert len(scene.order) - len([one for one in scene.order if "tokens" in one]) == len(scene.answers)
    for task, wanted in enumerate(directly(arguments, 0, REQUESTS[:5])):
        if task not in given_up:
            alike(scene.made(task), wanted)


# --- faults ---


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda sample: WORDS, "str, which is no sample"),
        (lambda sample: evolve(sample, tail=9), "versions that are not those of its tokens"),
        (
            lambda sample: evolve(sample, row=replace(sample.row, token=sample.row.token + 10**4)),
            "tokens outside the vocabulary",
        ),
    ],
    ids=["no sample", "versions", "tokens"],
)
def test_who_answers_garbage_is_lost_and_its_work_is_done_by_another(spoil: Any, said: str) -> None:
    right, first = directly(tiny(), 0, REQUESTS[:1])[0], [True]

    def babbling(mailbox: Any, spec: Spec) -> None:
        if not first.pop():
            return
        task, _ = mailbox.receive(SECONDS)
        mailbox.answer(task, spoil(right))
        mailbox.receive(SECONDS)

    def body(mailbox: Any, spec: Spec) -> None:
        (babbling if first else generate)(mailbox, spec)

    with at_work(tiny(), body=body) as scene:
        job = RolloutRequest(REQUESTS[0], 0)
        scene.ask({0: job, 1: RolloutRequest(REQUESTS[1], 0)})
        scene.until(lambda: bool(scene.lost))
        assert scene.lost[0].why == f"garbage: {said}"
        assert scene.lost[0].work[0] == (0, job)
        assert scene.answers == {}
        scene.until(lambda: scene.workers.alive() == (1,))
        scene.ask(dict(scene.lost[0].work), worker=1)
        scene.until(lambda: len(scene.answers) == 2)
    alike(scene.made(0), right)


def test_weights_of_another_architecture_are_named() -> None:
    other = text_components(tiny(width=32)).begin()
    with at_work(tiny(), like=other, tries=2) as scene:
        with pytest.raises(WorkersError, match=r"2 workers were lost in a row.*WeightsError"):
            scene.until(lambda: False)
        assert len(scene.lost) == 2
        assert ".weight is [462, 32] float32, wanted [462, 16] float32; build the architecture" in scene.lost[0].why


def test_what_has_not_ended_or_has_no_room_makes_no_sample() -> None:
    begun = attempts_at(PARTS, REQUESTS[:1])
    with pytest.raises(StructureError, match="samples_of: attempt is under way, wanted ended"):
        samples_of(PARTS.task, begun, capacity=96, calls=3)
    attempts = sampler(PARTS, temperature=1.0)(weights(0), 0, REQUESTS[:1])
    with pytest.raises(StructureError, match=r"samples_of: \(capacity, calls\) is \(9, 3\), wanted room"):
        samples_of(PARTS.task, attempts, capacity=9, calls=3)


# --- tools ---


def calling(parts: TextComponents, step: Any = ()) -> TextComponents:
    """The parts of a run in whose world every text is a call of a tool; `step` takes the place of the world's own."""
    words = parts.rules.env.params.vocabulary.words

    def parser(text: str) -> Parsed:
        return Parsed(Call("LOOKUP", words[len(text) % len(words)]))

    env = evolve(parts.rules.env, step=step or parts.rules.env.step)
    return evolve(parts, rules=evolve(parts.rules, env=env, parser=parser, incomplete="accept"))


def test_tools_behind_a_service_say_what_they_say_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = tiny(tool_replicas=2)
    monkeypatch.setattr(rollout_worker, "text_components", lambda *given: calling(PARTS))
    with at_work(arguments) as scene:
        scene.ask({place: RolloutRequest(request, 0) for place, request in enumerate(REQUESTS)})
        scene.until(lambda: len(scene.answers) == len(REQUESTS))
    for task, wanted in enumerate(directly(arguments, 0, REQUESTS, calling(PARTS))):
        alike(scene.made(task), wanted)
        assert wanted.figures["tool_calls"] > 1
    assert scene.failures == 0


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_tool_that_fails_costs_its_own_calls_and_each_is_counted(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, over, hung = tiny(tool_replicas=3, tool_timeout=0.5), threading.Event(), list[Any]()
    bad = attempts_at(PARTS, REQUESTS[:1])[0].episode.world.task

    def step(params: Any, state: ZorplexState, action: Any, key: Any) -> tuple[ZorplexState, Outcome]:
        if state.task == bad and how == "raises":
            raise OSError("no such table")
        if state.task == bad and len(hung) < 2:  # a call, with one replica and with another
            hung.append(action)
            over.wait(SECONDS)
        return PARTS.rules.env.step(params, state, action, key)

    requests: tuple[Request, ...] = REQUESTS[1:]  # the first of them is at that task
    monkeypatch.setattr(rollout_worker, "text_components", lambda *given: calling(PARTS, step))
    with at_work(arguments) as scene:
        try:
            scene.ask({place: RolloutRequest(request, 0) for place, request in enumerate(requests)})
            scene.until(lambda: len(scene.answers) == len(requests))
        finally:
            over.set()
    figures = scene.made(0).figures
    assert scene.failures == (figures["turns"] if how == "raises" else 1)
    assert figures["tool_calls"] == figures["turns"] - scene.failures
    assert figures["turns"] > 1
    assert not scene.lost
    for task, wanted in enumerate(directly(arguments, 0, requests, calling(PARTS))):
        if task:
            alike(scene.made(task), wanted)


def test_a_service_with_nobody_left_is_one_more_way_to_fail() -> None:
    failed: list[ToolFailed] = []
    over = threading.Event()

    def step(params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Outcome]:
        over.wait(SECONDS)
        return state, Outcome()

    given = tiny(tool_replicas=1, tool_timeout=0.05).asynchronous
    try:
        with served_tools(calling(PARTS, step), given, failed.append) as parts:
            env: Any = parts.rules.env
            _, outcome = env.step(env.params, 7, Call("LOOKUP", "kra"), keys.key(0))
            assert outcome.observation.startswith("The tool ")
    finally:
        over.set()
    assert [one.tool for one in failed] == ["LOOKUP"]


class Bomb:
    """Who reads this dies."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


@pytest.mark.slow  # replicas import torch
def test_replicas_in_processes_say_the_same_and_one_that_dies_costs_its_call() -> None:
    given, failed = tiny(tool_replicas=2, tool_engine="process").asynchronous, list[ToolFailed]()
    with served_tools(PARTS, given, failed.append) as parts:
        env: Any = parts.rules.env
        plain: Any = PARTS.rules.env
        state, _ = plain.reset(plain.params, keys.key(0))
        words = plain.params.vocabulary.words
        calls = [Call("LOOKUP", word) for word in (*state.task.asked, words[0], "nothing")]
        for action in calls:
            got, wanted = (one.step(one.params, state, action, keys.key(1)) for one in (env, plain))
            assert got == wanted
        _, outcome = env.step(env.params, Bomb(), calls[0], keys.key(1))
        assert outcome.observation == "The tool failed: its process ended."
        assert env.step(env.params, state, calls[0], keys.key(1)) == plain.step(
            plain.params, state, calls[0], keys.key(1)
        )
    assert [one.failure.kind for one in failed] == ["died"]


# --- a process ---


def children() -> set[int]:
    """The processes that this one has started."""
    found = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    return {int(number) for some in found for number in some}


@pytest.mark.slow  # the generator imports torch
@pytest.mark.skipif(
    not list(Path("/proc/self/task").glob("*/children")), reason="looks at processes as Linux lists them"
)
def test_a_generator_in_a_process_is_killed_and_another_one_samples_the_same() -> None:
    before = children()
    with at_work(tiny(), engine=in_process) as scene:
        jobs: dict[int, Any] = {place: RolloutRequest(request, 0) for place, request in enumerate(REQUESTS)}
        scene.ask(jobs)
        scene.until(lambda: bool(scene.told))
        for number in children() - before:
            os.kill(number, signal.SIGKILL)
        scene.until(lambda: bool(scene.lost))
        assert scene.lost[0].why == "died: its process ended (SIGKILL)"
        assert dict(scene.lost[0].work) == {task: jobs[task] for task in jobs if task not in scene.answers}
        scene.until(lambda: scene.workers.alive() == (1,))
        scene.ask(dict(scene.lost[0].work), worker=1)
        scene.until(lambda: len(scene.answers) == len(jobs))
    for task, wanted in enumerate(directly(tiny(), 0, REQUESTS)):
        alike(scene.made(task), wanted)
