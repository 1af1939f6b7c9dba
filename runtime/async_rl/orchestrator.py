"""Effects of the scheduler: generators that sample, a trainer that runs concurrently, and pauses. An `Effects` for `drive`.

Everything but the trainer runs in the driver's thread. A piece of work has one id, the number of the scheduler's command, which
is the number of the generator's task, too. Answers of generators are checked here alone; the scheduler decides what to do with
the events.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from ...core.check import check
from ...core.errors import PurestepError
from ...core.keys import Key
from ...core.language.preparation import Start
from ...core.language.requests import Draw, Request
from ...core.language.task import TextTask
from ...core.language.types import Parts, Sample, Transcript
from ...core.machine import Command, Event, Failed, tag_of
from ...core.transcript.record import FAILED
from ..effects.clock import seconds
from ..effects.workers import pool as workers
from ..machine.drive import DRIVER, Effects, Entry, Finished, Inbox, Received, Session
from ..machine.json_codec import fits
from ..text.components import TextComponents
from ..text.config import TextConfig, generator_count
from ..text.training_loop import prompt_requests
from .preparation import Prepare, Ready, Starts, WaitingCommand, ready_fault
from .rollout_worker import Cancel, Cancelled, Progress, RolloutRequest, figure_names
from .scheduler import events as say
from .training_phase import Phase

LOOK = 0.01  # seconds between two polls of the trainer
KEPT = 4096  # largest number of prompts whose requests are cached
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


def connections_of(phase: Phase, workers: workers.Workers) -> Connections:
    """Return the workers, callbacks and settings of the orchestrator of a phase."""
    arguments = phase.setting.arguments
    return Connections(
        workers=workers,
        count=generator_count(arguments),
        slots=arguments.asynchronous.generator_slots,
        request=caching_requests(arguments, phase.learning.key, phase.setting.parts.task.draw),
        trainer={say.Recompute: phase.recompute, say.Train: phase.train, say.Publish: phase.publish},
        arrived=phase.arrived,
        span=phase.span,
        failures=phase.failed,
        lost=phase.lost,
        notice=phase.setting.notice,
        starts=phase.starts,
        prepared=phase.prepared,
    )


def caching_requests(arguments: TextConfig, key: Key, draw: Draw | tuple[()] = ()) -> Callable[[int, int], Request]:
    """Return a function (prompt, seat) -> request that caches the requests of a group."""
    group = lru_cache(KEPT)(partial(prompt_requests, arguments, key, draw=draw))
    return lambda prompt, seat: group(prompt)[seat]


@define
class Sampling:
    """A sample under way. Its id, for the scheduler and for generators, is the number of the command that asked for it."""

    command: say.Dispatch
    request: tuple[int, int] | tuple[()] = ()  # id and group of the request that was sent; () as long as none was
    tokens: int = 0  # sampled so far
    cancelled: bool = False

    @property
    def name(self) -> Name:
        """Return the name of the sample: group, seat, attempt."""
        return self.command.group, self.command.seat, self.command.attempt

    @property
    def wanted(self) -> bool:
        """Return whether a generator was asked for it, and not to cancel it."""
        return bool(self.request) and not self.cancelled

    def wrong(self, answer: Any) -> str:
        """Return why an answer does not fit this task, although it may fit another one; "" if it fits."""
        if not isinstance(answer, Sample):
            return "was given up, and nobody had asked for that"
        got = int(answer.row.id[0]), int(answer.row.group[0])
        return "" if got == self.request else f"is of the (request, group) {got}, not of {self.request}"


def faults_of_answers(arguments: TextConfig, parts: TextComponents) -> Callable[[int, Any], str]:
    """Return a function (task, answer) that returns the fault of an answer, whatever the task, or "": for `workers.working`."""
    room = {"capacity": arguments.sampling.capacity, "calls": arguments.episodes.max_turns}

    def refuse(task: int, payload: Any) -> str:
        del task
        if isinstance(payload, Cancelled):
            return ""
        if isinstance(payload, Ready):
            return ready_fault(parts.task.preparation, payload)
        return sample_fault(parts.task, payload, vocabulary=parts.speaker.vocabulary, **room)

    return refuse


def sample_fault(task: TextTask, sample: Any, *, capacity: int, calls: int, vocabulary: int) -> str:
    """Return the first fault of a received sample that can be seen from the sample alone; "" if there is none.

    >>> sample_fault((), "hello", capacity=4, calls=1, vocabulary=9)
    'str, which is no sample'
    """
    if not isinstance(sample, Sample) or not isinstance(sample.row, Transcript):
        return f"{type(sample).__name__}, which is no sample"
    try:
        row = check(sample.row, (1,))
    except PurestepError as wrong:  # a malformed sample is reported, and must not stop the receiver
        return str(wrong)
    if row.token.shape != (1, capacity) or row.reward.shape != (1, calls):
        return f"a row of {list(row.token.shape)} tokens and {list(row.reward.shape)} calls"
    return _fault_of_row(row, vocabulary) or _fault_of_summary(task, sample)


def _fault_of_row(row: Transcript, vocabulary: int) -> str:
    spoken, log_prob = row.is_action[0], row.behaviour_log_prob[0]
    length, room = int(row.length[0]), len(spoken)
    found = (
        (not 0 < length <= room or int(row.overflow[0]), "a length that its room does not have"),
        (not spoken.any() or spoken[max(0, length) :].any(), "sampled tokens behind its end, or none"),
        ((row.version[0][spoken] < 0).any(), "versions that are not those of its tokens"),
        (not log_prob.isfinite().all() or (log_prob > 1e-4).any(), "log-probs that no token has"),
        (((row.token < 0) | (row.token >= vocabulary)).any(), "tokens outside the vocabulary"),
        (not row.reward.isfinite().all(), "rewards or figures that are not numbers"),
        (not (row.terminated | row.truncated).all(), "no end"),
    )
    return next((sample_fault for wrong, sample_fault in found if bool(wrong)), "")


def _fault_of_summary(task: TextTask, sample: Sample) -> str:
    made = sample.row.version[sample.row.is_action].tolist()
    if (min(made), max(made), len(made)) != (sample.head, sample.tail, sample.tokens):
        return "versions that are not those of its tokens"
    figures = sample.figures
    named = isinstance(figures, dict) and set(figures) == set(figure_names(task))
    if not named or not all(isinstance(value, float) and math.isfinite(value) for value in figures.values()):
        return "rewards or figures that are not numbers"
    if sample.final:
        return "proximal log-probs, which the trainer sets"
    if not fits(sample.parts, Parts):
        return "parts of a reward that are not names and numbers"
    if not isinstance(sample.raised, str) or bool(sample.raised) != (int(sample.row.reason[0]) == FAILED):
        return "an error that its end does not have"
    return "" if sample.mode in task.labels else "an end that no attempt has"


@define
class Orchestrator:
    """Commands under way, by their numbers. A preparation is asked for under a number of its own below 0."""

    connections: Connections
    inbox: Inbox
    pool: ThreadPoolExecutor
    sampling: dict[int, Sampling] = field(factory=dict)
    ready: deque[Entry] = field(factory=deque)
    pauses: list[tuple[float, int, Any]] = field(factory=list)
    trained: deque[tuple[int, Any, "Future[Event]"]] = field(factory=deque)
    there: set[int] = field(factory=set)  # generators that are connected, as reported to the scheduler
    held: list[Entry] = field(factory=list)  # entries deferred until a generator is connected
    starts: Starts = field(default=Factory(lambda self: self.connections.starts, takes_self=True))

    def begin(self, number: int, command: Command) -> None:
        """Start a command."""
        if isinstance(command, say.Dispatch):
            self.sampling[number] = Sampling(command)
            self.dispatch(number)
        elif isinstance(command, say.Abort):
            self.cancel(number, command)
        elif isinstance(command, say.RetryAfter):
            heapq.heappush(self.pauses, (seconds() + command.seconds, number, command.command))
        elif isinstance(command, say.Report):
            if command.reason not in ("stale", "stopped"):
                self.connections.notice(f"{command.about} {command.number}: {command.reason}")
            self.over(number, say.Report.TAG)
        else:
            done = self.pool.submit(self.connections.trainer[type(command)], command)
            self.trained.append((number, command, done))

    def dispatch(self, number: int) -> None:
        """Ask a generator for a sample; if its group needs a start that is not prepared yet, prepare that first."""
        command = self.sampling[number].command
        start: Start | tuple[()] = ()
        if self.starts.groups:
            start = self.starts.ready.get(command.prompt, ())
            if isinstance(start, tuple):
                held = WaitingCommand(number, command.prompt, command.worker)
                self.starts, first = self.starts.asked(held)
                if first:
                    self.prepare(held)
                return
        request = self.connections.request(command.prompt, command.seat)
        self.sampling[number].request = request.id, request.group
        self.connections.workers.send(command.worker, number, RolloutRequest(request, command.version, start))

    def cancel(self, number: int, command: say.Abort) -> None:
        """Ask a generator to cancel a sample; one that was not asked for yet is dropped."""
        name = command.group, command.seat, command.attempt
        found = [one for one, each in self.sampling.items() if each.name == name and not each.cancelled]
        for one in found:
            if self.sampling[one].wanted:
                self.sampling[one].cancelled = True
                self.connections.workers.send(command.worker, number, Cancel(one))
                return
        self.drop(found)
        self.over(number, say.Abort.TAG)

    def prepare(self, held: WaitingCommand) -> None:
        """Ask the command's generator for the preparation of the command's group."""
        preparation, version = held.prompt // self.starts.groups, self.sampling[held.number].command.version
        self.connections.workers.send(held.worker, -1 - preparation, Prepare(preparation, version))

    def prepared(self, worker: int, wanted: int, answer: Any) -> None:
        """Accept a finished preparation; one with the wrong number is discarded and prepared again."""
        if not isinstance(answer, Ready) or answer.preparation != wanted:
            again = [one for one in self.starts.waiting if one.prompt // self.starts.groups == wanted]
            for held in again[:1]:
                self.prepare(evolve(held, worker=worker))
            return
        self.starts, freed = self.starts.come(answer)
        self.connections.prepared(self.starts, answer)
        for one in freed:
            self.dispatch(one)

    def drop(self, numbers: Sequence[int]) -> None:
        """Cancel commands that wait for a start, and mark them as finished."""
        for number in numbers:
            del self.sampling[number]
            self.starts = self.starts.without(number)
            self.over(number, say.Dispatch.TAG)

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
            if report.task < 0:
                self.prepared(report.worker, -1 - report.task, report.payload)
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
            one = self.sampling.get(number)
            if one and one.wanted:
                one.tokens += tokens
                self.queue(number, say.Dispatch.TAG, say.TokenChunk(*one.name, one.tokens, version))

    def answered(self, number: int, answer: Any) -> None:
        """Handle an answer. A sample of another request is reported as failed, and sampled again."""
        one = self.sampling.pop(number, None)
        if one and one.wanted:
            if wrong := one.wrong(answer):
                self.queue(number, say.Dispatch.TAG, Failed(one.command, f"a sample {wrong}"))
            else:
                self.connections.arrived(one.name, answer)
                whole = say.Finished(*one.name, answer.tokens, answer.head, answer.tail)
                self.queue(number, say.Dispatch.TAG, whole)
        self.over(number, say.Dispatch.TAG if one else say.Abort.TAG)

    def left(self, report: workers.WorkerLost) -> None:
        """Handle the loss of a generator together with its tasks."""
        if report.worker in self.there:
            self.there.remove(report.worker)
            self.connections.lost(report.worker, report.why)
            self.queue(DRIVER, "", say.Lost(report.worker))
        self.starts, again, gone = self.starts.lost(report.worker)
        self.drop(gone)
        for held in again:
            self.prepare(held)
        for number in [number for number, _ in report.work if number >= 0]:
            self.over(number, say.Dispatch.TAG if self.sampling.pop(number, None) else say.Abort.TAG)


def orchestrator_effects(connections: Connections, events: deque[Event]) -> Effects:
    """Return the effects of a scheduler. It receives what is in `events` before all else."""

    def open_(inbox: Inbox) -> Session:
        pool = ThreadPoolExecutor(1, thread_name_prefix="purestep-trainer")
        made = Orchestrator(connections, inbox, pool, there=set(range(connections.count)))

        def follow() -> Entry:
            return Received(DRIVER, "", events.popleft()) if events else made.follow()

        return Session(made.begin, follow, lambda wait: pool.shutdown(wait=wait, cancel_futures=True))

    return Effects(open_)
