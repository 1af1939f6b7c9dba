"""Calls with a time limit, of any function: their result, or how they failed.

in_threads()     any function. A call that hangs is abandoned and not ended: its thread runs on, with all its side effects
                 except those on its arguments.
in_processes()   functions and arguments that can be pickled. A call that hangs is killed with its worker and all processes
                 that the worker has started, and another worker takes its place. POSIX only. If this process is killed,
                 its workers end within seconds.
lasting_processes()  the same without a block: its workers start at the first call and end with this process.
"""

import atexit
import contextlib
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, PurestepError, message
from ..clock import received
from ..workers.process import Child, run_body
from ..workers.program import ANSWER, NOTE, READY, describe_exception
from . import worker as tool_worker

RAISED, TIMED_OUT, DIED = "raised", "timed_out", "died"  # how a call failed
START = 60.0  # seconds in which a function must be imported in its worker
BODY = pickle.dumps((tool_worker.serve, ()))


class ToolError(PurestepError, RuntimeError):
    """Error for an environment that cannot be used: it does not start, its calls cannot be sent, or too many of them hang."""


@frozen
class Returned:
    """Result of a call."""

    value: Any


@frozen
class ToolFailure:
    """A failed call: how it failed ("raised", "timed_out", "died") and why."""

    kind: str
    error: str = ""


Perform = Callable[
    [Callable[..., Any], tuple[Any, ...], float], Returned | ToolFailure
]  # (function, arguments, seconds)


def in_threads(limit: int = 8, *, given_up: int = 32) -> Perform:
    """Return a `Perform` that calls in threads of this process, at most `limit` at a time; further calls wait for their turn.

    An abandoned call makes room for another one while its thread runs on, until it ends by itself or the process does. With
    more than `given_up` of those running the environment is unusable: then `perform` raises ToolError.
    Raises: ChoiceError.

    >>> in_threads()(divmod, (7, 2), 5.0)
    Returned(value=(3, 1))
    """
    turns, lock = threading.BoundedSemaphore(_at_least_one("in_threads", limit)), threading.Lock()
    lost = 0

    def perform(function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
        nonlocal lost
        answer: Queue[Returned | ToolFailure] = Queue()
        abandoned = threading.Event()

        def work() -> None:
            nonlocal lost
            answer.put(_performed(function, arguments))
            with lock:
                lost -= abandoned.is_set()

        with turns:
            if lost > given_up:
                got, remedy = f"{lost} running on", "use in_processes, which ends them"
                raise ToolError(message("in_threads: calls given up", got=got, wanted=given_up, remedy=remedy))
            threading.Thread(target=work, name="purestep-tool", daemon=True).start()
            with contextlib.suppress(Empty):
                return received(lambda wait: answer.get(timeout=wait), seconds)
            with lock:
                if not answer.empty():
                    return answer.get()
                abandoned.set()
                lost += 1
            return ToolFailure(TIMED_OUT)

    return perform


def _performed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Returned | ToolFailure:
    try:
        return Returned(function(*arguments))
    except BaseException as error:  # SystemExit too: in a thread it would vanish
        return ToolFailure(RAISED, describe_exception(error, tool_worker.LONGEST))


def _at_least_one(where: str, limit: int) -> int:
    if limit < 1:
        raise ChoiceError(message(f"{where}: limit", got=limit, wanted="at least 1", remedy="let one call run"))
    return limit


@frozen
class ToolProcess:
    """A process that performs calls, and its messages."""

    child: Child
    said: Queue[tuple[Any, ...]]


@contextlib.contextmanager
def in_processes(limit: int = 4) -> Iterator[Perform]:
    """Yield a `Perform` that calls in worker processes, at most `limit` at a time; the workers end with the block.

    A call that is running then fails ("died"), and after the block `perform` raises ToolError.
    A call's time limit starts when its function has been imported there, which may take a minute. A worker that was
    killed, or died, is replaced at the next call. The functions' prints go to standard error.
    Functions are imported by their module's name, so one of a script itself (`__main__`), a lambda or a function inside
    another cannot be sent: then, and if arguments cannot be pickled, `perform` raises ToolError. Raises: ChoiceError.

    >>> with in_processes() as perform:
    ...     perform(divmod, (7, 2), 5.0), perform(divmod, (7, 0), 5.0).kind
    (Returned(value=(3, 1)), 'raised')
    """
    turns = threading.BoundedSemaphore(_at_least_one("in_processes", limit))
    pool = _ProcessPool()

    def perform(function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
        frame = _frame(function, arguments)
        with turns:
            worker, sound = pool.take(), False
            try:
                made = _asked(worker, frame, seconds)
                sound = not (isinstance(made, ToolFailure) and made.kind in (TIMED_OUT, DIED))
            finally:
                pool.give_back(worker, sound)
            return made

    try:
        yield perform
    finally:
        pool.close()


def lasting_processes(limit: int = 4) -> Perform:
    """Return a `Perform` as that of `in_processes`; its workers start at the first call and end with this process."""
    stack, lock = contextlib.ExitStack(), threading.Lock()
    begun = list[Perform]()

    def perform(function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
        with lock:
            if not begun:
                begun.append(stack.enter_context(in_processes(limit)))
                atexit.register(stack.close)
        return begun[0](function, arguments, seconds)

    return perform


class _ProcessPool:
    """The workers of a block: idle ones, and those that perform a call."""

    def __init__(self) -> None:
        self.lock, self.closed = threading.Lock(), False
        self.idle: deque[ToolProcess] = deque()
        self.busy: set[ToolProcess] = set()

    def take(self) -> ToolProcess:
        """Return a worker for a call. Raises: ToolError once the block has ended."""
        with self.lock:
            if self.closed:
                got, wanted, remedy = "made after the block", "one inside it", "keep the block open while worlds run"
                raise ToolError(message("in_processes: call", got=got, wanted=wanted, remedy=remedy))
            worker = _waiting(self.idle)
            self.busy.add(worker)
            return worker

    def give_back(self, worker: ToolProcess, sound: bool) -> None:
        """Take a worker back after its call; kill one that has failed, or that comes back after the block."""
        with self.lock:
            self.busy.remove(worker)
            if sound and not self.closed:
                self.idle.append(worker)
            else:
                worker.child.process.end()

    def close(self) -> None:
        """Kill all workers."""
        with self.lock:
            self.closed = True
            for worker in self.busy:
                worker.child.process.end()  # the thread that waits for its answer notices its end, and gives it back
            while self.idle:
                self.idle.pop().child.process.end()


def _frame(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((function, arguments))
    except Exception as error:
        raise _unsendable(describe_exception(error, tool_worker.LONGEST)) from error


def _unsendable(why: str) -> ToolError:
    wanted, remedy = "a function of a module and values that pickle knows", "move it to a module, or use in_threads"
    return ToolError(message("in_processes: call", got=f"not to be sent ({why})", wanted=wanted, remedy=remedy))


def _waiting(idle: deque[ToolProcess]) -> ToolProcess:
    """Return an idle worker, or a new one; idle workers that have died are removed."""
    while idle:
        worker = idle.pop()
        if not worker.child.process.ended():
            return worker
        worker.child.process.end()
    said: Queue[tuple[Any, ...]] = Queue()
    return ToolProcess(run_body(BODY, said.put, name="tool"), said)


def _asked(worker: ToolProcess, frame: bytes, seconds: float) -> Returned | ToolFailure:
    worker.child.work(0, frame)
    until = time.monotonic() + START
    while True:
        try:
            word, *rest = received(lambda wait: worker.said.get(timeout=wait), max(0.0, until - time.monotonic()))
        except Empty:
            return ToolFailure(TIMED_OUT)
        if word == NOTE:  # the call starts now
            until = time.monotonic() + seconds
        elif word == ANSWER:
            break
        elif word != READY:
            return ToolFailure(DIED, "its process ended")
    try:
        how, given = pickle.loads(rest[1])
    except Exception as error:
        raise _unsendable(describe_exception(error, tool_worker.LONGEST)) from error
    if how == tool_worker.UNREADABLE:
        raise _unsendable(given)
    return Returned(given) if how == tool_worker.RETURNED else ToolFailure(RAISED, given)
