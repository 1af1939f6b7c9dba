"""The body of a process that runs Monarch's own worker loop, beside a cluster or as a host: the members' processes are its
children. Linux only. When it is stopped, or Monarch ends, it ends with all processes of its session.
"""

import importlib
import os
import socket
import time
from contextlib import suppress
from typing import Any

from ...workers.program import end_session

LOOK = 0.5  # seconds between two checks of Monarch
BEGIN = 30.0  # seconds in which Monarch must listen


def start_node(scheme: str, ip: str, port: int) -> tuple[Any, str]:
    """Start Monarch's host at that port, any free one for 0; return a future that completes when it ends, and its address."""
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
        if has_ended(started) or time.monotonic() > until:
            raise OSError(f"nobody listens at {at}")
        time.sleep(0.02)


def has_ended(started: Any) -> bool:
    """Return whether Monarch's host has ended."""
    try:
        started.get(timeout=0.001)
    except TimeoutError:
        return False
    return True


def keep_host(mailbox: Any, scheme: str, ip: str, port: int) -> None:
    """Start a host of Monarch, send its address, and end it with all that it has started when the mailbox stops it."""
    started, at = start_node(scheme, ip, port)
    mailbox.note(at)
    with suppress(EOFError):
        while not has_ended(started):
            mailbox.receive(LOOK)
    end_session(os.getsid(0))
