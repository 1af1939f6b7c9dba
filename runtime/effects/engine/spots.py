"""Which host and device a worker gets: each in its turn, and where one was lost, the spot that is used least.

Workers' numbers grow with each that is replaced, and a host that comes back is the last one: neither says who is where.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle
from math import lcm

from attrs import frozen

from ....core.errors import ChoiceError, message


@frozen
class Spot:
    """Where a worker works."""

    host: str
    device: str


def in_turn(hosts: Sequence[str], devices: Sequence[str]) -> tuple[Spot, ...]:
    """The spots of the first workers; those of the others are the same again.

    spot_i = (hosts[i mod n], devices[i mod m]),   i < lcm(n, m)

    >>> [(spot.host, spot.device) for spot in in_turn(("a", "b"), ("cuda:0", "cuda:0", "cuda:1", "cuda:1"))]
    [('a', 'cuda:0'), ('b', 'cuda:0'), ('a', 'cuda:1'), ('b', 'cuda:1')]
    """
    count = lcm(len(hosts), len(devices))
    return tuple(Spot(hosts[i % len(hosts)], devices[i % len(devices)]) for i in range(count))


def free(spots: Iterable[Spot], taken: Iterable[Spot]) -> Spot | tuple[()]:
    """The first of these spots that is left when each that is taken is crossed off once; () where none is.

    >>> one, other = Spot("a", "cpu"), Spot("b", "cpu")
    >>> free((one, one, other), (one,)) == one, free((one, other), (other, one))
    (True, ())
    """
    left = Counter(taken)
    for spot in spots:
        if not left[spot]:
            return spot
        left[spot] -= 1
    return ()


def next_spot(
    known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]
) -> Spot | tuple[()]:
    """The spot of the next worker, where others have those that are `taken`; () where no host is there.

    It is the first that is free of those that the hosts ever `known` have in turn, so that a worker gets the spot of the one it
    replaces. Where that one's host is gone, all is shared out among the hosts that are there.

    >>> devices = ("cuda:0", "cuda:0", "cuda:1", "cuda:1")
    >>> next_spot(("a", "b"), ("b", "a"), devices, in_turn(("a", "b"), devices)[:3])  # the last of four was lost
    Spot(host='b', device='cuda:1')
    >>> next_spot(("a", "b"), ("b",), devices, (Spot("b", "cuda:0"), Spot("b", "cuda:0"), Spot("b", "cuda:1")))
    Spot(host='b', device='cuda:1')
    """
    if not there:
        return ()
    own = free((spot for spot in in_turn(known, devices) if spot.host in there), taken)
    return own or free(cycle(in_turn([host for host in known if host in there], devices)), taken)


class Book:
    """Who has which spot; for any number of threads. Raises: ChoiceError where no device is named."""

    def __init__(self, devices: Sequence[str]) -> None:
        if not devices:
            raise ChoiceError(
                message("spots: devices", got="()", wanted="at least 1", remedy="name one for each worker")
            )
        self.devices, self.lock = tuple(devices), threading.Lock()
        self.known: tuple[str, ...] = ()  # hosts, in the order in which they came first
        self.held: dict[object, Spot] = {}

    def take(self, worker: object, there: Sequence[str]) -> Spot | tuple[()]:
        """A spot on one of these hosts for that worker, which leaves the one that it has; () where no host is there."""
        with self.lock:
            self.known += tuple(host for host in there if host not in self.known)
            self.held.pop(worker, None)
            spot = next_spot(self.known, there, self.devices, (*self.held.values(),))
            if spot:
                self.held[worker] = spot
            return spot

    def leave(self, worker: object) -> None:
        """The worker is no more, or is about to end; again, it does nothing."""
        with self.lock:
            self.held.pop(worker, None)
