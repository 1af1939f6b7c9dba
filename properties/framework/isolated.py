"""Work in a child process, one item at a time, each with a time limit; what the child prints or writes to files is noted.

The child is a fork, so that nothing is imported again; without forks (Windows) the work is done here and without a limit.
"""

import os
import pickle
import select
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from attrs import frozen

HEAD = struct.Struct("<IQ")
PATIENCE = 1.0  # seconds for a child to end after its last result


@frozen
class ItemResult:
    """The result of one item, and notes on what the work did beside it."""

    value: Any
    notes: tuple[str, ...] = ()


@frozen
class Stopped:
    """An item without a result: the child ran over the time limit, or ended."""

    reason: str


def each_apart(count: int, work: Callable[[int], Any], *, limit: float) -> Iterator[ItemResult | Stopped]:
    """Yield the result of `work(i)` for each i below `count`; a result must be picklable.

    >>> [one.value for one in each_apart(2, lambda i: i + 1, limit=10.0)]
    [1, 2]
    """
    if not hasattr(os, "fork"):
        yield from (ItemResult(work(i)) for i in range(count))
        return
    start = 0
    while start < count:
        for outcome in _child(start, count, work, limit):
            start += 1
            yield outcome


def _child(start: int, count: int, work: Callable[[int], Any], limit: float) -> Iterator[ItemResult | Stopped]:
    """Yield the results of one child, and at its end the reason why there are no more."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of threads, of which torch has some that do nothing here
        child = os.fork()
    if child == 0:
        os.close(reading)
        _work(start, count, work, writing)
    os.close(writing)
    try:
        for _ in range(start, count):
            deadline = time.monotonic() + limit
            head = _read(reading, HEAD.size, deadline)
            body = _read(reading, HEAD.unpack(head)[1], deadline) if head else head
            if body is None or head is None:
                yield Stopped(f"did not end within {limit:g} s")
                return
            if not body:
                yield Stopped(f"ended the process ({_status(child)})")
                return
            yield pickle.loads(body)  # written by our own child
        _read(reading, 1, time.monotonic() + PATIENCE)  # it ends by itself
    finally:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(child, 0)
        os.close(reading)


def _read(pipe: int, size: int, deadline: float) -> bytes | None:
    """Return `size` bytes; b"" at the end of the pipe, None at the deadline."""
    found = b""
    while len(found) < size:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return None
        part = os.read(pipe, size - len(found))
        if not part:
            return b""
        found += part
    return found


def _status(child: int) -> str:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class SideEffects:
    """Notes of what happens in the child: files opened for writing, seconds slept, processes and connections."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.on = False
        self.slept = 0.0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an audit event of Python."""
        if not self.on:
            return
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            self._note(f"writes to {arguments[0]}")
        elif event in ("subprocess.Popen", "os.system", "socket.connect"):
            self._note({"socket.connect": "opens a connection"}.get(event, "starts a process"))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _work(start: int, count: int, work: Callable[[int], Any], pipe: int) -> None:
    """Do the work of a child, and end the process."""
    status = 1
    try:
        os.setpgid(0, 0)
        with tempfile.TemporaryFile() as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            sys.stdout = sys.stderr = os.fdopen(os.dup(1), "w")
            watch = SideEffects()
            sys.addaudithook(watch.hook)
            sleep = time.sleep

            def counted(seconds: float) -> None:
                watch.slept += seconds
                sleep(seconds)

            time.sleep = counted  # type: ignore[assignment]
            for i in range(start, count):
                watch.notes, watch.slept, watch.on = [], 0.0, True
                value = work(i)
                watch.on = False
                sys.stdout.flush()
                notes = list(watch.notes)
                if printed.tell():
                    printed.seek(0)
                    notes.append(f"prints {len(printed.read().splitlines())} lines")
                    printed.seek(0)
                    printed.truncate()
                if watch.slept > 0:
                    notes.append(f"sleeps {watch.slept:.1f} s in all")
                body = pickle.dumps(ItemResult(value, tuple(notes)))
                for block in (HEAD.pack(i, len(body)), body):
                    while block:
                        block = block[os.write(pipe, block) :]
        status = 0
    except BaseException as error:  # the parent hears of it by the end of the pipe
        status = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    finally:
        os._exit(status)
