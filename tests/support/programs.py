"""Programs that tests start, and waits that end: each fails after a time, with what it waited for."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .forks import fork_server

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


class Rank:
    """A process of a world, and the file of what it says."""

    def __init__(self, module: str, *words: object, strict: bool, environment: dict[str, object]) -> None:
        number, name = tempfile.mkstemp()
        os.close(number)
        self.told, self.server = Path(name), fork_server()
        self.pid = self.server.start(self.told, *words, module=module, strict=strict, environment=environment)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self.server.ended(self.pid)

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said; once."""
        code = self.server.code(self.pid, 600.0)
        text = self.told.read_text()
        self.told.unlink()
        return code, text

    def kill(self) -> None:
        """Ends it and whatever it has started at once, unless it has ended."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


class World:
    """So many ranks of a program, as a launcher starts them; with `strict`, warnings are errors and their output is lost."""

    def __init__(
        self, size: int, *words: object, module: str = "purestep.runtime.cli.main", strict: bool = False
    ) -> None:
        place = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        self.each = [
            Rank(
                module,
                *(str(word).format(rank=rank) for word in words),
                strict=strict,
                environment={"RANK": rank, **place},
            )
            for rank in range(size)
        ]

    def ended(self) -> list[tuple[int, str]]:
        """Exit codes and what was said; once."""
        try:
            return [one.ended() for one in self.each]
        finally:
            self.kill()

    def killed(self) -> list[tuple[int, str]]:
        """The same of ranks that are killed at once, unless they have ended."""
        self.kill()
        return self.ended()

    def kill(self) -> None:
        """Ends all of them, with whatever they have started, at once."""
        for one in self.each:
            one.kill()


def purestep(size: int, *words: object) -> World:
    """The command on so many ranks."""
    return World(size, *words)


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
