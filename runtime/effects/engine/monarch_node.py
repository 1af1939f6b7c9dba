"""What runs beside a cluster as a host of Monarch: it has the members' processes as children and ends with whoever started it.

It is run by its path; Linux only. One line of JSON comes in, {"ip": address}; {"at": where Monarch listens} goes out, or
{"why": ...}. Then come {"watch": pid} for each member, answered by {"gone": pid} once it and what it had started are no more,
and {"kill": pid}. When its standard input ends, or Monarch does, so do it and all processes of its session. Monarch itself
tells late, or not at all, of members that leave with code 0 and of hosts that are gone, and leaves behind what members started.
"""

import importlib
import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

LOOK = 0.5  # seconds between two looks at Monarch
BEGIN = 30.0  # seconds in which Monarch must listen
ANSWERS = 3  # the descriptor of what is said here: what others print is no answer


def begun(ip: str) -> tuple[Any, str]:
    """Monarch's host on a free port of that address: what ends when it ends, and where it listens."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.create_server((ip, 0), family=family) as free:
        port = free.getsockname()[1]
    at = f"tcp://[{ip}]:{port}" if ":" in ip else f"tcp://{ip}:{port}"
    started = importlib.import_module("monarch.actor").start_worker_loop_forever(address=at, ca="trust_all_connections")
    until = time.monotonic() + BEGIN
    while True:
        with suppress(OSError):
            socket.create_connection((ip, port), 1.0).close()
            return started, at
        if ended(started) or time.monotonic() > until:
            raise OSError(f"nobody listens at {at}")
        time.sleep(0.02)


def ended(started: Any) -> bool:
    """Whether Monarch's host is no more."""
    try:
        started.get(timeout=0.001)
    except TimeoutError:
        return False
    return True


class Watch:
    """The members that are watched: a descriptor of each process, which can be read once that has ended."""

    def __init__(self, answers: int) -> None:
        self.answers = answers  # the descriptor of what is said here
        self.members: dict[int, int] = {}  # descriptor: pid

    def say(self, words: dict[str, Any]) -> None:
        """One line to whoever started this."""
        with suppress(OSError):
            os.write(self.answers, json.dumps(words).encode() + b"\n")

    def obey(self, order: dict[str, int]) -> None:
        """Does what a line says."""
        if "watch" in order:
            pid = order["watch"]
            try:
                self.members[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                self.gone(pid)
        elif order.get("kill") in self.members.values():
            end_group(order["kill"])

    def left(self, descriptor: int) -> None:
        """A member has ended."""
        pid = self.members.pop(descriptor)
        os.close(descriptor)
        self.gone(pid)

    def gone(self, pid: int) -> None:
        """Ends what a member has left behind, and tells of it."""
        end_group(pid)
        self.say({"gone": pid})

    def keep(self, started: Any) -> None:
        """Watches until nobody wants anything more, or Monarch has ended."""
        rest = b""
        while True:
            ready = select.select([0, *self.members], [], [], LOOK)[0]
            for descriptor in ready:
                if descriptor:
                    self.left(descriptor)
            if 0 in ready:
                said = os.read(0, 1 << 16)
                if not said:
                    return
                *lines, rest = (rest + said).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line))
            if not ready and ended(started):
                return


def end_group(pid: int) -> None:
    """Kills a member, which leads a group of its own, and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_session() -> None:
    """Kills all processes of this session but this one, until there are none."""
    while left := session(os.getsid(0)) - {os.getpid()}:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def session(number: int) -> set[int]:
    """The processes of a session, but for those that have ended."""
    found = set[int]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == number and state != "Z":
                found.add(int(place.name))
    return found


def first() -> dict[str, Any]:
    """The first line that comes in, and not a byte more."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            raise EOFError("nobody wants anything")
        line += byte
    words: dict[str, Any] = json.loads(line)
    return words


def main() -> None:
    """Starts a host of Monarch, says where, and keeps it."""
    watch = Watch(os.dup(1))
    os.dup2(2, 1)  # what others print is no answer
    try:
        started, at = begun(first()["ip"])
    except Exception as error:
        lines = str(error).splitlines()
        watch.say({"why": f"{type(error).__name__}: {lines[0] if lines else ''}"})
        os._exit(1)
    watch.say({"at": at})
    try:
        watch.keep(started)
    finally:
        end_session()
        os._exit(0)


if __name__ == "__main__":
    main()
