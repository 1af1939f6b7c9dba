"""Hosts that were lost are taken in again when they are there."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....core.errors import PurestepError
from .interface import Cluster

EVERY = 2.0  # seconds between two looks, and for an attempt


@contextmanager
def rejoining(cluster: Cluster, hosts: Sequence[str], report: Callable[[str], object]) -> Iterator[None]:
    """For a block, tries every few seconds to take in again those of `hosts` that the cluster has lost; says so in a line."""
    over = threading.Event()

    def watch() -> None:
        gone = set[str]()
        while not over.wait(EVERY):
            there = set(cluster.hosts())
            for host in (name for name in hosts if name not in there):
                if host not in gone:
                    report(f"host {host} is lost; it is taken in again when it is there")
                    gone.add(host)
                try:
                    cluster.add_host(host, timeout=EVERY)
                except PurestepError:
                    continue
                gone.discard(host)
                report(f"host {host} is there again")

    watcher = threading.Thread(target=watch, name="purestep-rejoining", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(2.0 * EVERY)
