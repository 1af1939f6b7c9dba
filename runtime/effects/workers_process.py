"""What runs in a worker's process: the standard library alone, until the body that it is given imports more.

It is run by its path, with the number of its end of a pipe. The path for imports comes first, then one pickle of (body,
arguments), then messages. Each way a message is one pickle of a tuple that begins with a word.
"""

import os
import pickle
import select
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

WORK, STOP = "work", "stop"  # to a worker: (WORK, task, payload), (STOP,)
READY, NOTE, ANSWER, RETURNED, RAISED = "ready", "note", "answer", "returned", "raised"  # from it
LONGEST = 300  # letters of an error
GRACE = 5.0  # seconds in which a worker that has lost its parent may end by itself


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
            word, *rest = pickle.loads(self.letter())
            if word == STOP:
                raise StoppedError
            if word == WORK:
                return tuple(rest)

    def letter(self) -> bytes:
        """Return the next message in the pipe. Raises: StoppedError where the parent is gone, which then wants nothing more."""
        try:
            found: bytes = self.connection.recv_bytes()
        except (EOFError, ConnectionResetError) as gone:
            raise StoppedError from gone
        return found

    def answer(self, task: int, payload: Any) -> None:
        """The task is done, and this came of it."""
        self.send(ANSWER, task, payload)

    def note(self, payload: Any) -> None:
        """Says something that ends no task, and that this worker is alive."""
        self.send(NOTE, payload)

    def send(self, *words: Any) -> None:
        """One message."""
        self.connection.send_bytes(pickle.dumps(words))


def outlived(descriptor: int) -> None:
    """Waits until nobody holds the other end of the pipe, then ends this process, whatever it is at, after a while."""
    end = select.poll()
    end.register(descriptor, 0)  # a hang-up is told without being asked for
    end.poll()
    time.sleep(GRACE)
    os._exit(1)


def work(connection: Any) -> None:
    """Runs the body that comes through the pipe."""
    threading.Thread(target=outlived, args=(connection.fileno(),), daemon=True).start()
    mailbox = PipeMailbox(connection)
    try:
        sys.path[:] = pickle.loads(mailbox.letter())
        body, arguments = pickle.loads(mailbox.letter())
        mailbox.send(READY)
        body(mailbox, *arguments)
        mailbox.send(RETURNED, "its body came to an end")
    except (StoppedError, BrokenPipeError, ConnectionResetError):
        return
    except BaseException as error:
        with suppress(BrokenPipeError, ConnectionResetError):
            mailbox.send(RAISED, described(error))


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
