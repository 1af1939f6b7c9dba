"""What runs in a member's process: the standard library alone, until the actor that it is given imports more.

It is run by its path, with the number of its end of a pipe. The path for imports comes first, as a pickle; then calls. Each is
a number, one byte that says whether it makes the actor, and a pickle: of (actor, arguments) where it does, else of (method,
arguments). An answer is that number, one byte that says whether it gave a value, and a pickle of that, or of why there is none.
Calls are made one by one. A thread reads, so that the member ends when its pipe is closed, whatever it does.
"""

import os
import pickle
import signal
import struct
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

HEAD = struct.Struct(
    ">Q?"
)  # of a call: its number, whether it makes the actor; of an answer: ..., whether it gave a value
LONGEST = 300  # letters of an error
LARGEST = 1 << 30  # bytes of a call or an answer


def described(error: BaseException) -> str:
    """An exception in one line: its class and the first line of what it says.

    >>> described(KeyError("dosk"))
    "KeyError: 'dosk'"
    """
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:LONGEST]


def answered(call: int, made: bool, value: Any) -> bytes:
    """The message of an answer; where the value cannot be sent, that is what it says.

    >>> HEAD.unpack_from(answered(3, True, 7)), HEAD.unpack_from(answered(3, True, sys))
    ((3, True), (3, False))
    """
    try:
        letter = pickle.dumps(value)
    except Exception as error:
        return HEAD.pack(call, False) + pickle.dumps(f"what it gave cannot be sent ({described(error)})")
    if len(letter) > LARGEST:
        return HEAD.pack(call, False) + pickle.dumps(f"what it gave has {len(letter)} bytes, more than {LARGEST}")
    return HEAD.pack(call, made) + letter


class Stage:
    """The actor, once it is made."""

    def __init__(self) -> None:
        self.actor: Any = None

    def perform(self, call: int, makes: bool, letter: bytes) -> bytes:
        """Makes a call; gives the message of its answer."""
        try:
            first, arguments = pickle.loads(letter)
            if makes:
                self.actor = first(*arguments)
                if hasattr(self.actor, "setup"):
                    self.actor.setup()
                return answered(call, True, None)
            return answered(call, True, getattr(self.actor, first)(*arguments))
        except BaseException as error:  # SystemExit too: a call does not end the member
            return answered(call, False, described(error))


def listen(connection: Any, calls: "SimpleQueue[bytes]") -> None:
    """Passes on the calls; when nobody can send any more it ends this process and what it has started."""
    try:
        while True:
            calls.put(connection.recv_bytes())
    finally:
        os.killpg(0, signal.SIGKILL)


def serve(connection: Any) -> None:
    """Makes the calls that come through the pipe."""
    sys.path[:] = pickle.loads(connection.recv_bytes())
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=listen, args=(connection, calls), daemon=True).start()
    stage = Stage()
    while True:
        letter = calls.get()
        call, makes = HEAD.unpack_from(letter)
        connection.send_bytes(stage.perform(call, makes, letter[HEAD.size :]))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
