"""Reconnection of lost hosts: they are added again once they can be reached."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....core.errors import ChoiceError
from .addresses import parted
from .interface import Cluster

EVERY = 1.0  # seconds between two checks of a host
REACH = 2.0  # seconds in which a running host must accept a connection
JOIN = 60.0  # seconds in which a host that listens must be added: engines start processes on it
LEAVE = 5.0  # seconds for a running attempt at the end of the block


@contextmanager
def rejoining(cluster: Cluster, hosts: Sequence[str], report: Callable[[str], object]) -> Iterator[None]:
    """Add those of `hosts` again, in the block, that the cluster has lost; hosts other than HOST:PORT rejoin by themselves.

    Each host has a thread, so that a slow one delays no other. `report` is called by these threads with one line when a host is
    lost, when it is available again, and once with the reason if one that listens cannot be added.
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
            except Exception as error:  # any error of an engine's library: the watcher goes on
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
    """Return whether HOST:PORT accepts a connection, which is closed at once."""
    try:
        socket.create_connection(parted(host), seconds).close()
    except (OSError, UnicodeError, ChoiceError):
        return False
    return True
