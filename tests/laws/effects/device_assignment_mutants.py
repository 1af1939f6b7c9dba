"""Ways to place workers as people get them wrong: each an edit of a right one."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from purestep.runtime.effects.engine.spots import Spot, free, in_turn


def each_once(next_spot: Any) -> Any:
    """Takes a device that is named twice for one."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        return next_spot(known, there, tuple(dict.fromkeys(devices)), taken)

    return wrong


def by_count(next_spot: Any) -> Any:
    """Takes turns as if nobody had been lost."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        spots = in_turn(there, devices)
        return spots[len(taken) % len(spots)]

    return wrong


def forgets_losses(next_spot: Any) -> Any:
    """Has workers where they would be if all hosts were there."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        return next_spot(known, known, devices, taken)

    return wrong


def keeps_to_the_left(next_spot: Any) -> Any:
    """Has a lost host's workers only on the devices that the other hosts have in turn."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        left = [spot for spot in in_turn(known, devices) if spot.host in there]
        return free(cycle(left), taken) if left else next_spot(known, there, devices, taken)

    return wrong


def _host_and_device_apart(next_spot: Any) -> Any:
    """Looks for the host that is used least, and for the device that is, without a look at who has both."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        hosts, used = Counter(spot.host for spot in taken), Counter(spot.device for spot in taken)
        host = min((one for one in known if one in there), key=lambda one: hosts[one])
        return Spot(host, min(devices, key=lambda one: used[one] / devices.count(one)))

    return wrong


def _the_first_host(next_spot: Any) -> Any:
    """Has all that is replaced on the first host that is there."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Spot]) -> Any:
        return next_spot(known, there if [*there] == [*known] else there[:1], devices, taken)

    return wrong


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "looks for host and device apart": _host_and_device_apart,
    "replaces all on the first host": _the_first_host,
}
