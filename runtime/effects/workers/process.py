"""Child processes of this machine: the one way to start, watch and end them. POSIX only.

    server = ChildProcess(command, stdout=log)                             # any program
    child = run_body(pickle.dumps((body, arguments)), hear, name="worker")       # `body(mailbox, *arguments)`, in a new Python

Each child is a new process (not forked) and leads a session of its own: a terminal's signals do not reach it, and `end` kills
it with all processes of that session. If this process is killed, its children end within 10 s: a body's program notices it
(`program`), other programs need `ended_afterwards` of `survivor`.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from queue import Queue
from typing import Any

from attrs import frozen

from . import program
from .program import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, WORK, describe_exception, gone, session

PROGRAM = Path(program.__file__)
DIED, UNREADABLE = "died", "unreadable"  # words that `run_body` adds
LENGTHS = {READY: 1, NOTE: 2, ANSWER: 3, RETURNED: 2, RAISED: 2}  # lengths of the messages that a child may send
LOOK = 0.2  # seconds between two checks of a process whose pipe stays open
LEAVE = 10.0  # seconds in which killed processes must be gone
Hear = Callable[[tuple[Any, ...]], object]  # (message of the child); called in a thread for that child


class ChildProcess:
    """A program in a session of its own. Any thread may call the methods; `end` must be called, even after it has exited.

    >>> child = ChildProcess(["sh", "-c", "exit 3"])
    >>> child.wait(10.0), child.end(), child.ended()
    ('code 3', None, 'code 3')
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, **streams: Any) -> None:
        self.lock, self.ending, self.how = threading.Lock(), threading.Lock(), ""
        given = {"stdin": subprocess.DEVNULL, "env": None if environment is None else {**os.environ, **environment}}
        self.process = subprocess.Popen(command, **{**given, **streams}, start_new_session=True)
        self.pid = self.process.pid

    def ended(self) -> str:
        """Return how the program has ended, or "". It is not reaped: until `end`, its process id is not used again."""
        with self.lock:
            if self.how:
                return self.how
            try:
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # where SIGCHLD is ignored
                return f"code {self.process.poll()}"
        if found is None:
            return ""
        killed = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        return signal.Signals(found.si_status).name if killed else f"code {found.si_status}"

    def wait(self, seconds: float = float("inf")) -> str:
        """Return how the program has ended within that time, or ""."""
        until, pause = time.monotonic() + seconds, 0.001
        while not (how := self.ended()) and (left := until - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(0.1, 2.0 * pause)
        return how

    def kill(self) -> None:
        """Kill the program and its process group, without waiting for their end."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self.lock, suppress(ProcessLookupError, PermissionError):
            if not self.how:
                os.killpg(self.pid, number)

    def end(self, seconds: float = 0.0) -> None:
        """End the session, by SIGTERM and so many seconds of grace, if any, and then by SIGKILL. A second call does nothing."""
        with self.ending:
            if self.how:
                return
            if seconds and not self.ended():
                self._signal(signal.SIGTERM)
                self.wait(seconds)
            self.kill()
            how = self.wait(LEAVE)
            gone(lambda: session(self.pid))
            with self.lock:
                if how:
                    self.process.wait()
                    self.how = how
            if self.process.stdin:
                self.process.stdin.close()


@frozen
class Child:
    """A process that runs a body."""

    process: ChildProcess
    send: Callable[[bytes], None]  # (a pickled message); does not wait

    def work(self, task: int, payload: Any) -> None:
        """Send a task. Raises: any exception of pickle."""
        self.send(task_message(task, payload))

    def stop(self) -> None:
        """Ask the body to end."""
        self.send(pickle.dumps((STOP,)))


def task_message(task: int, payload: Any) -> bytes:
    """Return the message that sends a task to a child.

    >>> pickle.loads(task_message(7, "a prompt"))
    ('work', 7, 'a prompt')
    """
    return pickle.dumps((WORK, task, payload))


def run_body(
    frame: bytes,
    hear: Hear,
    *,
    name: str,
    environment: Mapping[str, str] | None = None,
    pass_fds: tuple[int, ...] = (),
    stderr: int | None = None,
) -> Child:
    """Start a process that runs the body of `frame`, a pickle of (body, arguments), with this process's path for imports.

    `hear` is called with each message that the body sends, with (UNREADABLE, why) for bytes that are no message, and finally
    once with (DIED, why); after that the owner of the child must call `end`. The body's prints go to standard error. `ps` shows
    `name`.

    >>> said = Queue()
    >>> child = run_body(pickle.dumps((print, ())), said.put, name="example", stderr=subprocess.DEVNULL)
    >>> said.get(), said.get(), said.get()
    (('ready',), ('returned', 'its body came to an end'), ('died', 'its process ended (code 0)'))
    >>> child.process.end()
    """
    ours, theirs = Pipe()
    with theirs:
        # -P: the program's own folder holds modules with the names of libraries.
        command = [sys.executable, "-P", str(PROGRAM), str(theirs.fileno()), name]
        process = ChildProcess(
            command,
            environment=environment,
            stdout=2 if stderr is None else stderr,
            stderr=stderr,
            pass_fds=(theirs.fileno(), *pass_fds),
        )
    outbox: Queue[bytes] = Queue()
    outbox.put(pickle.dumps(sys.path))
    outbox.put(frame)

    def speak() -> None:
        with suppress(OSError):
            while letter := outbox.get():
                ours.send_bytes(letter)

    speaker = threading.Thread(target=speak, name=f"purestep-to-{name}", daemon=True)

    def listen() -> None:
        why = _listened(ours, process, hear)
        outbox.put(b"")
        hear((DIED, why))
        speaker.join(LOOK)
        if not speaker.is_alive():
            ours.close()  # while the speaker still waits, a new file could get the descriptor that it waits for

    speaker.start()
    threading.Thread(target=listen, name=f"purestep-from-{name}", daemon=True).start()
    return Child(process, outbox.put)


def _listened(connection: Any, process: ChildProcess, hear: Hear) -> str:
    """Pass on a child's messages until the last one; return why there are no more."""
    while True:
        try:
            if not connection.poll(LOOK):
                if not process.ended() or connection.poll(0):
                    continue
                break
            letter = connection.recv_bytes()
        except (EOFError, OSError):
            break
        hear(read_letter(letter))
    return f"its process ended ({how})" if (how := process.wait(LOOK)) else "its pipe was closed"


def read_letter(letter: bytes) -> tuple[Any, ...]:
    """Return the fields of a child's message, or (UNREADABLE, why).

    >>> read_letter(pickle.dumps((NOTE, 7))), read_letter(b"no pickle")[0], read_letter(pickle.dumps(7))
    (('note', 7), 'unreadable', ('unreadable', '7, which is no message'))
    """
    try:
        words = pickle.loads(letter)
    except Exception as error:
        return UNREADABLE, f"{len(letter)} bytes that are no message ({describe_exception(error)})"
    known = isinstance(words, tuple) and words and isinstance(words[0], str)
    if not known or LENGTHS.get(words[0]) != len(words):
        return UNREADABLE, f"{repr(words)[:60]}, which is no message"
    return tuple(words)
