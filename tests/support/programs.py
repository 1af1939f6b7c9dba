"""Programs that tests start, and waits that end: each fails after a time, with what it waited for."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def suspend(pid: int) -> None:
    """Stops a process; returns once none of its threads runs, which may take them some milliseconds."""
    os.kill(pid, signal.SIGSTOP)

    def states() -> set[str]:
        tasks = Path(f"/proc/{pid}/task").glob("*/stat")
        return {task.read_text().rpartition(")")[2].split()[0] for task in tasks}

    until(lambda: states() == {"T"}, "all threads stand")


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
    program = [sys.executable, "-m", "purestep.runtime.cli.main", "host", "--listen", listen]
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


def listens(host: str, port: int) -> bool:
    """Return whether a program accepts connections at this address."""
    try:
        socket.create_connection((host, port), 1.0).close()
    except OSError:
        return False
    return True


def in_session(number: int) -> list[int]:
    """Return the processes of a session that run."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found.append(int(place.name))
    return found


def kill_session(number: int, seconds: float = END) -> None:
    """Kill the processes of a session until none is left or the time is over."""
    end = time.monotonic() + seconds
    while (left := in_session(number)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


class World:
    """So many processes of a program, each with its number, as a launcher would start them."""

    def __init__(self, size: int, *words: object) -> None:
        place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **place}
        self.each = [
            subprocess.Popen(
                [sys.executable, *(str(word).format(rank=rank) for word in words)],
                env={**usual, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            for rank in range(size)
        ]

    def ended(self) -> list[tuple[int, str]]:
        """Exit codes and what was said."""
        try:
            told = [one.communicate(timeout=600)[0] for one in self.each]
        finally:
            self.kill()
        return [(one.returncode, text) for one, text in zip(self.each, told, strict=True)]

    def killed(self) -> list[tuple[int, str]]:
        """The same of ranks that are killed at once, unless they have ended."""
        self.kill()
        return self.ended()

    def kill(self) -> None:
        """Ends all of them, with whatever they have started, at once."""
        for one in self.each:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)


def purestep(size: int, *words: object) -> World:
    return World(size, "-m", "purestep.runtime.cli.main", *words)


def well(world: World) -> str:
    """What the first of several says that all end with 0; the others say nothing."""
    ended = world.ended()
    assert [code for code, _ in ended] == [0] * len(ended), ended
    assert all(text == "" for _, text in ended[1:]), ended
    return ended[0][1]


def killed_after(world: World, checkpoint: Path) -> None:
    """Kills all when a checkpoint is there."""
    try:
        until(
            checkpoint.exists,
            f"{checkpoint.name} is there",
            alive=lambda: all(one.poll() is None for one in world.each),
            said=world.killed,
        )
    finally:
        world.kill()
    world.ended()
