"""The world of a scheduler: generators that sample, a trainer that learns beside them, pauses. An `Effects` for `drive`.

Everything but the trainer happens in the driver's thread. What a command is called by, and by whom, is kept here; what it
means is the scheduler's.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from attrs import define, field, frozen

from ...core.language.requests import Request
from ...core.machine import Command, Event, Failed
from ..drive import DRIVER, Effects, Entry, Finished, Inbox, Session, Told
from ..effects import workers
from ..effects.clock import seconds
from ..scheduling import messages as say
from .generating import GiveUp, Job, Made, Progress
from .samples import Sample

LOOK = 0.01  # seconds between two looks at what the trainer has done
Name = say.Name


@frozen(kw_only=True)
class Hands:
    """What a crew is given to work with."""

    workers: workers.Workers
    count: int  # generators at the beginning, numbered from 0
    slots: int
    request: Callable[[int, int], Request]  # (prompt, seat)
    trainer: Mapping[type[Any], Callable[[Any], Event]]  # of Recompute, Train, Publish; called in the trainer's thread
    arrived: Callable[[Name, Sample], None]  # a whole sample
    span: Callable[[str, tuple[Any, ...]], None]  # (actor, (kind, begin, end, version)): what somebody did
    failures: Callable[[int], None]  # so many more calls of tools have failed
    lost: Callable[[int, str], None]  # a generator is gone, and why
    notice: Callable[[str], None]


@frozen
class Task:
    """What a generator was given: a sample to make, or one to give up."""

    command: int
    kind: str
    name: Name


@define
class Crew:
    """Commands under way."""

    hands: Hands
    inbox: Inbox
    pool: ThreadPoolExecutor
    tasks: dict[int, Task] = field(factory=dict)  # by the worker's number for it
    numbers: dict[Name, int] = field(factory=dict)  # of samples under way that nobody has given up
    ready: deque[Entry] = field(factory=deque)
    pauses: list[tuple[float, int, Any]] = field(factory=list)
    trained: deque[tuple[int, Any, "Future[Event]"]] = field(factory=deque)
    there: set[int] = field(factory=set)  # generators that the scheduler counts on
    held: list[Entry] = field(factory=list)  # what nobody is left to follow up; told when somebody joins
    following: Any = field(factory=itertools.count)

    def begin(self, number: int, command: Command) -> None:
        """Starts a command."""
        if isinstance(command, say.Dispatch):
            name = (command.group, command.seat, command.attempt)
            job = Job(self.hands.request(command.prompt, command.seat), command.version)
            self.give(command.worker, Task(number, "Dispatch", name), job)
        elif isinstance(command, say.Abort):
            task = self.numbers.pop((command.group, command.seat, command.attempt), -1)
            if task < 0:
                self.ready.append(Finished(number, "Abort"))
            else:
                name = (command.group, command.seat, command.attempt)
                self.give(command.worker, Task(number, "Abort", name), GiveUp(task))
        elif isinstance(command, say.RetryAfter):
            heapq.heappush(self.pauses, (seconds() + command.seconds, number, command.command))
        elif isinstance(command, say.Report):
            if command.reason not in ("stale", "stopped"):
                self.hands.notice(f"{command.about} {command.number}: {command.reason}")
            self.ready.append(Finished(number, "Report"))
        else:
            done = self.pool.submit(self.hands.trainer[type(command)], command)
            self.trained.append((number, command, done))

    def give(self, worker: int, task: Task, payload: Any) -> None:
        """Sends a task to a generator; where that is gone it comes back as lost."""
        number = next(self.following)
        self.tasks[number] = task
        if task.kind == "Dispatch":
            self.numbers[task.name] = number
        self.hands.workers.send(worker, number, payload)

    def follow(self) -> Entry:
        """What happens next."""
        while True:
            if not self.inbox.empty():
                return self.inbox.get()
            if self.ready:
                return self.ready.popleft()
            self.look()
            if not self.ready:
                until = self.pauses[0][0] - seconds() if self.pauses else LOOK
                report = self.hands.workers.receive(max(0.0, min(LOOK, until)))
                if not isinstance(report, tuple):
                    self.heard(report)

    def look(self) -> None:
        """Pauses that are over, and what the trainer has done."""
        while self.pauses and self.pauses[0][0] <= seconds():
            _, number, command = heapq.heappop(self.pauses)
            self.tell(number, "RetryAfter", say.Due(command))
            self.ready.append(Finished(number, "RetryAfter"))
        while self.trained and self.trained[0][2].done():
            number, command, done = self.trained.popleft()
            kind, fault = type(command).__name__, done.exception()
            if fault is None:
                self.tell(number, kind, done.result())
            else:
                failed = Failed(command, f"{type(fault).__name__}: {fault}")
                self.ready.append(Told(number, kind, failed, fault))
            self.ready.append(Finished(number, kind))

    def tell(self, number: int, kind: str, event: Event) -> None:
        """The machine will be told."""
        self.ready.append(Told(number, kind, event))

    def heard(self, report: workers.Report) -> None:
        """What a generator says, or what is said of it."""
        if isinstance(report, workers.Joined):
            if report.worker >= self.hands.count:
                self.there.add(report.worker)
                self.tell(DRIVER, "", say.Joined(report.worker, self.hands.slots))
                self.ready.extend(self.held)
                self.held.clear()
        elif isinstance(report, workers.Note):
            if isinstance(report.payload, Progress):
                self.progressed(report.worker, report.payload)
        elif isinstance(report, workers.Answer):
            self.answered(report.task, report.payload)
        else:
            self.left(report)

    def progressed(self, worker: int, told: Progress) -> None:
        """More tokens of samples under way."""
        for span in told.spans:
            self.hands.span(f"generator {worker}", span)
        if told.tool_failures:
            self.hands.failures(told.tool_failures)
        for number, tokens, version in told.tokens:
            task = self.tasks.get(number)
            if task and self.numbers.get(task.name) == number:
                self.tell(task.command, task.kind, say.TokenChunk(*task.name, tokens, version))

    def answered(self, number: int, answer: Any) -> None:
        """A task is done."""
        task = self.tasks.pop(number)
        if isinstance(answer, Made) and self.numbers.pop(task.name, -1) == number:
            sample = answer.sample
            self.hands.arrived(task.name, sample)
            self.tell(task.command, task.kind, say.Finished(*task.name, sample.tokens, sample.head, sample.tail))
        self.ready.append(Finished(task.command, task.kind))

    def left(self, report: workers.Lost) -> None:
        """A generator is gone, with what it had."""
        if report.worker in self.there:
            self.there.remove(report.worker)
            self.hands.lost(report.worker, report.why)
            self.tell(DRIVER, "", say.Lost(report.worker))
        # With nobody there and nothing under way a driver would take it that nothing more can happen.
        entries = self.ready if self.there else self.held
        for number, _ in report.work:
            task = self.tasks.pop(number)
            if self.numbers.get(task.name) == number:
                del self.numbers[task.name]
            entries.append(Finished(task.command, task.kind))


def crew(hands: Hands, told: deque[Event]) -> Effects:
    """The effects of a scheduler. Events in `told` reach it as soon as it asks what happens next."""

    def open_(inbox: Inbox) -> Session:
        pool = ThreadPoolExecutor(1, thread_name_prefix="purestep-trainer")
        made = Crew(hands, inbox, pool, there=set(range(hands.count)))

        def follow() -> Entry:
            return Told(DRIVER, "", told.popleft()) if told else made.follow()

        return Session(made.begin, follow, lambda wait: pool.shutdown(wait=wait, cancel_futures=True))

    return Effects(open_)
