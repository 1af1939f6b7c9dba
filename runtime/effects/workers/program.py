"""The program of a child process: it runs a function, its body, that the parent sends. See `process` for the other side.

It is run by its path, with the descriptor of its end of a pipe, and imports the standard library alone, so that it starts at
once; its body may import more. The path for imports is sent first, then one pickle of (body, arguments), then messages. In both
directions a message is one pickle of a tuple that begins with a word.
"""

import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

WORK, STOP = "work", "stop"  # to a child: (WORK, task, payload), (STOP,)
READY, NOTE, ANSWER, RETURNED, RAISED = "ready", "note", "answer", "returned", "raised"  # from it
LONGEST = 300  # characters of an error
GRACE = 5.0  # seconds in which a child that has lost its parent may end by itself


class StoppedError(EOFError):
    """Error that ends a body: its parent has stopped it or is gone."""


def describe_exception(error: BaseException, longest: int = LONGEST) -> str:
    """Return an exception in one line: its class and the first line of its text.

    >>> describe_exception(KeyError("dosk")), describe_exception(TimeoutError())
    ("KeyError: 'dosk'", 'TimeoutError')
    """
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:longest] if said else type(error).__name__


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


class PipeMailbox:
    """A child's end of the pipe, as its body uses it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """Return the next (task, payload), or () if none comes in that time. Raises: StoppedError (an EOFError) at the end."""
        until = time.monotonic() + seconds
        while True:
            if not self.connection.poll(max(0.0, until - time.monotonic())):
                return ()
            word, *rest = pickle.loads(self.letter())
            if word == STOP:
                raise StoppedError
            if word == WORK:
                return tuple(rest)

    def letter(self) -> bytes:
        """Return the next message in the pipe. Raises: StoppedError if the parent is gone."""
        try:
            found: bytes = self.connection.recv_bytes()
        except (EOFError, ConnectionResetError) as gone:
            raise StoppedError from gone
        return found

    def answer(self, task: int, payload: Any) -> None:
        """Send the result of a task."""
        self.send(ANSWER, task, payload)

    def note(self, payload: Any) -> None:
        """Send a message that finishes no task, and shows that this process is alive."""
        self.send(NOTE, payload)

    def send(self, *words: Any) -> None:
        """Send one message."""
        self.connection.send_bytes(pickle.dumps(words))


def session(number: int, group: int = 0) -> set[int]:
    """Return the running processes of a session, or of a process group in it. Empty if there is no /proc.

    >>> os.getpid() in session(os.getsid(0)), session(-1)
    (True, set())
    """
    found = set[int]()
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, _, its_group, its = file.read().rpartition(b")")[2].split()[:4]
            if int(its) == number and group in (0, int(its_group)) and state != b"Z":
                found.add(int(name))
    return found


def gone(find: Callable[[], set[int]], seconds: float = 10.0) -> bool:
    """Kill processes until none is found; return False if some are left after so many seconds.

    >>> gone(set)
    True
    """
    until = time.monotonic() + seconds
    while left := find():
        if time.monotonic() > until:
            return False
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def end_session(number: int) -> None:
    """Kill all processes of a session, which its first process has started; the calling process is killed last."""
    gone(lambda: session(number) - {os.getpid()})
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)


def orphaned(descriptor: int, milliseconds: int | None) -> bool:
    """Return whether the other end of a pipe is closed, or is closed within that time; None waits until it is."""
    end = select.poll()
    end.register(descriptor, 0)  # a hang-up is reported without being asked for
    return bool(end.poll(milliseconds))


def end_with_parent(descriptor: int) -> None:
    """Wait until the parent is gone, then kill this process and all that it has started, after a grace period."""
    orphaned(descriptor, None)
    time.sleep(GRACE)
    end_session(os.getsid(0))


def run_sent_body(connection: Any) -> None:
    """Run the body that is sent through the pipe."""
    threading.Thread(target=end_with_parent, args=(connection.fileno(),), daemon=True).start()
    mailbox = PipeMailbox(connection)
    try:
        sys.path[:] = pickle.loads(mailbox.letter())
        body, arguments = pickle.loads(mailbox.letter())
        mailbox.send(READY)
        body(mailbox, *arguments)
        mailbox.send(RETURNED, "its body came to an end")
    except (StoppedError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException as error:
        with suppress(BrokenPipeError, ConnectionResetError):
            mailbox.send(RAISED, describe_exception(error))
    if orphaned(connection.fileno(), 0):
        end_session(os.getsid(0))


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    run_sent_body(Connection(int(sys.argv[1])))
