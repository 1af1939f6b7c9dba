"""Two ways to have a worker: a process of its own, or a thread of this one. Both take the same bodies.

A body is a function `body(mailbox, *arguments)`, see `Mailbox`. An engine starts one and tells what it says, as
(number, word, ...) in one inbox; the words are those of `workers_process`.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from attrs import frozen

from ...core.errors import PurestepError, message
from . import workers_process
from .workers_process import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, WORK, StoppedError, described

PROGRAM = Path(workers_process.__file__)
DIED, UNREADABLE = "died", "unreadable"  # words an engine adds
LENGTHS = {READY: 1, NOTE: 2, ANSWER: 3, RETURNED: 2, RAISED: 2}  # of the messages a worker may send
LOOK = 0.2  # seconds between two looks at a process whose pipe stays open


class WorkersError(PurestepError, RuntimeError):
    """Workers cannot be had or given a task: a body or payload cannot be sent, or they do not stay alive."""


class Mailbox(Protocol):
    """What a worker's body sees of those it works for."""

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """The next (task, payload), or () where none comes in that time; raises EOFError when it is to end."""
        ...

    def answer(self, task: int, payload: Any) -> None:
        """The task is done, and this came of it."""
        ...

    def note(self, payload: Any) -> None:
        """Says something that ends no task, and that this worker is alive."""
        ...


Body = Callable[..., None]
Inbox = SimpleQueue[tuple[Any, ...]]  # (number, word, ...)


@frozen
class Hand:
    """One worker that was started. None of these waits but `joined`."""

    packed: Callable[[int, Any], Any]  # (task, payload): as it is sent; raises where it cannot be
    send: Callable[[Any], None]  # what `packed` gave
    stop: Callable[[], None]  # asks it to end
    end: Callable[[], None]  # ends it, as far as that can be done
    joined: Callable[[float], bool]  # (seconds): whether it has ended


Engine = Callable[[int, Body, tuple[Any, ...], Inbox], Hand]  # (number, body, arguments, inbox)


def in_process(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> Hand:
    """A process of its own, new and not forked, in a session of its own: what it starts ends with it. POSIX only.

    Bodies are found by their module's name, so a script's own, a lambda or a function inside another cannot be sent; a
    worker whose parent was killed ends when it next looks into its mailbox. Raises: WorkersError.
    """
    try:
        frame = pickle.dumps((body, arguments))
    except Exception as error:
        wanted, remedy = "a function of a module and values that pickle knows", "move it to a module"
        got = f"not to be sent ({described(error)})"
        raise WorkersError(message("in_process: body", got=got, wanted=wanted, remedy=remedy)) from error
    ours, theirs = Pipe()
    command = [sys.executable, "-P", str(PROGRAM), str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), start_new_session=True
        )
    outbox: SimpleQueue[bytes] = SimpleQueue()
    outbox.put(pickle.dumps(sys.path))
    outbox.put(frame)

    def speak() -> None:
        with suppress(OSError):
            while letter := outbox.get():
                ours.send_bytes(letter)

    def listen() -> None:
        inbox.put((number, DIED, _listened(number, ours, process, inbox)))
        outbox.put(b"")

    for task in (speak, listen):
        threading.Thread(target=task, name=f"purestep-worker-{number}", daemon=True).start()
    return Hand(
        packed=lambda task, payload: pickle.dumps((WORK, task, payload)),
        send=outbox.put,
        stop=lambda: outbox.put(pickle.dumps((STOP,))),
        end=lambda: _killed(process),
        joined=lambda seconds: bool(_left(process, seconds)),
    )


def _listened(number: int, connection: Any, process: subprocess.Popen[bytes], inbox: Inbox) -> str:
    """Passes on what a process says until it says nothing more; gives why."""
    while True:
        try:
            if not connection.poll(LOOK):
                if not _gone(process) or connection.poll(0):
                    continue
                break
            letter = connection.recv_bytes()
        except (EOFError, OSError):
            break
        inbox.put((number, *_read(letter)))
    return f"its process ended ({code})" if (code := _left(process, LOOK)) else "its pipe was closed"


def _read(letter: bytes) -> tuple[Any, ...]:
    try:
        words = pickle.loads(letter)
    except Exception as error:
        return UNREADABLE, f"{len(letter)} bytes that are no message ({described(error)})"
    if not isinstance(words, tuple) or not words or LENGTHS.get(_word(words[0])) != len(words):
        return UNREADABLE, f"{repr(words)[:60]}, which is no message"
    return words


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _gone(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, or "". It is not waited for: while it is not, its number is nobody else's."""
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return f"code {process.poll()}"
    if found is None:
        return ""
    killed = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    return signal.Signals(found.si_status).name if killed else f"code {found.si_status}"


def _left(process: subprocess.Popen[bytes], seconds: float) -> str:
    """How a process ended within that time, or ""."""
    until = time.monotonic() + seconds
    while not (how := _gone(process)) and time.monotonic() < until:
        time.sleep(0.01)
    return how


def _killed(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and what it has started, also where it has ended and those have not."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class ThreadMailbox:
    """The mailbox of a worker that is a thread."""

    def __init__(self, number: int, inbox: Inbox) -> None:
        self.number, self.inbox = number, inbox
        self.outbox: Inbox = SimpleQueue()

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """See `Mailbox`."""
        try:
            word, *rest = self.outbox.get(timeout=seconds) if seconds > 0 else self.outbox.get_nowait()
        except Empty:
            return ()
        if word == STOP:
            raise StoppedError
        return tuple(rest)

    def answer(self, task: int, payload: Any) -> None:
        """See `Mailbox`."""
        self.inbox.put((self.number, ANSWER, task, payload))

    def note(self, payload: Any) -> None:
        """See `Mailbox`."""
        self.inbox.put((self.number, NOTE, payload))


def in_thread(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> Hand:
    """A thread of this process. It cannot be ended: one that hangs is left to itself, and what it says is not heard."""
    mailbox = ThreadMailbox(number, inbox)

    def run() -> None:
        inbox.put((number, READY))
        try:
            body(mailbox, *arguments)
            inbox.put((number, RETURNED, "its body came to an end"))
        except StoppedError:
            inbox.put((number, DIED, "it was stopped"))
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            inbox.put((number, RAISED, described(error)))

    thread = threading.Thread(target=run, name=f"purestep-worker-{number}", daemon=True)
    thread.start()

    def joined(seconds: float) -> bool:
        thread.join(seconds)
        return not thread.is_alive()

    def stop() -> None:
        mailbox.outbox.put((STOP,))

    return Hand(lambda task, payload: (WORK, task, payload), mailbox.outbox.put, stop, stop, joined)
