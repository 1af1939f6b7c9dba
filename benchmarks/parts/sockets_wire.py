"""A wire between this machine and a network namespace whose owner alters what goes over it, for `sockets_forged`.

Two tun devices and a process that carries packets from one to the other. When it is told to it alters bytes in the middle of
every so many-th large TCP segment and makes the checksum of that segment right again, so that TCP notices nothing.
"""

import fcntl
import multiprocessing
import os
import select
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from attrs import frozen

from .engine_hosts import killed_of, running_in

TUNSETIFF, TUN, BARE = 0x400454CA, 0x0001, 0x1000
MTU = 9000
LARGE = 1000  # bytes of payload from which on a segment is one of weights, most often
WORDS = 4  # of 16 bits, altered in a segment
TCP = 6
START = 30.0  # seconds in which the devices must be there


@frozen
class Wire:
    """A wire: its ends, and what its owner does."""

    ours: str  # the address of this machine
    theirs: str  # that of the namespace
    space: str
    every: Any  # shared: one of so many large segments is altered; 0 for none
    altered: Any  # shared: how many have been
    clear: Any  # shared: how many large segments had one 32-bit number over and over, as weights of `transfer_sides` in clear


@contextmanager
def wired() -> Iterator[Wire]:
    """A new namespace at the other end of a wire; what runs there at the end is killed. Raises: CalledProcessError."""
    mark = os.getpid() % 10000
    space, ends, net = f"pw{mark}", (f"pw{mark}a", f"pw{mark}b"), f"10.{150 + mark % 50}.{mark // 50}"
    context = multiprocessing.get_context("spawn")
    every, altered, clear = (context.Value("q", 0) for _ in range(3))
    wire = Wire(f"{net}.1", f"{net}.2", space, every, altered, clear)
    ready = context.Event()
    carrier = context.Process(target=carry, args=(ends, ready, every, altered, clear), daemon=True)
    ip("netns", "add", space)
    try:
        carrier.start()
        if not ready.wait(START):
            raise RuntimeError("no tun devices: the wire between namespaces needs /dev/net/tun")
        ip("link", "set", ends[1], "netns", space)
        for where, end, own, peer in (
            ([], ends[0], wire.ours, wire.theirs),
            (["-n", space], ends[1], wire.theirs, wire.ours),
        ):
            ip(*where, "addr", "add", own, "peer", peer, "dev", end)
            ip(*where, "link", "set", end, "mtu", str(MTU), "txqueuelen", "10000", "up")
        ip("-n", space, "link", "set", "lo", "up")
        yield wire
    finally:
        killed_of(partial(running_in, space))
        carrier.terminate()
        carrier.join()
        ip("netns", "del", space)


def carry(names: Sequence[str], ready: Any, every: Any, altered: Any, clear: Any) -> None:
    """Carry packets both ways for as long as the process lives that has started this one."""
    ends, large = [_end(name) for name in names], 0
    parent = multiprocessing.parent_process()
    assert parent is not None
    ready.set()
    while parent.sentinel not in (there := select.select([*ends, parent.sentinel], (), ())[0]):
        for end in there:
            packet = bytearray(os.read(end, 1 << 16))
            one_of, is_large = every.value, payload(packet) >= LARGE
            clear.value += is_large and packet[-256:-4] == packet[-252:]
            large = large + is_large if one_of else 0
            if one_of and is_large and large % one_of == one_of // 2:
                forge(packet)
                altered.value += 1
            with suppress(OSError):  # the other end is not up yet, or not any more
                os.write(ends[1 - ends.index(end)], packet)


def payload(packet: bytes | bytearray) -> int:
    """Return the bytes that a packet carries over TCP and IPv4, 0 for any other."""
    if packet[0] >> 4 != 4 or packet[9] != TCP:
        return 0
    start = (packet[0] & 15) * 4
    return len(packet) - start - (packet[start + 12] >> 4) * 4


def forge(packet: bytearray) -> None:
    """Invert words in the middle of the payload, and make the checksum right again (RFC 1624)."""
    sum_at = (packet[0] & 15) * 4 + 16
    middle = (len(packet) - payload(packet) // 2) & ~1
    (checksum,) = struct.unpack_from("!H", packet, sum_at)
    total = ~checksum & 0xFFFF
    for place in range(middle, middle + 2 * WORDS, 2):
        (word,) = struct.unpack_from("!H", packet, place)
        struct.pack_into("!H", packet, place, ~word & 0xFFFF)
        total += 2 * (~word & 0xFFFF)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", packet, sum_at, ~total & 0xFFFF)


def refused_by_tcp(space: str) -> int:
    """Return how many segments with a wrong checksum TCP has met in a namespace."""
    told = subprocess.run(
        ["ip", "netns", "exec", space, "cat", "/proc/net/snmp"], check=True, capture_output=True, text=True
    )
    names, values = (line.split() for line in told.stdout.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("InCsumErrors")])


def _end(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), TUN | BARE))
    return end


def ip(*words: str) -> None:
    """Run `ip`. Raises: CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
