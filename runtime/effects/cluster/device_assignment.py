"""Assignment of hosts and devices to workers: in turn; a replacement gets the spot of the lost worker, or the least used one.

Workers' numbers grow with each replacement, and a host that rejoins is the last in the list: neither identifies a spot.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle
from math import lcm

from attrs import frozen

from ....core.errors import ChoiceError, message


@frozen
class Device:
    """Host and device of a worker."""

    host: str
    device: str


def in_turn(hosts: Sequence[str], devices: Sequence[str]) -> tuple[Device, ...]:
    """Return the spots of the first workers; later workers get them again in the same order.

    spot_i = (hosts[i mod n], devices[i mod m]),   i < lcm(n, m)

    >>> [(spot.host, spot.device) for spot in in_turn(("a", "b"), ("cuda:0", "cuda:0", "cuda:1", "cuda:1"))]
    [('a', 'cuda:0'), ('b', 'cuda:0'), ('a', 'cuda:1'), ('b', 'cuda:1')]
    """
    count = lcm(len(hosts), len(devices))
    return tuple(Device(hosts[i % len(hosts)], devices[i % len(devices)]) for i in range(count))


def free(spots: Iterable[Device], taken: Iterable[Device]) -> Device | tuple[()]:
    """Return the first of these spots that remains after each taken spot is removed once; () if none does.

    >>> one, other = Device("a", "cpu"), Device("b", "cpu")
    >>> free((one, one, other), (one,)) == one, free((one, other), (other, one))
    (True, ())
    """
    left = Counter(taken)
    for spot in spots:
        if not left[spot]:
            return spot
        left[spot] -= 1
    return ()


def next_device(
    known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]
) -> Device | tuple[()]:
    """Return the spot of the next worker, given those `taken` by the others; () if no host is available.

    It is the first free one of the spots that all hosts ever `known` have in turn, so that a worker gets the spot of the one it
    replaces. If that host is gone, workers are spread over the available hosts.

    >>> devices = ("cuda:0", "cuda:0", "cuda:1", "cuda:1")
    >>> next_device(("a", "b"), ("b", "a"), devices, in_turn(("a", "b"), devices)[:3])  # the last of four was lost
    Device(host='b', device='cuda:1')
    >>> next_device(("a", "b"), ("b",), devices, (Device("b", "cuda:0"), Device("b", "cuda:0"), Device("b", "cuda:1")))
    Device(host='b', device='cuda:1')
    """
    if not there:
        return ()
    own = free((spot for spot in in_turn(known, devices) if spot.host in there), taken)
    return own or free(cycle(in_turn([host for host in known if host in there], devices)), taken)


class DeviceAssignment:
    """Assignment of spots to workers; thread-safe. Raises: ChoiceError if no device is named."""

    def __init__(self, devices: Sequence[str]) -> None:
        if not devices:
            raise ChoiceError(
                message("spots: devices", got="()", wanted="at least 1", remedy="name one for each worker")
            )
        self.devices, self.lock = tuple(devices), threading.Lock()
        self.known: tuple[str, ...] = ()  # hosts, in the order in which they first appeared
        self.held: dict[object, Device] = {}

    def take(self, worker: object, there: Sequence[str]) -> Device | tuple[()]:
        """Free the worker's spot and assign it one on these hosts; return that, or () if no host is available."""
        with self.lock:
            self.known += tuple(host for host in there if host not in self.known)
            self.held.pop(worker, None)
            spot = next_device(self.known, there, self.devices, (*self.held.values(),))
            if spot:
                self.held[worker] = spot
            return spot

    def leave(self, worker: object) -> None:
        """Free the spot of a worker that has ended or is about to; a second call does nothing."""
        with self.lock:
            self.held.pop(worker, None)
