"""Laws of simulated workers: clocks keep order, and random numbers depend on a key and a number alone.

The subject is a `Simulating`: the functions of `runtime.machine.simulation`.
"""

import itertools
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.keys import Key
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.machine import simulation
from purestep.runtime.machine.simulation import Agenda, Drawn, Line

# --- mutants ---
# Common errors in simulated workers.


Edit = Callable[["Simulating"], "Simulating"]


@frozen
class Simulating:
    """The subject: functions that make agendas, durations and lines."""

    later: Callable[[Agenda, float, Any], Agenda]
    due: Callable[[Agenda], tuple[Agenda, Any]]
    log_normal: Callable[..., Drawn]
    line: Callable[..., Line]


def last_first(subject: Simulating) -> Simulating:
    """Order items of the same time last in, first out."""

    def later(agenda: Agenda, seconds: float, what: Any) -> Agenda:
        when = agenda.now + seconds
        before = tuple(item for item in agenda.items if item[0] < when)
        after = tuple(item for item in agenda.items if item[0] >= when)
        return evolve(agenda, added=agenda.added + 1, items=(*before, (when, agenda.added, what), *after))

    return evolve(subject, later=later)


def draws_the_next(subject: Simulating) -> Simulating:
    """Count calls outside the state, and draw the next number at each."""

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(key: Key, **how: Any) -> Any:
            inner, count = make(key, **how), itertools.count()
            return lambda *numbers: inner(next(count))

        return made

    return evolve(subject, log_normal=counted(subject.log_normal), line=counted(subject.line))


def mean_is_median(subject: Simulating) -> Simulating:
    """Use exp(log mean + sigma z), whose mean is larger."""

    def log_normal(key: Key, *, mean: float, sigma: float) -> Drawn:
        return subject.log_normal(key, mean=mean * math.exp(sigma**2 / 2), sigma=sigma)

    return evolve(subject, log_normal=log_normal)


def doubles_the_lost(subject: Simulating) -> Simulating:
    """Use the same random number for losses and duplicates."""

    def line(key: Key, *, drop: float = 0.0, double: float = 0.0, **how: float) -> Line:
        lossy, doubling = subject.line(key, drop=drop, **how), subject.line(key, double=1.0, **how)
        return lambda number: doubling(number) if double and not lossy(number) else lossy(number)

    return evolve(subject, line=line)


def one_delay(subject: Simulating) -> Simulating:
    """Use the delay of message 0 for all messages."""

    def line(key: Key, **how: float) -> Line:
        inner = subject.line(key, **how)
        first = subject.line(key, **{**how, "drop": 0.0, "double": 1.0})(0)
        return lambda number: first[: len(inner(number))]

    return evolve(subject, line=line)


def _ignores_the_second(subject: Simulating) -> Simulating:
    """Give both copies of a message the delay of the first."""

    def line(key: Key, **how: float) -> Line:
        inner = subject.line(key, **how)
        return lambda number: inner(number)[:1] * len(inner(number))

    return evolve(subject, line=line)


def _forgets_the_clock(subject: Simulating) -> Simulating:
    """Count seconds from time 0, not from the current time."""

    def later(agenda: Agenda, seconds: float, what: Any) -> Agenda:
        made = subject.later(evolve(agenda, now=0.0), seconds, what)
        return evolve(made, now=agenda.now)

    return evolve(subject, later=later)


def _normal(subject: Simulating) -> Simulating:
    """Draw durations from a normal distribution with the same mean and spread."""

    def log_normal(key: Key, *, mean: float, sigma: float) -> Drawn:
        inner = subject.log_normal(key, mean=1.0, sigma=1.0)
        return lambda *numbers: max(0.0, mean * (1 + sigma * (math.log(inner(*numbers)) + 0.5)))

    return evolve(subject, log_normal=log_normal)


MUTANTS: dict[str, Edit] = {
    "sends both copies together": _ignores_the_second,
    "counts seconds from the beginning": _forgets_the_clock,
    "draws normal times": _normal,
}


# --- laws ---


SOURCE = "runtime.machine.simulation: numbers come of a key and of what is asked about"
MANY = 4000  # draws for a share
NEAR = 0.04  # five standard deviations of a share of so many


def own_simulating() -> Simulating:
    """Return the library's own functions."""
    return Simulating(simulation.schedule_after, simulation.pop_due, simulation.log_normal, simulation.faulty_transport)


def simulated_laws() -> Suite:
    """The laws of a `Simulating`."""
    return Suite("simulated_laws", (_order(), _alone(), _tails(), _shares(), _reordered()))


_law = law_constructor(st.nothing, SOURCE)


def _order() -> Law:
    def check(subject: Simulating, moves: list[int], seen: Seen) -> None:
        agenda, model, clock = Agenda(), list[tuple[float, int]](), 0.0
        for number, quarter in enumerate(moves):
            if quarter < 0 and model:
                agenda, what = subject.due(agenda)
                clock = min(model)[0]
                same("what is due, and when", (what, agenda.now), (min(model)[1], clock))
                model.remove(min(model))
            else:
                agenda = subject.later(agenda, max(quarter, 0) / 4, number)
                model.append((clock + max(quarter, 0) / 4, number))
            seen("two that are due together", len({when for when, _ in model}) < len(model))
            seen("something due before what was added earlier", model != sorted(model))
        same("what is left", [what for _, _, what in agenda.items], [number for _, number in sorted(model)])

    claim = "What is due comes in the order of time, and of being added where times agree; the clock is at its time."
    mutant = Mutant("brings what was added last first where times agree", last_first)
    needs = ("two that are due together", "something due before what was added earlier")
    return _law("agendas_keep_order", claim, mutant, check, *needs, inputs=st.lists(st.integers(-4, 6), max_size=40))


def _alone() -> Law:
    def check(subject: Simulating, drawn: Any, seen: Seen) -> None:
        seed, numbers = drawn
        for make in _makers(subject):
            first, again = make(keys.key(seed)), make(keys.key(seed))
            forwards = [first(number) for number in numbers]
            backwards = [again(number) for number in reversed(numbers)]
            same("numbers asked for in another order", backwards[::-1], forwards)
            other = [make(keys.key(seed + 1))(number) for number in numbers]
            seen("several numbers", len({*numbers}) > 1)
            require(len({*numbers}) < 2 or other != forwards, "another key draws the same")

    claim = "A number depends on the key and on what it is asked for, not on what was asked before."
    mutant = Mutant("draws the next number each time", draws_the_next)
    inputs = st.tuples(st.integers(0, 2**40), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
    return _law("luck_comes_of_the_key_alone", claim, mutant, check, "several numbers", inputs=inputs)


def _makers(subject: Simulating) -> tuple[Callable[[Any], Callable[[int], Any]], ...]:
    def times(key: Any) -> Drawn:
        return subject.log_normal(key, mean=1.0, sigma=1.0)

    def copies(key: Any) -> Line:
        return subject.line(key, delay=1.0, double=0.5)

    return times, copies


def _tails() -> Law:
    def check(subject: Simulating, drawn: Any, seen: Seen) -> None:
        seed, mean, sigma = drawn
        times = subject.log_normal(keys.key(seed), mean=mean, sigma=sigma)
        values = [times(number) for number in range(MANY if sigma else 9)]
        seen("a spread", sigma)
        seen("none", sigma == 0)
        if not sigma:
            same("times without a spread", values, [mean] * len(values))
            return
        for z, share in ((-1.2816, 0.1), (0.0, 0.5), (1.2816, 0.9), (1.6449, 0.95)):
            bound = mean * math.exp(sigma * z - sigma**2 / 2)
            found = sum(value < bound for value in values) / len(values)
            require(abs(found - share) < NEAR, f"{found} of the times are below {bound}, wanted {share}")

    claim = "The shares of times below a bound are those of the log-normal distribution with that mean."
    mutant = Mutant("takes the mean for the median", mean_is_median)
    inputs = st.tuples(st.integers(0, 2**40), st.sampled_from((0.5, 20.0)), st.sampled_from((0.0, 0.5, 1.0, 1.5)))
    return _law("tails_are_log_normal", claim, mutant, check, "a spread", "none", most=10, inputs=inputs)


def _shares() -> Law:
    def check(subject: Simulating, drawn: Any, seen: Seen) -> None:
        seed, drop, double = drawn
        copies = subject.line(keys.key(seed), delay=1.0, drop=drop, double=double)
        counts = [len(copies(number)) for number in range(MANY)]
        lost, twice = counts.count(0) / MANY, counts.count(2) / MANY
        seen("a lost message", lost)
        seen("a doubled message", twice)
        seen("a sound line", drop == 0 == double)
        if drop == 0 == double:
            same("copies", {*counts}, {1})
        for name, share, wanted in (("lost", lost, drop), ("doubled", twice, (1 - drop) * double)):
            require(abs(share - wanted) < NEAR, f"{share} of the messages are {name}, wanted {wanted}")
        both = [delays for delays in map(copies, range(200)) if len(delays) == 2]
        require(all(first != second for first, second in both), "two copies arrive together")

    claim = (
        "As many messages are lost and doubled as the line is said to lose and double, and copies travel on their own."
    )
    mutant = Mutant("doubles what it was to lose", doubles_the_lost)
    inputs = st.tuples(st.integers(0, 2**40), st.sampled_from((0.0, 0.2, 1.0)), st.sampled_from((0.0, 0.3, 1.0)))
    needs = ("a lost message", "a doubled message", "a sound line")
    return _law("shares_are_kept", claim, mutant, check, *needs, most=20, inputs=inputs)


def _reordered() -> Law:
    def check(subject: Simulating, drawn: Any, seen: Seen) -> None:
        seed, sigma = drawn
        copies = subject.line(keys.key(seed), delay=2.0, sigma=sigma)
        arrivals = [number / 8 + copies(number)[0] for number in range(60)]
        overtaken = sum(later < sooner for sooner, later in pairwise(arrivals))
        seen("a spread", sigma)
        seen("none", sigma == 0)
        require((overtaken > 0) == (sigma > 0), f"{overtaken} messages were overtaken")
        require(all(value >= 0 for value in arrivals), "it arrives before it is sent")

    claim = "Delays that differ bring messages in another order, equal ones in the order they were sent in."
    mutant = Mutant("gives all messages one delay", one_delay)
    inputs = st.tuples(st.integers(0, 2**40), st.sampled_from((0.0, 1.0)))
    return _law("delays_reorder", claim, mutant, check, "a spread", "none", most=20, inputs=inputs)
