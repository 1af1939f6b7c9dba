"""The world of a scheduler: generators that sample, a trainer that learns beside them, pauses. An `Effects` for `drive`.

Everything but the trainer happens in the driver's thread. What a command is called by, and by whom, is kept here; what it
means is the scheduler's.
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
from ...core.machine import Command, Event, Failed, tag_of
from ..drive import DRIVER, Effects, Entry, Finished, Inbox, Session, Told
from ..effects import workers
from ..effects.clock import seconds
from ..scheduling import messages as say
from .generating import GiveUp, Job, Made, Progress
from .preparing import Held, Prepare, Ready, Starts
from .samples import Sample

NOTHING = -1  # the number of no task
LOOK = 0.01  # seconds between two looks at what the trainer has done
Name = say.Name


def _unnoticed(starts: Starts, ready: Ready) -> None:
    """Nobody is told of starts."""
    del starts, ready


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
    starts: Starts | tuple[()] = ()  # of groups, where the task's episodes are prepared
    prepared: Callable[[Starts, Ready], None] = _unnoticed  # there are more of them


@frozen
class Task:
    """What a generator was given: a sample to make, or one to give up."""

    number: int  # of the command
    command: say.Dispatch | say.Abort
    asked: tuple[int, ...] = ()  # the id and the group of the request to sample

    @property
    def kind(self) -> str:
        """Return the tag of the command's class."""
        return tag_of(type(self.command))

    @property
    def name(self) -> Name:
        """The sample's."""
        return self.command.group, self.command.seat, self.command.attempt

    def wrong(self, answer: Any) -> str:
        """What is wrong with an answer to this task, though it may be right for another one; "" for nothing."""
        if not isinstance(answer, Made):
            return "was given up, and nobody had asked for that"
        row = answer.sample.row
        got = int(row.id[0]), int(row.group[0])
        return "" if got == self.asked else f"is of the (request, group) {got}, not of {self.asked}"


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
    sampled: dict[int, int] = field(factory=dict)  # tokens of each sample under way, by the worker's number for it
    there: set[int] = field(factory=set)  # generators that the scheduler counts on
    held: list[Entry] = field(factory=list)  # what the driver hears once somebody is there
    starts: Starts | tuple[()] = field(default=Factory(lambda self: self.hands.starts, takes_self=True))
    waiting: dict[int, say.Dispatch] = field(factory=dict)  # commands whose groups have no start yet, by number
    preparing: dict[int, int] = field(factory=dict)  # preparations under way, by the worker's number for them
    following: Any = field(factory=itertools.count)

    def begin(self, number: int, command: Command) -> None:
        """Starts a command."""
        if isinstance(command, say.Dispatch):
            self.dispatch(number, command)
        elif isinstance(command, say.Abort):
            task = Task(number, command)
            given = self.numbers.pop(task.name, NOTHING)
            if given == NOTHING:
                self.drop([one for one, held in self.waiting.items() if Task(one, held).name == task.name])
                self.over(number, say.Abort.TAG)
            else:
                self.give(command.worker, task, GiveUp(given))
        elif isinstance(command, say.RetryAfter):
            heapq.heappush(self.pauses, (seconds() + command.seconds, number, command.command))
        elif isinstance(command, say.Report):
            if command.reason not in ("stale", "stopped"):
                self.hands.notice(f"{command.about} {command.number}: {command.reason}")
            self.over(number, say.Report.TAG)
        else:
            done = self.pool.submit(self.hands.trainer[type(command)], command)
            self.trained.append((number, command, done))

    def dispatch(self, number: int, command: say.Dispatch) -> None:
        """Has a sample made; where its group needs a start that is not there yet, that is prepared first."""
        start: Start | tuple[()] = ()
        if not isinstance(self.starts, tuple):
            start = self.starts.ready.get(command.prompt, ())
            if isinstance(start, tuple):
                self.waiting[number] = command
                held = Held(number, command.prompt, command.worker)
                self.starts, first = self.starts.asked(held)
                if first:
                    self.prepare(held)
                return
        request = self.hands.request(command.prompt, command.seat)
        task = Task(number, command, (request.id, request.group))
        self.give(command.worker, task, Job(request, command.version, start))

    def prepare(self, held: Held) -> None:
        """Has the start of a command's group prepared by its generator."""
        if isinstance(self.starts, tuple):
            return
        number, preparation = next(self.following), held.prompt // self.starts.groups
        self.preparing[number] = preparation
        self.hands.workers.send(held.worker, number, Prepare(preparation, self.waiting[held.number].version))

    def prepared(self, worker: int, number: int, answer: Any) -> None:
        """A preparation is done; one of another number counts as none, and is made anew."""
        wanted = self.preparing.pop(number)
        if isinstance(self.starts, tuple):
            return
        if not isinstance(answer, Ready) or answer.preparation != wanted:
            again = [one for one in self.starts.waiting if one.prompt // self.starts.groups == wanted]
            for held in again[:1]:
                self.prepare(evolve(held, worker=worker))
            return
        self.starts, freed = self.starts.come(answer)
        self.hands.prepared(self.starts, answer)
        for one in freed:
            self.dispatch(one, self.waiting.pop(one))

    def drop(self, numbers: Sequence[int]) -> None:
        """Commands that wait for a start need none any more."""
        for number in numbers:
            del self.waiting[number]
            if not isinstance(self.starts, tuple):
                self.starts = self.starts.without(number)
            self.over(number, say.Dispatch.TAG)

    def give(self, worker: int, task: Task, payload: Any) -> None:
        """Sends a task to a generator; where that is gone it comes back as lost."""
        number = next(self.following)
        self.tasks[number] = task
        if task.kind == say.Dispatch.TAG:
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
            self.tell(number, say.RetryAfter.TAG, say.Due(command))
            self.over(number, say.RetryAfter.TAG)
        while self.trained and self.trained[0][2].done():
            number, command, done = self.trained.popleft()
            kind, fault = tag_of(type(command)), done.exception()
            if fault is None:
                self.tell(number, kind, done.result())
            else:
                failed = Failed(command, f"{type(fault).__name__}: {fault}")
                self.ready.append(Told(number, kind, failed, fault))
            self.over(number, kind)

    def tell(self, number: int, kind: str, event: Event) -> None:
        """The machine will be told."""
        self.ready.append(Told(number, kind, event))

    def over(self, number: int, kind: str) -> None:
        """Nothing more comes of a command.

        With no generator there this waits until there is one: a driver with nothing under way takes it that nothing more can
        happen.
        """
        (self.ready if self.there else self.held).append(Finished(number, kind))

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
            if report.task in self.preparing:
                self.prepared(report.worker, report.task, report.payload)
            else:
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
            if self.wanted(number):
                task = self.tasks[number]
                self.sampled[number] = self.sampled.get(number, 0) + tokens
                self.tell(task.number, task.kind, say.TokenChunk(*task.name, self.sampled[number], version))

    def wanted(self, number: int) -> bool:
        """Whether a task is a sample under way that nobody has given up."""
        return number in self.tasks and self.numbers.get(self.tasks[number].name) == number

    def answered(self, number: int, answer: Any) -> None:
        """A task is done. A sample of something else counts as none, and is made anew."""
        wanted, task = self.wanted(number), self.tasks.pop(number)
        self.sampled.pop(number, 0)
        if wanted:
            del self.numbers[task.name]
            if wrong := task.wrong(answer):
                self.tell(task.number, task.kind, Failed(task.command, f"a sample {wrong}"))
            else:
                sample = answer.sample
                self.hands.arrived(task.name, sample)
                whole = say.Finished(*task.name, sample.tokens, sample.head, sample.tail)
                self.tell(task.number, task.kind, whole)
        self.over(task.number, task.kind)

    def left(self, report: workers.Lost) -> None:
        """A generator is gone, with what it had."""
        if report.worker in self.there:
            self.there.remove(report.worker)
            self.hands.lost(report.worker, report.why)
            self.tell(DRIVER, "", say.Lost(report.worker))
        for number in [number for number, _ in report.work if number in self.preparing]:
            del self.preparing[number]
        if not isinstance(self.starts, tuple):
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


def crew(hands: Hands, told: deque[Event]) -> Effects:
    """The effects of a scheduler. Events in `told` reach it as soon as it asks what happens next."""

    def open_(inbox: Inbox) -> Session:
        pool = ThreadPoolExecutor(1, thread_name_prefix="purestep-trainer")
        made = Crew(hands, inbox, pool, there=set(range(hands.count)))

        def follow() -> Entry:
            return Told(DRIVER, "", told.popleft()) if told else made.follow()

        return Session(made.begin, follow, lambda wait: pool.shutdown(wait=wait, cancel_futures=True))

    return Effects(open_)
