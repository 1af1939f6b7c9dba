"""Simulated time and randomness: a clock, durations with long tails, and an unreliable transport.

They are pure. The numbers depend on a key and on what is asked for, never on the time or the number of calls, so that two
systems that do the same work in another order get the same random numbers. `replay.simulated` takes such numbers for its
latencies; `async_rl.simulation.workers` combines all of them for a scheduler.
"""

import math
from bisect import bisect
from collections.abc import Callable
from typing import Any, cast

from attrs import frozen

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import WORD, Key, philox

Drawn = Callable[..., float]  # a function of at most four whole numbers in [0, 2**32)
Line = Callable[[int], tuple[float, ...]]  # the seconds after which each copy of a message arrives


@frozen
class Agenda:
    """A clock, and the items that are due."""

    now: float = 0.0  # seconds
    added: int = 0  # number of items ever added
    items: tuple[tuple[float, int, Any], ...] = ()  # (time, number in order of adding, item); the next one first


def schedule_after(agenda: Agenda, seconds: float, what: Any) -> Agenda:
    """Return the agenda with another item, due after this number of seconds; of items due together the first added comes first.

    Raises: ChoiceError for a negative number or NaN.

    >>> schedule_after(schedule_after(Agenda(), 2.0, "b"), 1.0, "a").items
    ((1.0, 1, 'a'), (2.0, 0, 'b'))
    """
    if not seconds >= 0:
        raise ChoiceError(
            message("later: seconds", got=seconds, wanted="0 or more", remedy="time does not run backwards")
        )
    when, added = agenda.now + seconds, agenda.added
    place = bisect(agenda.items, (when, added))
    return Agenda(agenda.now, added + 1, (*agenda.items[:place], (when, added, what), *agenda.items[place:]))


def pop_due(agenda: Agenda) -> tuple[Agenda, Any]:
    """Return the agenda at the time of its next item, without it, and the item. Raises: ChoiceError if it is empty.

    >>> pop_due(schedule_after(Agenda(), 1.5, "a"))
    (Agenda(now=1.5, added=1, items=()), 'a')
    """
    if not agenda.items:
        remedy = "ask only while something is under way"
        raise ChoiceError(message("due: the agenda", got="empty", wanted="something to do", remedy=remedy))
    (now, _, what), *rest = agenda.items
    return Agenda(now, agenda.added, tuple(rest)), what


def _words(key: Key) -> Callable[..., tuple[float, ...]]:
    """Return a function of up to four whole numbers to four uniform numbers in (0, 1): Philox as in `core.keys`, on ints."""
    pair = cast(Any, tuple(keys.check_key("simulated", key).tolist()))

    def uniform(*numbers: int) -> tuple[float, ...]:
        counter: Any = (*numbers, 0, 0, 0, 0)[:4]
        return tuple(((cast(int, word) & WORD) + 0.5) / (WORD + 1) for word in philox(pair, counter))

    return uniform


def log_normal(key: Key, *, mean: float, sigma: float) -> Drawn:
    """Return log-normal numbers, such as token counts of samples or durations of calls: most are small, a few very large.

    x_n = mean exp(sigma z_n - sigma^2 / 2),   z_n standard normal (Box and Muller 1958), of the key and n alone

    `mean` is that of x; half of all x are below mean exp(-sigma^2 / 2). n is up to four whole numbers in [0, 2**32), the
    same count each time. Raises: ChoiceError.

    >>> seconds = log_normal(keys.key(0), mean=2.0, sigma=1.0)
    >>> [round(seconds(call), 2) for call in (0, 1, 2, 1)], log_normal(keys.key(0), mean=2.0, sigma=0.0)(7, 3)
    ([3.27, 1.04, 0.37, 1.04], 2.0)

    As latencies of commands that run at once:

    >>> from purestep.core.machine import Machine, Started, Stop
    >>> from purestep.runtime.machine.drive import drive
    >>> from purestep.runtime.machine.replay_log import simulated
    >>> machine = Machine(lambda seen, event: ((*seen, event), (0, 1, 2, Stop()) if event == Started() else ()))
    >>> list(drive(machine, (), simulated({int: str}, lambda number, command: seconds(number))))[-1]
    (Started(), '2', '1', '0')
    """
    _least("log_normal: mean", mean)
    _least("log_normal: sigma", sigma)
    uniform = _words(key)

    def drawn(*numbers: int) -> float:
        radius, angle, _, _ = uniform(*numbers)
        z = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)
        return mean * math.exp(sigma * z - sigma**2 / 2)

    return drawn


def faulty_transport(
    key: Key, *, delay: float = 0.0, sigma: float = 1.0, drop: float = 0.0, double: float = 0.0
) -> Line:
    """Return a transport that delays, loses and duplicates messages, and so reorders them.

    Message n is lost with probability `drop`; otherwise it arrives, twice with probability `double`, each copy after a
    log-normal delay of its own (`delay` seconds in the mean). It returns the seconds of the copies, `()` if it is lost.
    Raises: ChoiceError.

    >>> [faulty_transport(keys.key(0), **faults)(3) for faults in ({}, {"drop": 1.0}, {"double": 1.0})]
    [(0.0,), (), (0.0, 0.0)]
    >>> slow = faulty_transport(keys.key(0), delay=1.0)
    >>> sorted(range(4), key=slow)
    [1, 0, 3, 2]
    """
    for name, share in (("drop", drop), ("double", double)):
        if not 0 <= share <= 1:
            remedy = "it is the share of messages"
            raise ChoiceError(message(f"line: {name}", got=share, wanted="a number in [0, 1]", remedy=remedy))
    fate_key, delay_key = keys.split(key)
    fate, seconds = _words(fate_key), log_normal(delay_key, mean=delay, sigma=sigma)

    def copies(number: int) -> tuple[float, ...]:
        lost, doubled, _, _ = fate(number)
        return tuple(seconds(number, copy) for copy in range(0 if lost < drop else 1 + (doubled < double)))

    return copies


def _least(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ChoiceError(message(name, got=value, wanted="0 or more", remedy="0 makes all numbers alike"))
