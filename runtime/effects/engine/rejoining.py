"""Hosts that were lost are taken in again when they are there."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....core.errors import ChoiceError
from .addresses import parted
from .interface import Cluster

EVERY = 1.0  # seconds between two looks at a host
REACH = 2.0  # seconds in which a host that is there lets itself be reached
JOIN = 60.0  # seconds in which a host that listens must be taken in: engines start processes on it
LEAVE = 5.0  # seconds for an attempt that is under way at the end


@contextmanager
def rejoining(cluster: Cluster, hosts: Sequence[str], report: Callable[[str], object]) -> Iterator[None]:
    """For a block, tries to take in again those of `hosts` that the cluster has lost; others than HOST:PORT come by themselves.

    Each host has a thread, so that one that is slow to answer keeps no other waiting. `report` is told in one line, by these
    threads, that a host is lost, that it is there again, and once why one that listens cannot be taken in.
    """
    over = threading.Event()

    def watch(host: str) -> None:
        said = ""
        while not over.wait(EVERY):
            if host in cluster.hosts():
                if said:
                    said = ""
                    report(f"host {host} is there again")
                continue
            if not said:
                said = "lost"
                report(f"host {host} is lost; it is taken in again when it is there")
            if not listens(host):
                continue
            try:
                cluster.add_host(host, timeout=JOIN)
            except Exception as error:  # whatever an engine's library raises: whoever watches goes on
                why = " ".join(str(error).split()) or type(error).__name__
                if said != why and not over.is_set():
                    said = why
                    report(f"host {host} listens and cannot be taken in again: {said}")

    watchers = [
        threading.Thread(target=watch, args=(host,), name=f"purestep-rejoining-{host}", daemon=True) for host in hosts
    ]
    for watcher in watchers:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        until = time.monotonic() + LEAVE
        for watcher in watchers:
            watcher.join(max(0.0, until - time.monotonic()))


def listens(host: str, seconds: float = REACH) -> bool:
    """Return whether something takes connections at HOST:PORT, which is closed at once."""
    try:
        socket.create_connection(parted(host), seconds).close()
    except (OSError, UnicodeError, ChoiceError):
        return False
    return True
