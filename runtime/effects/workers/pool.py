"""Supervised workers: generators in processes or threads, replaced when they are lost, their tasks handed back.

    with working(generate, (path,), size=2, patience=30.0) as workers:
        workers.send(0, 7, "a prompt")               # worker 0, task 7
        report = workers.receive(1.0)                # Joined, Answer, Note, Lost, or () when time is out

`backends` starts workers as processes or threads, `supervisor` decides.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

from attrs import frozen

from ....core.errors import message
from . import supervisor
from .backends import Body, Engine, Inbox, WorkerHandle, WorkersError, in_process
from .process import UNREADABLE
from .program import ANSWER, NOTE, READY, describe_exception


@frozen
class WorkerJoined:
    """Report: a worker has started and can be given tasks."""

    worker: int


@frozen
class WorkerAnswer:
    """Report: a worker has done a task."""

    worker: int
    task: int
    payload: Any


@frozen
class WorkerMessage:
    """Report: a worker's message that finishes no task."""

    worker: int
    payload: Any


@frozen
class WorkerLost:
    """Report: a worker has ended, or a task never reached it; the reason, and each (task, payload) to be assigned again."""

    worker: int
    why: str
    work: tuple[tuple[int, Any], ...]


Report = WorkerJoined | WorkerAnswer | WorkerMessage | WorkerLost


@frozen
class Workers:
    """The functions of a worker pool, for one thread. `stop` is called at the end of the block as well."""

    # (worker, task, payload); the caller numbers tasks. Raises: WorkersError if it cannot be sent; it is then not assigned.
    send: Callable[[int, int, Any], None]
    receive: Callable[[float], Report | tuple[()]]  # (seconds)
    alive: Callable[[], tuple[int, ...]]  # those that have started
    stop: Callable[[], tuple[int, ...]]  # returns those that could not be ended: threads that hang


def accept_all(task: int, payload: Any) -> str:
    """Accept every answer: return no fault."""
    return ""


@contextmanager
def working(
    body: Body,
    arguments: tuple[Any, ...] = (),
    *,
    size: int,
    patience: float,
    engine: Engine = in_process,
    refuse: Callable[[int, Any], str] = accept_all,
    start: float = 60.0,
    tries: int = 5,
    grace: float = 2.0,
) -> Iterator[Workers]:
    """Yield `size` workers that run `body(mailbox, *arguments)`.

    A worker is lost if it ends, sends an invalid message, answers a task that it does not have, sends an answer in which
    `refuse(task, payload)` finds a fault (its text; "" for none), or has work and sends nothing for `patience` seconds: it is
    ended and reported, and another one takes its place, after a pause that grows while no task is answered. After `tries` such
    losses `receive` raises WorkersError. At the end workers are asked to stop, and after `grace` seconds are ended. Raises:
    ChoiceError, WorkersError (a body that cannot be sent).
    """
    watch = _Watch(body, arguments, engine, refuse, grace)
    watch.state = supervisor.pool_state(size, patience=patience, start=start, tries=tries, now=time.monotonic())
    try:
        watch.tell(supervisor.SupervisorClock(time.monotonic()))
        yield Workers(watch.send, watch.receive, watch.alive, watch.stop)
    finally:
        watch.stop()


class _Watch:
    """The state of a worker pool, the handles of its workers, and the payloads of their tasks."""

    state: supervisor.PoolState

    def __init__(
        self, body: Body, arguments: tuple[Any, ...], engine: Engine, refuse: Callable[[int, Any], str], grace: float
    ) -> None:
        self.body, self.arguments, self.engine, self.refuse, self.grace = body, arguments, engine, refuse, grace
        self.hands: dict[int, WorkerHandle] = {}
        self.payloads: dict[int, Any] = {}
        self.inbox: Inbox = Queue()
        self.reports: Queue[Report] = Queue()
        self.given_up = ""
        self.ended: list[tuple[int, WorkerHandle]] = []

    def tell(self, event: supervisor.Event) -> bool:
        """Process an event and perform the resulting actions; return whether an answer counts."""
        self.state, actions = supervisor.supervisor_step(self.state, event)
        counts = False
        for action in actions:
            if isinstance(action, supervisor.StartWorker):
                self.hands[action.worker] = self.engine(action.worker, self.body, self.arguments, self.inbox)
            elif isinstance(action, supervisor.KillWorker):
                hand = self.hands.pop(action.worker)
                hand.end()
                self.ended.append((action.worker, hand))
            elif isinstance(action, supervisor.ReportLost):
                work = tuple((task, self.payloads.pop(task)) for task in action.tasks)
                self.reports.put(WorkerLost(action.worker, action.why, work))
            elif isinstance(action, supervisor.PoolExhausted):
                self.given_up = action.why
            else:
                counts = True
        return counts

    def send(self, worker: int, task: int, payload: Any) -> None:
        """Assign a task; if the worker is gone it comes back as Lost. A payload that cannot be sent is not assigned."""
        hand = self.hands.get(worker)
        letter = _packed(hand, task, payload) if hand else ()
        kept = self.payloads.get(task)
        self.payloads[task] = payload
        try:
            self.tell(supervisor.TaskSent(worker, task, time.monotonic()))
        except BaseException:
            self.payloads[task] = kept
            raise
        if hand:
            hand.send(letter)

    def receive(self, seconds: float) -> Report | tuple[()]:
        """Return the next report; messages that a worker sent before it was lost count, later ones do not."""
        until = time.monotonic() + seconds
        while True:
            if not self.reports.empty():
                return self.reports.get()
            if self.given_up:
                remedy = "see why they end: run the body in a thread, or alone"
                got, wanted = f"given up ({self.given_up})", "workers that stay alive"
                raise WorkersError(message("working: the pool", got=got, wanted=wanted, remedy=remedy))
            now = time.monotonic()
            if now >= supervisor.wakes(self.state):
                for _ in range(self.inbox.qsize()):  # a worker whose message has arrived is not silent
                    self._heard(now, *self.inbox.get())
                self.tell(supervisor.SupervisorClock(now))
                continue
            wait = min(until, supervisor.wakes(self.state)) - now
            try:
                letter = self.inbox.get(timeout=wait) if wait > 0 else self.inbox.get_nowait()
            except Empty:
                if time.monotonic() >= until:
                    return ()
                continue
            self._heard(time.monotonic(), *letter)

    def _heard(self, now: float, number: int, word: str, *rest: Any) -> None:
        known = number in self.hands
        if word == READY:
            self.tell(supervisor.WorkerReady(number, now))
        elif word == NOTE:
            self.tell(supervisor.MessageReceived(number, now))
        elif word == ANSWER:
            self._answered(now, number, *rest)
        else:
            why = f"{supervisor.GARBAGE}: {rest[0]}" if word == UNREADABLE else f"{word}: {rest[0]}"
            self.tell(supervisor.WorkerEnded(number, why, now))
        if known and word in (READY, NOTE):
            self.reports.put(WorkerJoined(number) if word == READY else WorkerMessage(number, rest[0]))

    def _answered(self, now: float, number: int, task: Any, payload: Any) -> None:
        fault = self.refuse(task, payload) if task in self.payloads else ""
        if fault:
            self.tell(supervisor.WorkerEnded(number, f"{supervisor.GARBAGE}: {fault}", now))
        elif self.tell(supervisor.TaskAnswered(number, task, now)):
            del self.payloads[task]
            self.reports.put(WorkerAnswer(number, task, payload))

    def alive(self) -> tuple[int, ...]:
        """Return the numbers of the workers that have started."""
        return tuple(worker.number for worker in self.state.workers if worker.ready)

    def stop(self) -> tuple[int, ...]:
        """End all workers; return the numbers of those that still run."""
        for hand in self.hands.values():
            hand.stop()
        until = time.monotonic() + self.grace
        for number, hand in [*self.hands.items()]:
            hand.joined(max(0.0, until - time.monotonic()))
            hand.end()
            self.ended.append((number, hand))
            del self.hands[number]
        return tuple(number for number, hand in self.ended if not hand.joined(0.0))


def _packed(hand: WorkerHandle, task: int, payload: Any) -> Any:
    try:
        return hand.packed(task, payload)
    except Exception as error:
        got, remedy = f"not to be sent ({describe_exception(error)})", "send what it is made from"
        wanted = "values that pickle knows"
        raise WorkersError(message(f"workers: task {task}", got=got, wanted=wanted, remedy=remedy)) from error
