"""Simulated twins as people get them wrong."""

import itertools
import math
from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from purestep.core.keys import Key
from purestep.runtime.simulated import Agenda, Drawn, Line

Edit = Callable[["Simulating"], "Simulating"]


@frozen
class Simulating:
    """How clocks, times and lines are made."""

    later: Callable[[Agenda, float, Any], Agenda]
    due: Callable[[Agenda], tuple[Agenda, Any]]
    log_normal: Callable[..., Drawn]
    line: Callable[..., Line]


def last_first(subject: Simulating) -> Simulating:
    """An agenda that is a stack where times agree."""

    def later(agenda: Agenda, seconds: float, what: Any) -> Agenda:
        when = agenda.now + seconds
        before = tuple(item for item in agenda.items if item[0] < when)
        after = tuple(item for item in agenda.items if item[0] >= when)
        return evolve(agenda, added=agenda.added + 1, items=(*before, (when, agenda.added, what), *after))

    return evolve(subject, later=later)


def draws_the_next(subject: Simulating) -> Simulating:
    """A generator beside the twin, which goes on with each question."""

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(key: Key, **how: Any) -> Any:
            inner, count = make(key, **how), itertools.count()
            return lambda *numbers: inner(next(count))

        return made

    return evolve(subject, log_normal=counted(subject.log_normal), line=counted(subject.line))


def mean_is_median(subject: Simulating) -> Simulating:
    """exp(log mean + sigma z), whose mean is larger."""

    def log_normal(key: Key, *, mean: float, sigma: float) -> Drawn:
        return subject.log_normal(key, mean=mean * math.exp(sigma**2 / 2), sigma=sigma)

    return evolve(subject, log_normal=log_normal)


def doubles_the_lost(subject: Simulating) -> Simulating:
    """One number decides about both, from the same end."""

    def line(key: Key, *, drop: float = 0.0, double: float = 0.0, **how: float) -> Line:
        lossy, doubling = subject.line(key, drop=drop, **how), subject.line(key, double=1.0, **how)
        return lambda number: doubling(number) if double and not lossy(number) else lossy(number)

    return evolve(subject, line=line)


def one_delay(subject: Simulating) -> Simulating:
    """The delay of message 0 for all."""

    def line(key: Key, **how: float) -> Line:
        inner = subject.line(key, **how)
        first = subject.line(key, **{**how, "drop": 0.0, "double": 1.0})(0)
        return lambda number: first[: len(inner(number))]

    return evolve(subject, line=line)


def _ignores_the_second(subject: Simulating) -> Simulating:
    """Both copies of a message have the delay of the first."""

    def line(key: Key, **how: float) -> Line:
        inner = subject.line(key, **how)
        return lambda number: inner(number)[:1] * len(inner(number))

    return evolve(subject, line=line)


def _forgets_the_clock(subject: Simulating) -> Simulating:
    """Seconds are counted from the beginning of time."""

    def later(agenda: Agenda, seconds: float, what: Any) -> Agenda:
        made = subject.later(evolve(agenda, now=0.0), seconds, what)
        return evolve(made, now=agenda.now)

    return evolve(subject, later=later)


def _normal(subject: Simulating) -> Simulating:
    """Times with the same mean and spread, and no tails."""

    def log_normal(key: Key, *, mean: float, sigma: float) -> Drawn:
        inner = subject.log_normal(key, mean=1.0, sigma=1.0)
        return lambda *numbers: max(0.0, mean * (1 + sigma * (math.log(inner(*numbers)) + 0.5)))

    return evolve(subject, log_normal=log_normal)


MUTANTS: dict[str, Edit] = {
    "sends both copies together": _ignores_the_second,
    "counts seconds from the beginning": _forgets_the_clock,
    "draws normal times": _normal,
}
