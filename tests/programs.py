"""Programs that tests start, and waits that end: each fails after a time, with what it waited for."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONG = 240.0  # seconds for what several programs do on a busy machine
START = 120.0  # seconds for a program to say where it is: much is imported
END = 60.0  # seconds for it to end: engines let theirs end by itself for a while
LOOK = 0.005


def until(
    ready: Callable[[], bool],
    what: str,
    *,
    seconds: float = LONG,
    alive: Callable[[], bool] = lambda: True,
    said: Callable[[], object] = lambda: "",
) -> None:
    """Waits until it is so. Fails when the time is over, or before when nothing is alive that could bring it about.

    `said` is asked after a failure alone, and may end what it asks.
    """
    end = time.monotonic() + seconds
    while True:
        lives = alive()  # asked first: what has ended may have done it at last
        if ready():
            return
        assert lives, f"it ended before {what}; it said: {said()}"
        assert time.monotonic() < end, f"{seconds:.0f} s and not yet: {what}; it said: {said()}"
        time.sleep(LOOK)


def first_line(process: "subprocess.Popen[str]", seconds: float = START) -> str:
    """The first line that it prints."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], seconds)[0], f"{process.args!r} says nothing for {seconds:.0f} s"
    line = process.stdout.readline()
    assert line, f"{process.args!r} says nothing and ends"
    return line.strip()


def last_words(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it has said, output and errors; it is killed unless it has ended."""
    process.kill()
    return process.communicate(timeout=END)


@contextmanager
def host(
    listen: str, *, within: Callable[..., list[str]] = lambda *words: [*words]
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`purestep host`: its process, and the address that it says."""
    program = [sys.executable, "-m", "purestep.runtime.cli", "host", "--listen", listen]
    with subprocess.Popen(within(*program), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, first_line(process)
        finally:
            process.terminate()
            try:
                process.wait(END)
            finally:
                process.kill()


def free_port() -> str:
    """One of this machine's that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])
