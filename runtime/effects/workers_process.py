"""What runs in a worker's process: the standard library alone, until the body that it is given imports more.

It is run by its path, with the number of its end of a pipe. The path for imports comes first, then one pickle of (body,
arguments), then messages. Each way a message is one pickle of a tuple that begins with a word.
"""

import pickle
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

WORK, STOP = "work", "stop"  # to a worker: (WORK, task, payload), (STOP,)
READY, NOTE, ANSWER, RETURNED, RAISED = "ready", "note", "answer", "returned", "raised"  # from it
LONGEST = 300  # letters of an error


class StoppedError(EOFError):
    """Nobody wants anything more from this worker."""


def described(error: BaseException) -> str:
    """An exception in one line: its class and the first line of what it says.

    >>> described(KeyError("dosk"))
    "KeyError: 'dosk'"
    """
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:LONGEST]


class PipeMailbox:
    """A worker's end of a pipe, as its body sees it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """The next (task, payload), or () where none comes in that time; raises StoppedError (an EOFError) at the end."""
        until = time.monotonic() + seconds
        while True:
            if not self.connection.poll(max(0.0, until - time.monotonic())):
                return ()
            word, *rest = pickle.loads(self.connection.recv_bytes())
            if word == STOP:
                raise StoppedError
            if word == WORK:
                return tuple(rest)

    def answer(self, task: int, payload: Any) -> None:
        """The task is done, and this came of it."""
        self.send(ANSWER, task, payload)

    def note(self, payload: Any) -> None:
        """Says something that ends no task, and that this worker is alive."""
        self.send(NOTE, payload)

    def send(self, *words: Any) -> None:
        """One message."""
        self.connection.send_bytes(pickle.dumps(words))


def work(connection: Any) -> None:
    """Runs the body that comes through the pipe."""
    sys.path[:] = pickle.loads(connection.recv_bytes())
    mailbox = PipeMailbox(connection)
    try:
        body, arguments = pickle.loads(connection.recv_bytes())
        mailbox.send(READY)
        body(mailbox, *arguments)
        mailbox.send(RETURNED, "its body came to an end")
    except (StoppedError, BrokenPipeError):
        return
    except BaseException as error:
        mailbox.send(RAISED, described(error))


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
