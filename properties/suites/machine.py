"""Laws of effects as data (R1): a pure machine, its replay from a log, and the log as text.

The subject is a `Play`: a machine, where it begins, and handlers that answer its commands.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core.machine import Machine
from ...runtime.drive import Told, drive
from ...runtime.replay import Log, from_lines, recorded, replayed, simulated, to_lines
from ..framework.compare import render
from ..framework.law import Broken, Law, Mutant, Seen, Suite, always
from . import machine_mutants as mutants

SOURCE = "core.machine: effects as data; runtime.replay: the same run without the world"


@frozen
class Play:
    """A machine, its first state, its handlers (made anew for each run) and the classes of its events."""

    machine: Machine[Any]
    state: Any
    handlers: Callable[[], dict[type[Any], Callable[[Any], Any]]]
    classes: tuple[type, ...] = ()


Latencies = list[int]


def latencies() -> SearchStrategy[Latencies]:
    """How long the commands take, in order of issue; the list is repeated. It is a schedule."""
    return st.lists(st.integers(0, 5), min_size=1, max_size=6)


def perform(play: Play, times: Sequence[int], log: Log) -> list[Any]:
    """The states of one run in simulated time; what the machine is told goes into the log."""
    world = simulated(play.handlers(), lambda number, command: float(times[number % len(times)]))
    return list(drive(play.machine, play.state, recorded(world, log)))


def machine_laws() -> Suite:
    """The laws of a machine and of the log of its runs."""
    return Suite("machine_laws", (_pure(), _replay(), _text(), _values()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Play, Latencies, Seen], None], *needs: str) -> Law:
    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(latencies()),
        check=check,
        mutant=mutant,
        needs=needs,
        most=200,
    )


def _equal(where: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise Broken(f"{where}: got {render(got)}, wanted {render(wanted)}")


def _pure() -> Law:
    def check(play: Play, times: Latencies, seen: Seen) -> None:
        log: Log = []
        states = perform(play, times, log)
        told = [entry.event for entry in log if isinstance(entry, Told)]
        seen("several events", len(told) > 1)
        for state, event in zip(states, told, strict=False):
            first = play.machine.step(state, event)
            play.machine.step(play.state, event)
            _equal(f"the answer to {render(event)}, asked twice", play.machine.step(state, event), first)

    mutant = Mutant("counts events in a list beside the state", mutants.counts_beside)
    claim = "A machine's answer depends on its state and the event alone."
    return _law("machine_is_pure", claim, mutant, check, "several events")


def _replay() -> Law:
    def check(play: Play, times: Latencies, seen: Seen) -> None:
        log: Log = []
        live = perform(play, times, log)
        order = [entry.command for entry in log]
        seen("answers out of order", order != sorted(order))
        _equal("the states of the replayed run", list(drive(play.machine, play.state, replayed(log))), live)

    mutant = Mutant("looks at the world itself, not through a command", mutants.looks_outside)
    claim = "A run replayed from its log goes through the states of the live one, under every schedule."
    return _law("replay_is_the_run", claim, mutant, check, "answers out of order")


def _text() -> Law:
    def check(play: Play, times: Latencies, seen: Seen) -> None:
        log: Log = []
        live = perform(play, times, log)
        again = from_lines(to_lines(log), play.classes)
        _equal("the log, written and read", again, log)
        _equal("the states from the log that was read", list(drive(play.machine, play.state, replayed(again))), live)

    mutant = Mutant("puts a Python object without fields into an event", mutants.opaque_events)
    claim = "A log survives as lines of text, and the run with it."
    return _law("log_survives_as_text", claim, mutant, check)


def _values() -> Law:
    def check(play: Play, times: Latencies, seen: Seen) -> None:
        world = simulated(play.handlers(), lambda number, command: float(times[number % len(times)]))
        states, looks = [], []
        for state in drive(play.machine, play.state, world):
            states.append(state)
            looks.append(render(state))
        seen("a state that changes", len(set(looks)) > 1)
        for state, look in zip(states, looks, strict=True):
            now = render(state)
            if now != look:
                raise Broken(f"a state that was {look} became {now} in later steps")

    mutant = Mutant("appends to a list that all states share", mutants.shares_a_list)
    claim = "States are values: later steps change none of them."
    return _law("states_are_values", claim, mutant, check, "a state that changes")
