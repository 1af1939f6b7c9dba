"""A process that performs calls for `tools.in_processes`: the standard library alone, so that it starts at once.

It is run by its path, with the number of its end of a pipe. A call comes as one pickle of (function, arguments). Once that
is read it answers with an empty frame, from which the caller's clock runs, and then with a pickle of how it went and what
it gave.
"""

import pickle
import sys
from multiprocessing.connection import Connection
from typing import Any

BEGUN = b""
RETURNED, RAISED, UNREADABLE = "returned", "raised", "unreadable"
LONGEST = 200  # letters of an error that a model is shown


def described(error: BaseException) -> str:
    """An exception in one line: its class and the first line of what it says.

    >>> described(KeyError("dosk")), described(TimeoutError())
    ("KeyError: 'dosk'", 'TimeoutError')
    """
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:LONGEST] if said else type(error).__name__


def work(connection: Any) -> None:
    """Performs calls, one after the other, until the other end of the pipe is closed."""
    sys.path[:] = pickle.loads(connection.recv_bytes())
    while True:
        try:
            frame = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_performed(connection, frame))


def _performed(connection: Any, frame: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(frame)
    except BaseException as error:
        return pickle.dumps((UNREADABLE, described(error)))
    connection.send_bytes(BEGUN)
    try:
        return pickle.dumps((RETURNED, function(*arguments)))
    except BaseException as error:  # a tool that calls sys.exit must not take the worker with it
        return pickle.dumps((RAISED, described(error)))


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
