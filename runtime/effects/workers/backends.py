"""Two kinds of workers: a process of its own, or a thread of this one. Both run the same bodies.

A body is a function `body(mailbox, *arguments)`, see `Mailbox`. An engine starts one and puts its messages, as
(number, word, ...), in one inbox; the words are those of `process`.
"""

import pickle
import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any, Protocol

from attrs import frozen

from ....core.errors import PurestepError, message
from .process import DIED, run_body, task_message
from .program import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, WORK, StoppedError, describe_exception


class WorkersError(PurestepError, RuntimeError):
    """Error for workers that cannot be started, do not stay alive, or whose body or payload cannot be sent."""


class Mailbox(Protocol):
    """A body's connection to the owner of its worker."""

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """Return the next (task, payload), or () if none comes in that time; raises EOFError when the body must end."""
        ...

    def answer(self, task: int, payload: Any) -> None:
        """Send the result of a task, which is then done."""
        ...

    def note(self, payload: Any) -> None:
        """Send a message that finishes no task, and shows that this worker is alive."""
        ...


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
