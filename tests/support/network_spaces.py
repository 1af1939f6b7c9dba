"""Namespaces on one switch, threads that are hosts there, hosts that are lost, and lines that are slow and lose packets."""

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve

from .engine_spaces import Space, spaces

NEWNET = 0x40000000
TUNSETIFF, TUN, BARE = 0x400454CA, 0x0001, 0x1000
LARGEST = 9000  # bytes of a packet on a line


def ip(*words: str) -> str:
    """What the command says."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def device(space: Space) -> str:
    """The end of its link that a namespace has."""
    return space.link[:-1] + "b"


@contextmanager
def switched(count: int) -> Iterator[Sequence[Space]]:
    """So many namespaces that reach each other and this one; `ours` is our address, the same for all of them."""
    with spaces(count) as there:
        switch = there[0].name.replace("-0", "-s")
        net = f"198.18.{os.getpid() % 256}"
        made = [evolve(one, address=f"{net}.{10 + i}", ours=f"{net}.1") for i, one in enumerate(there)]
        ip("link", "add", switch, "type", "bridge")
        try:
            ip("addr", "add", f"{net}.1/24", "dev", switch)
            ip("link", "set", switch, "up")
            for one in made:
                ip("link", "set", one.link, "master", switch)
                ip("-n", one.name, "addr", "flush", "dev", device(one))
                ip("-n", one.name, "addr", "add", f"{one.address}/24", "dev", device(one))
            yield made
        finally:
            ip("link", "del", switch)


@contextmanager
def inside(space: Space) -> Iterator[None]:
    """What this thread opens in the block, and threads that it starts there, belong to the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{space.name}", os.O_RDONLY)
    try:
        assert libc.setns(there, NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(before, NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(there)
        os.close(before)


def limit(space: Space, megabytes: int) -> None:
    """What it sends is held to so many megabytes a second."""
    words = ["qdisc", "add", "dev", device(space), "root", "tbf", "rate", f"{8 * megabytes}mbit"]
    ran = [*words, "burst", "64kb", "latency", "100ms"]
    subprocess.run(["tc", "-n", space.name, *ran], check=True, capture_output=True)


def sent(space: Space) -> int:
    """Bytes that came to the switch from it, headers included."""
    return int(Path(f"/sys/class/net/{space.link}/statistics/rx_bytes").read_text())


def lose(space: Space) -> None:
    """Its host is gone: nothing comes from it any more, not even that it ends."""
    space.cut()
    for pid in ip("netns", "pids", space.name).split():
        os.kill(int(pid), signal.SIGKILL)


def replace(lost: Space, spare: Space) -> Space:
    """The spare host, which has taken the lost one's address, network card included."""
    card = ip("-n", lost.name, "-o", "link", "show", device(lost)).split("link/ether ")[1].split()[0]
    ip("-n", lost.name, "link", "set", device(lost), "down")
    ip("-n", spare.name, "link", "set", device(spare), "address", card)
    ip("-n", spare.name, "addr", "add", f"{lost.address}/24", "dev", device(spare))
    return evolve(spare, address=lost.address)


class Line:
    """Two devices, and a thread that carries packets from one to the other: late, and not all of them.

    The test is skipped where there are no such devices.
    """

    def __init__(self, name: str, *, delay: float = 0.0, loss: float = 0.0) -> None:
        self.delay, self.loss, self.down = delay, loss, False
        self.dropped = self.carried = 0  # packets
        self.names = (f"{name}a", f"{name}b")
        self.ends = tuple(self._end(each) for each in self.names)
        self.draw, self.over = random.Random(7), threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def _end(self, name: str) -> int:
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            pytest.skip(f"lines between namespaces need tun devices: {error}")
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), TUN | BARE))
        return end

    def _carry(self) -> None:
        late: list[tuple[float, int, int, bytes]] = []
        order = count()
        while not self.over.is_set():
            wait = min(0.05, max(0.0, late[0][0] - time.monotonic())) if late else 0.05
            for end in select.select(self.ends, (), (), wait)[0]:
                try:
                    packet = os.read(end, LARGEST)
                except BlockingIOError:
                    continue
                if self.down or self.draw.random() < self.loss:
                    self.dropped += 1
                    continue
                other = self.ends[1 - self.ends.index(end)]
                heapq.heappush(late, (time.monotonic() + self.delay, next(order), other, packet))
            while late and late[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(late)
                with suppress(OSError):  # that end is not up, or not any more
                    os.write(end, packet)
                    self.carried += 1

    def close(self) -> None:
        """The end, of the devices too."""
        self.over.set()
        self.thread.join()
        for end in self.ends:
            os.close(end)


@contextmanager
def line(one: Space, other: Space, *, delay: float = 0.0, loss: float = 0.0) -> Iterator[tuple[Line, str, str]]:
    """A line between two namespaces, and their addresses on it."""
    net = f"198.19.{os.getpid() % 256}"
    made = Line(one.name + "l", delay=delay, loss=loss)
    try:
        addresses = f"{net}.1", f"{net}.2"
        for space, name, own, peer in zip((one, other), made.names, addresses, reversed(addresses), strict=True):
            ip("link", "set", name, "netns", space.name)
            ip("-n", space.name, "addr", "add", own, "peer", peer, "dev", name)
            ip("-n", space.name, "link", "set", name, "mtu", str(LARGEST - 500), "up")
        yield made, *addresses
    finally:
        made.close()


@contextmanager
def detour(space: Space, *, delay: float = 0.0, loss: float = 0.0) -> Iterator[Line]:
    """For a block what goes between this namespace and that one takes a line; the addresses are as before."""
    made = Line(space.name + "d", delay=delay, loss=loss)
    here, there = made.names
    try:
        ip("link", "set", there, "netns", space.name)
        for where, name, own, peer in (
            ((), here, space.ours, space.address),
            (("-n", space.name), there, space.address, space.ours),
        ):
            ip(*where, "link", "set", name, "mtu", "1500", "up")
            ip(*where, "route", "add", f"{peer}/32", "dev", name, "src", own)
        yield made
    finally:
        made.close()
