"""Supervised workers: generators in processes or threads, replaced when they are lost, their tasks handed back.

    with working(generate, (path,), size=2, patience=30.0) as workers:
        workers.send(0, 7, "a prompt")               # worker 0, task 7
        report = workers.receive(1.0)                # Joined, Answer, Note, Lost, or () when time is out

A worker runs a body, a function `body(mailbox, *arguments)`, see `program.Mailbox`. An engine starts one, as a process of its
own or a thread of this one, and puts its messages, as (number, word, ...), in one inbox; the words are those of `process`.
`supervisor` decides.
"""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

from attrs import frozen

from ....core.errors import PurestepError, message
from . import supervisor
from .process import DIED, UNREADABLE, run_body, task_message
from .program import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, WORK, StoppedError, describe_exception


class WorkersError(PurestepError, RuntimeError):
    """Error for workers that cannot be started, do not stay alive, or whose body or payload cannot be sent."""


Body = Callable[..., None]
Inbox = Queue[tuple[Any, ...]]  # (number, word, ...)


@frozen
class WorkerHandle:
    """Handle of one started worker. None of its functions blocks except `joined`."""

    packed: Callable[[int, Any], Any]  # (task, payload): the message to send; raises if it cannot be sent
    send: Callable[[Any], None]  # sends a result of `packed`
    stop: Callable[[], None]  # asks it to end
    end: Callable[[], None]  # ends it, as far as that is possible
    joined: Callable[[float], bool]  # (seconds): whether it has ended


Engine = Callable[[int, Body, tuple[Any, ...], Inbox], WorkerHandle]  # (number, body, arguments, inbox)


def in_process(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> WorkerHandle:
    """Start a worker in a new process (not forked) with a session of its own: what it starts ends with it. POSIX only.

    Bodies are imported by their module's name, so a script's own, a lambda or a function inside another cannot be sent; a
    worker whose parent was killed ends within seconds. Raises: WorkersError.
    """
    try:
        frame = pickle.dumps((body, arguments))
    except Exception as error:
        wanted, remedy = "a function of a module and values that pickle knows", "move it to a module"
        got = f"not to be sent ({describe_exception(error)})"
        raise WorkersError(message("in_process: body", got=got, wanted=wanted, remedy=remedy)) from error
    child = run_body(frame, lambda words: inbox.put((number, *words)), name=f"worker-{number}")
    return WorkerHandle(
        packed=task_message,
        send=child.send,
        stop=child.stop,
        end=child.process.end,
        joined=lambda s: bool(child.process.wait(s)),
    )


class ThreadMailbox:
    """The mailbox of a worker that is a thread."""

    def __init__(self, number: int, inbox: Inbox) -> None:
        self.number, self.inbox = number, inbox
        self.outbox: Inbox = Queue()

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """Return the next task: see `Mailbox`."""
        try:
            word, *rest = self.outbox.get(timeout=seconds) if seconds > 0 else self.outbox.get_nowait()
        except Empty:
            return ()
        if word == STOP:
            raise StoppedError
        return tuple(rest)

    def answer(self, task: int, payload: Any) -> None:
        """Send the result of a task: see `Mailbox`."""
        self.inbox.put((self.number, ANSWER, task, payload))

    def note(self, payload: Any) -> None:
        """Send a sign of life: see `Mailbox`."""
        self.inbox.put((self.number, NOTE, payload))


def in_thread(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> WorkerHandle:
    """Start a worker in a thread. It cannot be killed: one that hangs is abandoned, and its messages are ignored."""
    mailbox = ThreadMailbox(number, inbox)

    def run() -> None:
        inbox.put((number, READY))
        try:
            body(mailbox, *arguments)
            inbox.put((number, RETURNED, "its body came to an end"))
        except StoppedError:
            inbox.put((number, DIED, "it was stopped"))
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            inbox.put((number, RAISED, describe_exception(error)))

    thread = threading.Thread(target=run, name=f"purestep-worker-{number}", daemon=True)
    thread.start()

    def joined(seconds: float) -> bool:
        thread.join(seconds)
        return not thread.is_alive()

    def stop() -> None:
        mailbox.outbox.put((STOP,))

    return WorkerHandle(lambda task, payload: (WORK, task, payload), mailbox.outbox.put, stop, stop, joined)


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
