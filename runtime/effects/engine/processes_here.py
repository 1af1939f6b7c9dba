"""Members as processes of this machine: started, written to, heard and ended. POSIX only.

A `Place` is where members can be, this machine or a host that is reached over a network; both tell what they hear in the same
words. None of its calls waits.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from attrs import frozen

from . import processes_member
from .processes_rules import Seat

PROGRAM = Path(processes_member.__file__)
SAID, ENDED = 1, 2  # what is told of a member: a message it sent; that it is no more, and why
DRAIN = 0.5  # seconds for what a member that has ended had said before
Tell = Callable[[int, Seat, bytes], None]  # (SAID or ENDED, seat, the message or why); called in threads of the place


@frozen
class Place:
    """Where members can be."""

    start: Callable[[Seat], None]  # what goes wrong is told as ENDED
    send: Callable[[Seat, bytes], None]  # to one that is gone it does nothing
    end: Callable[[Seat], None]  # it and what it has started
    close: Callable[[], None]  # ends all and lets go of the place


def here(tell: Tell) -> Place:
    """Processes of this machine, each in a session of its own, which find modules by the path for imports of this one.

    A member whose parent is killed ends by itself.
    """
    crew = _Crew(tell)
    return Place(crew.start, crew.send, crew.end, crew.close)


class _Crew:
    """The processes that are there."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.lock = tell, threading.Lock()
        self.processes: dict[Seat, _Process] = {}

    def start(self, seat: Seat) -> None:
        try:
            process = _Process(seat, self.tell, self._left)
        except OSError as error:
            self.tell(ENDED, seat, f"its process cannot be started ({error.strerror})".encode())
            return
        with self.lock:
            self.processes[seat] = process
        process.begin()

    def _left(self, seat: Seat) -> None:
        with self.lock:
            self.processes.pop(seat, None)

    def send(self, seat: Seat, letter: bytes) -> None:
        process = self.processes.get(seat)
        if process is not None:
            process.outbox.put(letter)

    def end(self, seat: Seat) -> None:
        process = self.processes.get(seat)
        if process is not None:
            process.kill()

    def close(self) -> None:
        with self.lock:
            processes = [*self.processes.values()]
        for process in processes:
            process.kill()


class _Process:
    """One process, with threads that write to it, read from it and wait for its end."""

    def __init__(self, seat: Seat, tell: Tell, left: Callable[[Seat], None]) -> None:
        self.seat, self.tell, self.left = seat, tell, left
        self.lock, self.reaped = threading.Lock(), False
        self.outbox: SimpleQueue[bytes] = SimpleQueue()
        self.outbox.put(pickle.dumps(sys.path))
        self.ours, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-P", str(PROGRAM), str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        self.reader, self.writer = self._thread(self.listen), self._thread(self.speak)

    def _thread(self, task: Callable[[], None]) -> threading.Thread:
        name = f"purestep-member-{self.seat[0]}.{self.seat[1]}"
        return threading.Thread(target=task, name=name, daemon=True)

    def begin(self) -> None:
        """Starts the threads."""
        for thread in (self.reader, self.writer, self._thread(self.watch)):
            thread.start()

    def speak(self) -> None:
        """Writes what is to be written: a member that does not read blocks this thread alone."""
        with suppress(OSError):
            while letter := self.outbox.get():
                self.ours.send_bytes(letter)

    def listen(self) -> None:
        """Tells what the member says."""
        with suppress(EOFError, OSError):
            while True:
                self.tell(SAID, self.seat, self.ours.recv_bytes())

    def watch(self) -> None:
        """Waits for the end. Until `wait` has been called the process's number is nobody else's, and so is its group's."""
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        with self.lock:
            _kill(self.process.pid)
            code = self.process.wait()
            self.reaped = True
        self.reader.join(DRAIN)
        self.outbox.put(b"")
        self.writer.join(DRAIN)
        if not (self.reader.is_alive() or self.writer.is_alive()):
            self.ours.close()  # where one still waits, a new file could get the number that it waits for
        self.left(self.seat)
        self.tell(ENDED, self.seat, f"its process ended ({_how(code)})".encode())

    def kill(self) -> None:
        """Ends it and what it has started."""
        with self.lock:
            if not self.reaped:
                _kill(self.process.pid)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _how(code: int) -> str:
    """How a process ended, of its exit code.

    >>> _how(-9), _how(3)
    ('SIGKILL', 'code 3')
    """
    return signal.Signals(-code).name if code < 0 else f"code {code}"


def read(message: bytes) -> tuple[int, bool, Any]:
    """The number of the call, whether it gave a value, and that or why not.

    >>> read(processes_member.answered(3, True, "yes"))
    (3, True, 'yes')
    >>> read(processes_member.HEAD.pack(3, True) + b"no pickle")[:2]
    (3, False)
    """
    call, made = processes_member.HEAD.unpack_from(message)
    try:
        return call, made, pickle.loads(message[processes_member.HEAD.size :])
    except Exception as error:
        return call, False, f"what it gave cannot be read ({processes_member.described(error)})"
