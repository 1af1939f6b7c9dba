"""A scheduler among simulated generators and a simulated trainer, and what is to be said of such a run.

The time that passes is simulated. How fast the scheduler decides is the processor's time for the log of events alone, told
once more.
"""

import statistics
import time
from collections.abc import Callable

from attrs import Factory, define, frozen

from purestep.core import keys
from purestep.core.machine import Command, Event, Started, Stop
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import Rules, Schedule
from purestep.runtime.async_rl.simulation.effects import begin_command, happened
from purestep.runtime.async_rl.simulation.workers import INTERRUPT, Name, SimulationState, Twins
from purestep.runtime.machine.drive import Received
from purestep.runtime.machine.simulation import log_normal


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
class Run:
    """A run so far."""

    setup: Setup
    twins: Twins
    step: Callable[[Schedule, Event], tuple[Schedule, tuple[Command, ...]]]
    state: Schedule
    world: SimulationState = Factory(SimulationState)
    issued: int = 0
    ends: list[float] = Factory(list)  # of updates
    ages: list[tuple[int, int]] = Factory(list)  # head and tail staleness of each sample learned from
    made: dict[Name, tuple[int, int]] = Factory(dict)  # head and tail of finished samples
    stop: bool = False
    log: list[Event] = Factory(list)  # what the scheduler was told


def twins_of(setup: Setup) -> Twins:
    """The simulated side of a setup: a sample has the same tokens in every run with the same seed."""
    tokens = log_normal(keys.key(setup.seed), mean=setup.mean, sigma=setup.sigma)
    return Twins(
        tokens=tokens,
        chunk=setup.chunk,
        speed=setup.speed,
        load=setup.load,
        train=setup.train,
        publish=setup.publish,
        weights=setup.weights,
    )


def beginning(setup: Setup) -> Schedule:
    """The scheduler's first state: prompts without end."""
    return begin_schedule(setup.rules, prompts=1 << 40, workers=setup.generators, slots=setup.slots)


def ran(setup: Setup) -> Run:
    """The whole run, until its last update."""
    run = Run(setup, twins_of(setup), scheduler(setup.rules).step, beginning(setup))
    tell(run, Started())
    while not run.stop:
        run.world, entry = happened(run.twins, run.world)
        if isinstance(entry, Received):
            tell(run, entry.event)
    return run


def tell(run: Run, event: Event) -> None:
    """Tells the scheduler, notes what is to be measured, and begins what it asks for."""
    run.state, commands = run.step(run.state, event)
    run.log.append(event)
    if isinstance(event, say.Finished):
        run.made[(event.group, event.seat, event.attempt)] = (event.head, event.tail)
    elif isinstance(event, say.Consumed):
        run.ends.append(run.world.agenda.now)
    for command in commands:
        if isinstance(command, Stop):
            run.stop = True
            continue
        if isinstance(command, say.Train):
            versions = [run.made.pop(name) for name in command.samples]
            run.ages += [(command.version - head, command.version - tail) for head, tail in versions]
        run.world = begin_command(run.twins, run.world, run.issued, command)
        run.issued += 1


def decided(run: Run) -> float:
    """Seconds of the processor for all decisions of a run, made once more. Raises: RuntimeError where it ends otherwise."""
    step, state = run.step, beginning(run.setup)
    began = time.process_time()
    for event in run.log:
        state, _ = step(state, event)
    spent = time.process_time() - began
    if state != run.state:
        raise RuntimeError("the log, told again, is another run")
    return spent


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
        "tokens of a sample learned from": state.tokens_used / state.consumed,
        "share of tokens wasted": state.tokens_wasted / (state.tokens_wasted + state.tokens_used),
        "share of time generating": run.world.busy / (run.world.agenda.now * setup.generators * setup.slots),
        "decisions": len(run.log),
        "decisions a second": len(run.log) / decided(run),
    }
