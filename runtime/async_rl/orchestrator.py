"""Effects of the scheduler: generators that sample, a trainer that runs concurrently, and pauses. An `Effects` for `drive`.

Everything but the trainer runs in the driver's thread. This module tracks which command belongs to which worker and task; the
scheduler decides what to do with the events.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from ...core.language.preparation import Start
from ...core.language.requests import Request
from ...core.language.types import Sample
from ...core.machine import Command, Event, Failed, tag_of
from ..effects.clock import seconds
from ..effects.workers import pool as workers
from ..machine.drive import DRIVER, Effects, Entry, Finished, Inbox, Received, Session
from .preparation import Prepare, Ready, Starts, WaitingCommand
from .rollout_worker import Cancel, Completed, Progress, RolloutRequest
from .scheduler import events as say

NOTHING = -1  # no task
LOOK = 0.01  # seconds between two polls of the trainer
Name = say.Name


@frozen(kw_only=True)
class Connections:
    """Workers, callbacks and settings of an orchestrator."""

    workers: workers.Workers
    count: int  # number of generators at the beginning, numbered from 0
    slots: int
    request: Callable[[int, int], Request]  # (prompt, seat)
    trainer: Mapping[type[Any], Callable[[Any], Event]]  # of Recompute, Train, Publish; called in the trainer's thread
    arrived: Callable[[Name, Sample], None]  # called with each finished sample
    span: Callable[[str, tuple[Any, ...]], None]  # (actor, (kind, begin, end, version)): a row of the timeline
    failures: Callable[[int], None]  # called with the number of new tool calls that failed
    lost: Callable[[int, str], None]  # (generator, reason), when a generator is lost
    notice: Callable[[str], None]
    starts: Starts  # of groups, where the task's episodes are prepared
    prepared: Callable[[Starts, Ready], None]  # called when there are more starts


@frozen
class WorkerTask:
    """A task given to a generator: sample an attempt, or cancel one."""

    number: int  # of the command
    command: say.Dispatch | say.Abort
    asked: tuple[int, ...] = ()  # the id and the group of the request to sample

    @property
    def kind(self) -> str:
        """Return the tag of the command's class."""
        return tag_of(type(self.command))

    @property
    def name(self) -> Name:
        """Return the name of the sample: group, seat, attempt."""
        return self.command.group, self.command.seat, self.command.attempt

    def wrong(self, answer: Any) -> str:
        """Return why an answer does not fit this task, although it may fit another one; "" if it fits."""
        if not isinstance(answer, Completed):
            return "was given up, and nobody had asked for that"
        row = answer.sample.row
        got = int(row.id[0]), int(row.group[0])
        return "" if got == self.asked else f"is of the (request, group) {got}, not of {self.asked}"


@define
class Orchestrator:
    """Commands under way."""

    connections: Connections
    inbox: Inbox
    pool: ThreadPoolExecutor
    tasks: dict[int, WorkerTask] = field(factory=dict)  # by the worker's task number
    numbers: dict[Name, int] = field(factory=dict)  # task numbers of samples under way that are not cancelled
    ready: deque[Entry] = field(factory=deque)
    pauses: list[tuple[float, int, Any]] = field(factory=list)
    trained: deque[tuple[int, Any, "Future[Event]"]] = field(factory=deque)
    sampled: dict[int, int] = field(factory=dict)  # tokens of each sample under way, by the worker's task number
    there: set[int] = field(factory=set)  # generators that are connected, as reported to the scheduler
    held: list[Entry] = field(factory=list)  # entries deferred until a generator is connected
    starts: Starts = field(default=Factory(lambda self: self.connections.starts, takes_self=True))
    waiting: dict[int, say.Dispatch] = field(factory=dict)  # commands whose groups have no start yet, by number
    preparing: dict[int, int] = field(factory=dict)  # preparations under way, by the worker's task number
    following: Any = field(factory=itertools.count)

    def begin(self, number: int, command: Command) -> None:
        """Start a command."""
        if isinstance(command, say.Dispatch):
            self.dispatch(number, command)
        elif isinstance(command, say.Abort):
            task = WorkerTask(number, command)
            given = self.numbers.pop(task.name, NOTHING)
            if given == NOTHING:
                self.drop([one for one, held in self.waiting.items() if WorkerTask(one, held).name == task.name])
                self.over(number, say.Abort.TAG)
            else:
                self.give(command.worker, task, Cancel(given))
        elif isinstance(command, say.RetryAfter):
            heapq.heappush(self.pauses, (seconds() + command.seconds, number, command.command))
        elif isinstance(command, say.Report):
            if command.reason not in ("stale", "stopped"):
                self.connections.notice(f"{command.about} {command.number}: {command.reason}")
            self.over(number, say.Report.TAG)
        else:
            done = self.pool.submit(self.connections.trainer[type(command)], command)
            self.trained.append((number, command, done))

    def dispatch(self, number: int, command: say.Dispatch) -> None:
        """Send a sampling task to a generator; if its group needs a start that is not prepared yet, prepare that first."""
        start: Start | tuple[()] = ()
        if self.starts.groups:
            start = self.starts.ready.get(command.prompt, ())
            if isinstance(start, tuple):
                self.waiting[number] = command
                held = WaitingCommand(number, command.prompt, command.worker)
                self.starts, first = self.starts.asked(held)
                if first:
                    self.prepare(held)
                return
        request = self.connections.request(command.prompt, command.seat)
        task = WorkerTask(number, command, (request.id, request.group))
        self.give(command.worker, task, RolloutRequest(request, command.version, start))

    def prepare(self, held: WaitingCommand) -> None:
        """Send the preparation of a command's group to the command's generator."""
        number, preparation = next(self.following), held.prompt // self.starts.groups
        self.preparing[number] = preparation
        self.connections.workers.send(held.worker, number, Prepare(preparation, self.waiting[held.number].version))

    def prepared(self, worker: int, number: int, answer: Any) -> None:
        """Accept a finished preparation; one with the wrong number is discarded and prepared again."""
        wanted = self.preparing.pop(number)
        if not isinstance(answer, Ready) or answer.preparation != wanted:
            again = [one for one in self.starts.waiting if one.prompt // self.starts.groups == wanted]
            for held in again[:1]:
                self.prepare(evolve(held, worker=worker))
            return
        self.starts, freed = self.starts.come(answer)
        self.connections.prepared(self.starts, answer)
        for one in freed:
            self.dispatch(one, self.waiting.pop(one))

    def drop(self, numbers: Sequence[int]) -> None:
        """Cancel commands that wait for a start, and mark them as finished."""
        for number in numbers:
            del self.waiting[number]
            self.starts = self.starts.without(number)
            self.over(number, say.Dispatch.TAG)

    def give(self, worker: int, task: WorkerTask, payload: Any) -> None:
        """Send a task to a generator; if the generator is gone, the task is reported as lost."""
        number = next(self.following)
        self.tasks[number] = task
        if task.kind == say.Dispatch.TAG:
            self.numbers[task.name] = number
        self.connections.workers.send(worker, number, payload)

    def follow(self) -> Entry:
        """Return the next entry for the driver; wait for it if there is none."""
        while True:
            if not self.inbox.empty():
                return self.inbox.get()
            if self.ready:
                return self.ready.popleft()
            self.look()
            if not self.ready:
                until = self.pauses[0][0] - seconds() if self.pauses else LOOK
                report = self.connections.workers.receive(max(0.0, min(LOOK, until)))
                if not isinstance(report, tuple):
                    self.record_report(report)

    def look(self) -> None:
        """Queue the events of pauses that are over and of trainer commands that are done."""
        while self.pauses and self.pauses[0][0] <= seconds():
            _, number, command = heapq.heappop(self.pauses)
            self.queue(number, say.RetryAfter.TAG, say.Due(command))
            self.over(number, say.RetryAfter.TAG)
        while self.trained and self.trained[0][2].done():
            number, command, done = self.trained.popleft()
            kind, fault = tag_of(type(command)), done.exception()
            if fault is None:
                self.queue(number, kind, done.result())
            else:
                failed = Failed(command, f"{type(fault).__name__}: {fault}")
                self.ready.append(Received(number, kind, failed, fault))
            self.over(number, kind)

    def queue(self, number: int, kind: str, event: Event) -> None:
        """Queue an event for the scheduler."""
        self.ready.append(Received(number, kind, event))

    def over(self, number: int, kind: str) -> None:
        """Mark a command as finished.

        If no generator is connected, defer the mark until one is, because the driver stops when no command is running.
        """
        (self.ready if self.there else self.held).append(Finished(number, kind))

    def record_report(self, report: workers.Report) -> None:
        """Handle a report from a worker, or about one."""
        if isinstance(report, workers.WorkerJoined):
            if report.worker >= self.connections.count:
                self.there.add(report.worker)
                self.queue(DRIVER, "", say.Joined(report.worker, self.connections.slots))
                self.ready.extend(self.held)
                self.held.clear()
        elif isinstance(report, workers.WorkerMessage):
            if isinstance(report.payload, Progress):
                self.progressed(report.worker, report.payload)
        elif isinstance(report, workers.WorkerAnswer):
            if report.task in self.preparing:
                self.prepared(report.worker, report.task, report.payload)
            else:
                self.answered(report.task, report.payload)
        else:
            self.left(report)

    def progressed(self, worker: int, progress: Progress) -> None:
        """Record new tokens of samples under way, timeline rows and failed tool calls."""
        for span in progress.spans:
            self.connections.span(f"generator {worker}", span)
        if progress.tool_failures:
            self.connections.failures(progress.tool_failures)
        for number, tokens, version in progress.tokens:
            if self.wanted(number):
                task = self.tasks[number]
                self.sampled[number] = self.sampled.get(number, 0) + tokens
                self.queue(task.number, task.kind, say.TokenChunk(*task.name, self.sampled[number], version))

    def wanted(self, number: int) -> bool:
        """Return whether a task is a sample under way that is not cancelled."""
        return number in self.tasks and self.numbers.get(self.tasks[number].name) == number

    def answered(self, number: int, answer: Any) -> None:
        """Handle the answer to a task. A sample of another request is reported as failed, and sampled again."""
        wanted, task = self.wanted(number), self.tasks.pop(number)
        self.sampled.pop(number, 0)
        if wanted:
            del self.numbers[task.name]
            if wrong := task.wrong(answer):
                self.queue(task.number, task.kind, Failed(task.command, f"a sample {wrong}"))
            else:
                sample = answer.sample
                self.connections.arrived(task.name, sample)
                whole = say.Finished(*task.name, sample.tokens, sample.head, sample.tail)
                self.queue(task.number, task.kind, whole)
        self.over(task.number, task.kind)

    def left(self, report: workers.WorkerLost) -> None:
        """Handle the loss of a generator together with its tasks."""
        if report.worker in self.there:
            self.there.remove(report.worker)
            self.connections.lost(report.worker, report.why)
            self.queue(DRIVER, "", say.Lost(report.worker))
        for number in [number for number, _ in report.work if number in self.preparing]:
            del self.preparing[number]
        self.starts, again, gone = self.starts.lost(report.worker)
        self.drop(gone)
        for held in again:
            self.prepare(held)
        for number in [number for number, _ in report.work if number in self.tasks]:
            wanted, task = self.wanted(number), self.tasks.pop(number)
            self.sampled.pop(number, 0)
            if wanted:
                del self.numbers[task.name]
            self.over(task.number, task.kind)


def orchestrator_effects(connections: Connections, events: deque[Event]) -> Effects:
    """Return the effects of a scheduler. It receives what is in `events` before all else."""

    def open_(inbox: Inbox) -> Session:
        pool = ThreadPoolExecutor(1, thread_name_prefix="purestep-trainer")
        made = Orchestrator(connections, inbox, pool, there=set(range(connections.count)))

        def follow() -> Entry:
            return Received(DRIVER, "", events.popleft()) if events else made.follow()

        return Session(made.begin, follow, lambda wait: pool.shutdown(wait=wait, cancel_futures=True))

    return Effects(open_)
