"""What generators and a trainer say, as what a scheduler is told: each report becomes the right entries, whatever its order."""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from attrs import define, evolve, field

from purestep.core.language.requests import Request
from purestep.core.language.types import Sample
from purestep.core.machine import Command, Event, Failed, Interrupted, Machine
from purestep.core.transcript.record import empty
from purestep.runtime.async_rl.orchestrator import Connections, orchestrator_effects
from purestep.runtime.async_rl.preparation import Starts
from purestep.runtime.async_rl.rollout_worker import OWN, Cancel, Cancelled, Progress, RolloutRequest
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import Rules, Schedule
from purestep.runtime.effects.workers.pool import Report, WorkerAnswer, WorkerJoined, WorkerLost, WorkerMessage, Workers
from purestep.runtime.machine.drive import DRIVER, Entry, Finished, Received, drive

PATIENCE = 2000  # reports that do not come before a test is over


@define
class Scripted:
    """Workers that say what a test says, and a trainer that does."""

    reports: deque[Report | tuple[()]] = field(factory=deque)
    sent: list[tuple[int, int, Any]] = field(factory=list)
    react: Callable[["Scripted", int, int, Any], None] = lambda script, worker, task, payload: None
    arrived: dict[say.Name, Sample] = field(factory=dict)
    spans: list[tuple[str, tuple[Any, ...]]] = field(factory=list)
    failures: list[int] = field(factory=list)
    lost: list[tuple[int, str]] = field(factory=list)
    notices: list[str] = field(factory=list)
    told: deque[Event] = field(factory=deque)
    inbox: "SimpleQueue[Entry]" = field(factory=SimpleQueue)
    silent: int = 0
    starts: Starts = field(factory=Starts)
    prepared: list[Any] = field(factory=list)

    def send(self, worker: int, task: int, payload: Any) -> None:
        self.sent.append((worker, task, payload))
        self.react(self, worker, task, payload)

    def receive(self, seconds: float) -> Report | tuple[()]:
        report = self.reports.popleft() if self.reports else ()
        self.silent = 0 if report else self.silent + 1
        assert self.silent < PATIENCE, "nothing more will come"
        if not report:
            time.sleep(min(seconds, 0.001))
        return report

    def effects(self, trainer: dict[type[Any], Callable[[Any], Event]], count: int = 2) -> Any:
        connections = Connections(
            workers=Workers(self.send, self.receive, lambda: (), lambda: ()),
            count=count,
            slots=3,
            request=request_of,
            trainer=trainer,
            arrived=self.arrived.__setitem__,
            span=lambda actor, span: self.spans.append((actor, span)),
            failures=self.failures.append,
            lost=lambda worker, why: self.lost.append((worker, why)),
            notice=self.notices.append,
            starts=self.starts,
            prepared=lambda starts, ready: self.prepared.append(ready),
        )
        return orchestrator_effects(connections, self.told)

    def opened(self, *commands: Command, trainer: Any = None, count: int = 2) -> Callable[[], Entry]:
        """What follows once these commands, numbered from 0, have begun."""
        session = self.effects(trainer or {}, count).open(self.inbox)
        for number, command in enumerate(commands):
            session.begin(number, command)
        return session.follow  # type: ignore[no-any-return]


def request_of(prompt: int, seat: int) -> Request:
    return Request(id=10 * prompt + seat, group=prompt, task=(2 * prompt, 0), sampling=(seat, 1))


def sample_of(request: Request, *, head: int = 0, tail: int = 0, tokens: int = 5) -> Sample:
    row = empty(2, 1, id=torch.tensor([request.id]), group=torch.tensor([request.group]))
    return Sample(row, dict.fromkeys(OWN, 0.0), "success", head, tail, tokens)


def dispatch(group: int, *, seat: int = 0, attempt: int = 0, worker: int = 0, version: int = 0) -> say.Dispatch:
    return say.Dispatch(group, seat, attempt, group, worker, version)


def taken(follow: Callable[[], Entry], count: int) -> list[Entry]:
    return [follow() for _ in range(count)]


# --- samples ---


def test_a_sample_is_asked_for_told_of_and_taken() -> None:
    script = Scripted()
    follow = script.opened(dispatch(4, seat=1, worker=1, version=2))
    assert script.sent == [(1, 0, RolloutRequest(request_of(4, 1), 2))]
    made = sample_of(request_of(4, 1), head=2, tail=3, tokens=7)
    span = ("generate", 1.0, 2.0, 2)
    script.reports.extend([WorkerMessage(1, Progress(((0, 3, 2),), (span,), 2)), WorkerAnswer(1, 0, made)])
    assert taken(follow, 3) == [
        Received(0, "dispatch", say.TokenChunk(4, 1, 0, 3, 2)),
        Received(0, "dispatch", say.Finished(4, 1, 0, 7, 2, 3)),
        Finished(0, "dispatch"),
    ]
    assert script.arrived == {(4, 1, 0): made}
    assert script.spans == [("generator 1", span)]
    assert script.failures == [2]


def test_what_is_no_progress_and_who_was_expected_are_no_news() -> None:
    script = Scripted(reports=deque([WorkerJoined(0), WorkerMessage(0, "hello"), WorkerJoined(1), WorkerJoined(2)]))
    follow = script.opened(dispatch(0))
    assert follow() == Received(DRIVER, "", say.Joined(2, 3))


@pytest.mark.parametrize("other", [request_of(3, 1), evolve(request_of(3, 0), group=7)], ids=["id", "group"])
def test_a_sample_of_another_request_fails_and_is_not_kept(other: Request) -> None:
    command, script = dispatch(3), Scripted()
    script.reports.append(WorkerAnswer(0, 0, sample_of(other)))
    told, over = taken(script.opened(command), 2)
    wanted = f"a sample is of the (request, group) {(other.id, other.group)}, not of (30, 3)"
    assert told == Received(0, "dispatch", Failed(command, wanted))
    assert over == Finished(0, "dispatch")
    assert script.arrived == {}


def test_what_nobody_gave_up_and_comes_back_given_up_fails() -> None:
    command, script = dispatch(3), Scripted()
    script.reports.append(WorkerAnswer(0, 0, Cancelled()))
    told, over = taken(script.opened(command), 2)
    assert told == Received(0, "dispatch", Failed(command, "a sample was given up, and nobody had asked for that"))
    assert over == Finished(0, "dispatch")


# --- what is given up ---


@pytest.mark.parametrize("late", [Cancelled(), sample_of(request_of(5, 0))], ids=["given up", "made"])
def test_what_was_given_up_tells_nothing_more(late: Any) -> None:
    script = Scripted()
    follow = script.opened(dispatch(5, worker=1), say.Abort(5, 0, 0, 1))
    assert script.sent[1] == (1, 1, Cancel(0))
    script.reports.extend(
        [WorkerMessage(1, Progress(((0, 3, 0),))), WorkerAnswer(1, 0, late), WorkerAnswer(1, 1, Cancelled())]
    )
    assert taken(follow, 2) == [Finished(0, "dispatch"), Finished(1, "abort")]
    assert script.arrived == {}


def test_what_is_over_needs_no_giving_up() -> None:
    script = Scripted()
    follow = script.opened(say.Abort(5, 0, 0, 1))
    assert follow() == Finished(0, "abort")
    assert script.sent == []


def test_giving_up_one_attempt_leaves_the_next_at_the_same_seat() -> None:
    script = Scripted()
    follow = script.opened(dispatch(5), say.Abort(5, 0, 0, 0), dispatch(5, attempt=1))
    script.reports.extend(
        [WorkerAnswer(0, 0, Cancelled()), WorkerAnswer(0, 1, Cancelled()), WorkerMessage(0, Progress(((2, 4, 0),)))]
    )
    assert taken(follow, 3) == [
        Finished(0, "dispatch"),
        Finished(1, "abort"),
        Received(2, "dispatch", say.TokenChunk(5, 0, 1, 4, 0)),
    ]


# --- generators that are lost ---


def test_a_generator_is_lost_with_its_work_alone() -> None:
    script = Scripted()
    follow = script.opened(dispatch(0), dispatch(1, worker=1))
    made = sample_of(request_of(1, 0))
    script.reports.extend([WorkerLost(0, "died", ((0, "a job"),)), WorkerAnswer(1, 1, made)])
    assert taken(follow, 4) == [
        Received(DRIVER, "", say.Lost(0)),
        Finished(0, "dispatch"),
        Received(1, "dispatch", say.Finished(1, 0, 0, 5, 0, 0)),
        Finished(1, "dispatch"),
    ]
    assert script.lost == [(0, "died")]


def test_a_task_for_who_is_gone_comes_back_and_nobody_is_lost_twice() -> None:
    script = Scripted()
    follow = script.opened(dispatch(0), dispatch(1))
    script.reports.extend(
        [WorkerLost(0, "died", ((0, "a job"),)), WorkerLost(0, "gone before it was sent", ((1, "a job"),))]
    )
    wanted = [Received(DRIVER, "", say.Lost(0)), Finished(0, "dispatch"), Finished(1, "dispatch")]
    assert taken(follow, 3) == wanted
    assert script.lost == [(0, "died")]


def test_an_abort_that_is_lost_with_its_generator_is_done() -> None:
    script = Scripted()
    follow = script.opened(dispatch(0), say.Abort(0, 0, 0, 0))
    script.reports.append(WorkerLost(0, "hung", ((0, "a job"), (1, Cancel(0)))))
    wanted = [Received(DRIVER, "", say.Lost(0)), Finished(0, "dispatch"), Finished(1, "abort")]
    assert taken(follow, 3) == wanted


def test_with_nobody_there_what_is_over_waits_for_somebody() -> None:
    script = Scripted()
    follow = script.opened(dispatch(0), trainer={say.Train: lambda command: say.Consumed(0)}, count=1)
    script.reports.extend([WorkerLost(0, "died", ((0, "a job"),)), (), (), WorkerJoined(1)])
    assert taken(follow, 3) == [
        Received(DRIVER, "", say.Lost(0)),
        Received(DRIVER, "", say.Joined(1, 3)),
        Finished(0, "dispatch"),
    ]


def test_a_generator_that_is_lost_while_only_the_trainer_works_is_no_dead_end() -> None:
    """With staleness 0 the only generator waits for the update. Its loss is not to look as if nothing could happen."""
    rules = Rules(batch=1, concurrency=1, staleness=0, updates=2)
    script = Scripted(react=made_at_once)

    def train(command: say.Train) -> Event:
        if command.version == 0:
            script.reports.append(WorkerLost(0, "killed", ()))
            seen = time.monotonic() + 20
            while not script.lost and time.monotonic() < seen:
                time.sleep(0.001)
        return say.Consumed(command.version)

    def publish(command: say.Publish) -> Event:
        if command.version == 1:
            script.reports.extend([*[()] * 50, WorkerJoined(1)])  # long after this is done
        return say.Published(command.version)

    trainer: Any = {say.Train: train, say.Publish: publish}
    *_, last = driven(rules, script, trainer, workers=1)
    assert (last.version, last.consumed, last.rejected) == (2, 2, 0)
    assert [worker for worker, _, _ in script.sent] == [0, 1]


def made_at_once(script: Scripted, worker: int, task: int, payload: Any) -> None:
    if isinstance(payload, RolloutRequest):
        made = sample_of(payload.request, head=payload.version, tail=payload.version)
        script.reports.append(WorkerAnswer(worker, task, made))
    else:
        script.reports.append(WorkerAnswer(worker, task, Cancelled()))


def driven(rules: Rules, script: Scripted, trainer: Any, *, workers: int) -> Any:
    machine: Machine[Schedule] = scheduler(rules)
    first = begin_schedule(rules, prompts=9, workers=workers, slots=1)
    return drive(machine, first, script.effects(trainer, workers))


def test_a_sample_of_another_request_is_tried_again_until_it_is_right() -> None:
    tries: list[int] = []

    def react(script: Scripted, worker: int, task: int, payload: Any) -> None:
        if isinstance(payload, RolloutRequest) and len(tries) < 2:
            tries.append(task)
            made = sample_of(request_of(8, 8))
            script.reports.append(WorkerAnswer(worker, task, made))
        else:
            made_at_once(script, worker, task, payload)

    rules = Rules(batch=1, concurrency=1, staleness=0, updates=1, backoff=0.0)
    script = Scripted(react=react)
    trainer: Any = {
        say.Train: lambda command: say.Consumed(command.version),
        say.Publish: lambda command: say.Published(command.version),
    }
    *_, last = driven(rules, script, trainer, workers=1)
    assert (last.version, last.consumed, last.rejected) == (1, 1, 0)
    assert len(tries) == 2
    assert [int(one.row.id[0]) for one in script.arrived.values()] == [0]


# --- pauses, the trainer, people ---


def test_pauses_end_in_the_order_of_their_ends() -> None:
    script = Scripted()
    late, soon = dispatch(0), dispatch(1)
    follow = script.opened(say.RetryAfter(late, 0.05), say.RetryAfter(soon, 0.0))
    assert taken(follow, 4) == [
        Received(1, "retry_after", say.Due(soon)),
        Finished(1, "retry_after"),
        Received(0, "retry_after", say.Due(late)),
        Finished(0, "retry_after"),
    ]


def test_what_the_trainer_cannot_do_fails_and_the_next_is_done() -> None:
    def train(command: say.Train) -> Event:
        raise ValueError("no gradient")

    threads: list[str] = []

    def publish(command: say.Publish) -> Event:
        threads.append(threading.current_thread().name)
        return say.Published(command.version)

    command, script = say.Train(0, (), 0), Scripted()
    follow = script.opened(command, say.Publish(3), trainer={say.Train: train, say.Publish: publish})
    failed, *rest = taken(follow, 4)
    assert isinstance(failed, Received)
    assert failed.event == Failed(command, "ValueError: no gradient")
    assert isinstance(failed.cause, ValueError)
    assert rest == [Finished(0, "train"), Received(1, "publish", say.Published(3)), Finished(1, "publish")]
    assert threads[0].startswith("purestep-trainer")


def test_people_are_told_of_what_was_given_up_and_not_of_what_is_usual() -> None:
    script = Scripted()
    reports = [say.Report("sample", 7, "timed out"), say.Report("group", 2, "stale"), say.Report("stopped", -1, "x")]
    follow = script.opened(*reports)
    assert taken(follow, 3) == [Finished(number, "report") for number in range(3)]
    assert script.notices == ["sample 7: timed out", "stopped -1: x"]


def test_ctrl_c_and_more_prompts_come_before_all_else() -> None:
    script = Scripted()
    follow = script.opened(say.Report("group", 2, "stale"))
    script.inbox.put(Received(DRIVER, "", Interrupted()))
    script.told.append(say.Submitted(2))
    assert taken(follow, 3) == [
        Received(DRIVER, "", say.Submitted(2)),
        Received(DRIVER, "", Interrupted()),
        Finished(0, "report"),
    ]
