"""Monarch's own worker loop beside a cluster, or as a host: it has the members' processes as children.

It is run by its path; Linux only. One line of JSON comes in, {"at": address}, and {"at": where Monarch listens} goes out, or
{"why": ...}. When its standard input ends, or Monarch does, so do it and all processes of its session.
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


def begun(scheme: str, ip: str, port: int) -> tuple[Any, str]:
    """Start Monarch's host at that port, any free one for 0; return what ends when it ends, and where it listens."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.create_server((ip, port), family=family) as free:
        port = free.getsockname()[1]
    at = f"{scheme}://[{ip}]:{port}" if ":" in ip else f"{scheme}://{ip}:{port}"
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
    """Return whether Monarch's host is no more."""
    try:
        started.get(timeout=0.001)
    except TimeoutError:
        return False
    return True


def keep(started: Any) -> None:
    """Wait until nobody holds the other end of standard input, or Monarch has ended."""
    while not ended(started):
        if select.select([0], [], [], LOOK)[0] and not os.read(0, 1 << 16):
            return


def end_session() -> None:
    """Kill all processes of this session but this one, until there are none."""
    while left := session(os.getsid(0)) - {os.getpid()}:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def session(number: int) -> set[int]:
    """Return the processes of a session, but for those that have ended."""
    found = set[int]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == number and state != "Z":
                found.add(int(place.name))
    return found


def first() -> dict[str, Any]:
    """Return the first line that comes in, and read not a byte more."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            raise EOFError("nobody wants anything")
        line += byte
    words: dict[str, Any] = json.loads(line)
    return words


def main() -> None:
    """Start a host of Monarch, print where, and keep it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    try:
        order = first()
        started, at = begun(order["scheme"], order["ip"], order["port"])
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        print(json.dumps({"why": f"{type(error).__name__}: {said}"}), file=answers, flush=True)
        os._exit(1)
    print(json.dumps({"at": at}), file=answers, flush=True)
    try:
        keep(started)
    finally:
        end_session()
        os._exit(0)


if __name__ == "__main__":
    main()
