"""Generators and a trainer in simulated time, for a scheduler: how long things take is drawn, and nothing waits for a clock.

A sample's tokens are log-normal in number and the same in every run with the same seed, whoever makes them and when. They
come in chunks, at the same speed each. How generators get new weights is one of three ways:

    interrupt    at the end of a chunk, in the middle of a sample
    next         at the beginning of the next sample
    barrier      all at once, when all have finished what they had; none begins another sample until then
"""

import heapq
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable

from attrs import Factory, define, frozen

from purestep.core.machine import Command, Event, Machine, Started, Stop
from purestep.runtime.scheduler import begin, scheduler
from purestep.runtime.scheduling import messages as say
from purestep.runtime.scheduling.state import Rules, Schedule

INTERRUPT, NEXT, BARRIER = "interrupt", "next", "barrier"
Name = tuple[int, int, int]


@frozen(kw_only=True)
class Setup:
    """Who is there, what they keep to, and how long things take, in simulated seconds."""

    generators: int
    rules: Rules
    slots: int = 1  # samples at a time with each generator
    mean: float = 100.0  # tokens of a sample
    sigma: float = 0.5  # of their logarithm
    chunk: int = 25  # tokens
    speed: float = 100.0  # tokens a second in each slot
    load: float = 0.02  # seconds in which a generator takes new weights
    train: float = 1.0  # seconds of an update
    publish: float = 0.02
    weights: str = INTERRUPT
    seed: int = 0


@define
class Flight:
    """A sample under way."""

    worker: int
    version: int
    left: int
    began: float
    tokens: int = 0
    head: int = -1


@define
class Run:
    """A run so far."""

    setup: Setup
    machine: Machine[Schedule]
    state: Schedule
    now: float = 0.0
    agenda: list[tuple[float, int, Callable[[], None]]] = Factory(list)
    numbers: "itertools.count[int]" = Factory(itertools.count)
    flights: dict[Name, Flight] = Factory(dict)
    held: list[say.Dispatch] = Factory(list)
    waiting: int = -1  # the version to publish when nothing is under way
    newest: int = 0
    busy: float = 0.0
    ends: list[float] = Factory(list)  # of updates
    ages: list[tuple[int, int]] = Factory(list)  # head and tail staleness of each sample learned from
    made: dict[Name, tuple[int, int]] = Factory(dict)  # head and tail of finished samples
    stop: bool = False
    decisions: int = 0
    spent: float = 0.0  # seconds of the processor in decisions


def ran(setup: Setup) -> Run:
    """The whole run, until its last update."""
    rules = setup.rules
    state = begin(rules, prompts=1 << 40, workers=setup.generators, slots=setup.slots)
    run = Run(setup, scheduler(rules), state)
    tell(run, Started())
    while not run.stop:
        run.now, _, act = heapq.heappop(run.agenda)
        act()
    return run


def later(run: Run, seconds: float, act: Callable[[], None]) -> None:
    """Does something after so many simulated seconds."""
    heapq.heappush(run.agenda, (run.now + seconds, next(run.numbers), act))


def tell(run: Run, event: Event) -> None:
    """Tells the scheduler, and performs what it asks for."""
    began = time.process_time()
    run.state, commands = run.machine.step(run.state, event)
    run.spent += time.process_time() - began
    run.decisions += 1
    for command in commands:
        perform(run, command)


def perform(run: Run, command: Command) -> None:
    """Begins what a command asks for."""
    if isinstance(command, say.Dispatch):
        if run.waiting >= 0:
            run.held.append(command)
        else:
            start(run, command)
    elif isinstance(command, say.Abort):
        end(run, (command.group, command.seat, command.attempt))
    elif isinstance(command, say.Train):
        run.ages += [tuple(command.version - made for made in run.made.pop(name)) for name in command.samples]  # type: ignore[misc]
        later(run, run.setup.train, lambda: updated(run, command))
    elif isinstance(command, say.Publish):
        publish(run, command.version)
    elif isinstance(command, Stop):
        run.stop = True


def updated(run: Run, command: say.Train) -> None:
    """An update is made."""
    run.ends.append(run.now)
    tell(run, say.Consumed(command.version))


def publish(run: Run, version: int) -> None:
    """Gives generators new weights, or waits until all have finished."""
    run.waiting = version if run.setup.weights == BARRIER else -1
    if run.setup.weights != BARRIER or not run.flights:
        later(run, run.setup.publish, lambda: published(run, version))


def published(run: Run, version: int) -> None:
    """New weights are there."""
    run.newest, run.waiting = version, -1
    held, run.held = run.held, []
    for command in held:
        start(run, command)
    tell(run, say.Published(version))


def start(run: Run, command: say.Dispatch) -> None:
    """A generator begins a sample, with the newest weights."""
    name = (command.group, command.seat, command.attempt)
    tokens = length(run.setup, command.prompt, command.seat)
    run.flights[name] = Flight(command.worker, run.newest, tokens, run.now)
    go_on(run, name, 0.0)


def length(setup: Setup, prompt: int, seat: int) -> int:
    """The tokens of a sample."""
    draw = random.Random(f"{setup.seed} {prompt} {seat}")
    return max(1, round(draw.lognormvariate(math.log(setup.mean) - setup.sigma**2 / 2, setup.sigma)))


def go_on(run: Run, name: Name, pause: float) -> None:
    """The next chunk of a sample."""
    tokens = min(run.setup.chunk, run.flights[name].left)
    flight = run.flights[name]
    later(run, pause + tokens / run.setup.speed, lambda: made(run, name, flight, tokens))


def made(run: Run, name: Name, flight: Flight, tokens: int) -> None:
    """A chunk is there, and perhaps the sample."""
    if run.flights.get(name) is not flight:
        return
    flight.left, flight.tokens = flight.left - tokens, flight.tokens + tokens
    flight.head = flight.version if flight.head < 0 else flight.head
    if not flight.left:
        end(run, name)
        run.made[name] = (flight.head, flight.version)
        tell(run, say.Finished(*name, flight.tokens, flight.head, flight.version))
        return
    tell(run, say.TokenChunk(*name, tokens, flight.version))
    if run.flights.get(name) is flight:
        newer = run.setup.weights == INTERRUPT and run.newest > flight.version
        flight.version = run.newest if newer else flight.version
        go_on(run, name, run.setup.load if newer else 0.0)


def end(run: Run, name: Name) -> None:
    """A sample is no longer under way."""
    flight = run.flights.pop(name, None)
    if flight is None:
        run.held = [one for one in run.held if (one.group, one.seat, one.attempt) != name]
        return
    run.busy += run.now - flight.began
    if run.waiting >= 0 and not run.flights:
        later(run, run.setup.publish, lambda version=run.waiting: published(run, version))


def figures(run: Run, skip: int) -> dict[str, float]:
    """What is to be said of a run, its first `skip` updates aside where times are meant."""
    setup, state = run.setup, run.state
    heads, tails = zip(*run.ages, strict=True)
    seconds = (run.ends[-1] - run.ends[skip]) / (len(run.ends) - 1 - skip)
    return {
        "seconds an update": seconds,
        "samples a second": setup.rules.batch / seconds,
        "largest staleness": max(heads),
        "mean head staleness": statistics.fmean(heads),
        "mean tail staleness": statistics.fmean(tails),
        "share of tokens wasted": state.tokens_wasted / (state.tokens_wasted + state.tokens_used),
        "share of time generating": run.busy / (run.now * setup.generators * setup.slots),
        "decisions": run.decisions,
        "decisions a second": run.decisions / run.spent,
    }
