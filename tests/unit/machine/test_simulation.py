"""Simulated twins: by hand, under their laws, and around a scheduler with a line that loses, doubles and reorders messages."""

from collections import Counter
from typing import Any

import pytest
from attrs import evolve

from purestep.core import keys
from purestep.core.errors import ChoiceError, DtypeError
from purestep.core.machine import Command, Event, Machine
from purestep.properties import check
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import Rules, Schedule
from purestep.runtime.async_rl.simulation.effects import begin_command, generators, happened
from purestep.runtime.async_rl.simulation.workers import SimulationState, Twins
from purestep.runtime.machine.drive import drive
from purestep.runtime.machine.replay_log import Log, from_lines, record_events, replay_events, to_lines
from purestep.runtime.machine.simulation import Agenda, faulty_transport, log_normal, pop_due, schedule_after

from ...laws.simulation.simulated import own_simulating, simulated_laws
from ...laws.simulation.simulation import twin_laws
from ...laws.simulation.simulation_plays import own_twinning

test_laws = check(simulated_laws(), own_simulating())
test_laws_of_generators = check(twin_laws(), own_twinning())

RULES = Rules(
    batch=4, group=2, concurrency=8, staleness=2, updates=12, retries=20, stale="requeue", proximal="recompute"
)
LONG = log_normal(keys.key(5), mean=60.0, sigma=1.0)


def watched(rules: Rules, seen: list[tuple[Event, tuple[Command, ...]]]) -> Machine[Schedule]:
    """The scheduler, and what it was told and said."""
    inner = scheduler(rules)

    def step(state: Schedule, event: Event) -> tuple[Schedule, tuple[Command, ...]]:
        after, commands = inner.step(state, event)
        seen.append((event, commands))
        return after, commands

    return Machine(step)


@pytest.mark.parametrize("weights", ["interrupt", "next", "barrier"])
def test_a_run_among_simulated_generators_ends_and_is_the_same_again(weights: str) -> None:
    twins, start = Twins(tokens=LONG, weights=weights, recompute=0.5), begin_schedule(RULES, prompts=999, workers=8)
    log: Log = []
    states = list(drive(scheduler(RULES), start, record_events(generators(twins), log)))
    assert (states[-1].version, states[-1].consumed, states[-1].stopped) == (12, 48, True)
    assert list(drive(scheduler(RULES), start, generators(twins))) == states
    again = from_lines(to_lines(log), (*say.EVENTS, *say.COMMANDS))
    assert list(drive(scheduler(RULES), start, replay_events(again))) == states


@pytest.mark.parametrize("seed", range(4))
def test_a_line_that_loses_doubles_and_reorders_costs_time_and_nothing_else(seed: int) -> None:
    """Each update is of samples that were finished once, none older than the bound, and the run ends."""
    lossy = faulty_transport(keys.key(seed), delay=0.5, drop=0.2, double=0.2)
    twins = Twins(tokens=LONG, line=lossy, patience=20.0, chunk=1_000_000)
    told = list[tuple[Event, tuple[Command, ...]]]()
    *_, last = drive(watched(RULES, told), begin_schedule(RULES, prompts=9999, workers=8), generators(twins))
    assert (last.version, last.consumed) == (12, 48)
    batches = [one for _, said in told for one in said if isinstance(one, say.Train)]
    assert max(Counter(name for batch in batches for name in batch.samples).values()) == 1
    assert all(batch.version - batch.head <= RULES.staleness for batch in batches)
    ends = Counter(event for event, _ in told if isinstance(event, say.Finished))
    assert max(ends.values()) == 2  # a doubled message came twice
    assert last.ignored > 0
    assert any(isinstance(event, say.TimedOut) for event, _ in told)


def test_weights_are_taken_at_the_end_of_a_chunk_by_hand() -> None:
    """Ten tokens, four a second, in chunks of four: version 1 comes in the middle of the first chunk, at 0.5 s."""
    twins = Twins(tokens=lambda *sample: 10.0, chunk=4, speed=4.0, load=0.25, publish=0.5)
    world = begin_command(twins, SimulationState(), 0, say.Dispatch(0, 0, 0, prompt=0, worker=0, version=0))
    world, told = begin_command(twins, world, 1, say.Publish(1)), list[tuple[float, Any]]()
    while world.agenda.items:
        world, entry = happened(twins, world)
        told.append((world.agenda.now, getattr(entry, "event", "end")))
    assert told == [
        (0.5, say.Published(1)),
        (0.5, "end"),
        (1.0, say.TokenChunk(0, 0, 0, 4, 0)),
        (2.25, say.TokenChunk(0, 0, 0, 8, 1)),
        (2.75, say.Finished(0, 0, 0, 10, 0, 1)),
        (2.75, "end"),
    ]
    assert world.busy == 2.75


def test_choices_that_lead_nowhere_are_refused() -> None:
    with pytest.raises(ChoiceError, match="later: seconds is nan, wanted 0 or more"):
        schedule_after(Agenda(), float("nan"), "a")
    with pytest.raises(ChoiceError, match="due: the agenda is empty"):
        pop_due(Agenda())
    with pytest.raises(ChoiceError, match=r"log_normal: sigma is -1\.0"):
        log_normal(keys.key(0), mean=1.0, sigma=-1.0)
    with pytest.raises(ChoiceError, match="line: drop is 2, wanted a number in"):
        faulty_transport(keys.key(0), drop=2)
    with pytest.raises(DtypeError, match="simulated: key"):
        log_normal(keys.key(0).float(), mean=1.0, sigma=1.0)
    twins = Twins(tokens=LONG)
    wrong: dict[str, Any] = {"chunk": 0, "speed": 0.0, "patience": 0.0}
    for name, value in wrong.items():
        with pytest.raises(ChoiceError, match=f"Twins: {name} is {value}"):
            evolve(twins, **{name: value})
    with pytest.raises(ChoiceError, match="did you mean 'interrupt'"):
        evolve(twins, weights="interupt")
    with pytest.raises(ChoiceError, match="twins: command is 'int'"):
        begin_command(twins, SimulationState(), 0, 7)
