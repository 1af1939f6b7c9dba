"""Laws of effects as data (R1): a pure machine, its replay from a log, and the log as text.

The subject is a `MachineCase`: a machine, its initial state, and handlers that perform its commands.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core.machine import Command, Event, Machine, Started, Stop
from ...runtime.machine.drive import Received, drive
from ...runtime.machine.replay_log import Log, from_lines, record_events, replay_events, simulated, to_lines
from ..framework.law import Broken, Law, Mutant, Seen, Suite, law_constructor
from ..framework.source import render

# --- mutants ---
# A machine that fetches numbered pages, two at a time, and edits that make it impure.


Step = Callable[[Any, Event], tuple[Any, tuple[Command, ...]]]


@frozen
class GetPage:
    """Command: fetch page number n."""

    n: int


@frozen
class GotPage:
    """Event: the content of page number n."""

    n: int
    value: int


@frozen
class Fetching:
    """The next page to fetch, the number of pending answers, and the received pages in order of arrival."""

    next: int = 0
    awaited: int = 0
    pages: Any = ()


PAGES, AT_ONCE = 6, 2


def fetch_step(state: Fetching, event: Event) -> tuple[Fetching, tuple[Command, ...]]:
    """Store a received page and fetch more, until all pages are there."""
    if isinstance(event, GotPage):
        pages = (*state.pages, (event.n, event.value))
        state = attrs.evolve(state, awaited=state.awaited - 1, pages=pages)
    elif not isinstance(event, Started):
        return state, ()
    if len(state.pages) == PAGES:
        return state, (Stop(),)
    more = min(AT_ONCE - state.awaited, PAGES - state.next)
    commands = tuple(GetPage(n) for n in range(state.next, state.next + more))
    return attrs.evolve(state, next=state.next + more, awaited=state.awaited + more), commands


def fetcher() -> Any:
    """Return the reference: a machine that fetches six pages, whose content is the square of their number."""

    def handlers() -> dict[type[Any], Callable[[Any], Any]]:
        return {GetPage: lambda command: GotPage(command.n, command.n**2)}

    return MachineCase(Machine(fetch_step), Fetching(), handlers, (GotPage, GetPage))


def _stepping(play: Any, step: Step) -> Any:
    return attrs.evolve(play, machine=Machine(step))


def counts_beside(play: Any) -> Any:
    """Add an entry at every seventh event, counted outside the state."""
    events: list[Event] = []

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        events.append(event)
        after, commands = play.machine.step(state, event)
        extra = (("seen", len(events)),) if len(events) % 7 == 0 else ()
        return (attrs.evolve(after, pages=(*extra, *after.pages)[:PAGES]) if extra else after), commands

    return _stepping(play, step)


def looks_outside(play: Any) -> Any:
    """Read the content of a page from a shared dict, not from its event."""
    world: dict[int, int] = {}

    def handlers() -> Any:
        world.clear()
        inner = play.handlers()

        def fetch(command: GetPage) -> GotPage:
            answer: GotPage = inner[GetPage](command)
            world[command.n] = answer.value
            return attrs.evolve(answer, value=0)

        return {GetPage: fetch}

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        if isinstance(event, GotPage):
            event = attrs.evolve(event, value=world.pop(event.n, -1))
        answer: tuple[Any, tuple[Command, ...]] = play.machine.step(state, event)
        return answer

    return attrs.evolve(play, machine=Machine(step), handlers=handlers)


def opaque_events(play: Any) -> Any:
    """Answer with Python objects that cannot be written as text."""

    def handlers() -> Any:
        inner = play.handlers()
        return {GetPage: lambda command: attrs.evolve(inner[GetPage](command), value=object())}

    return attrs.evolve(play, handlers=handlers)


def shares_a_list(play: Any) -> Any:
    """Store the pages in one list that all states share."""

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        after, commands = play.machine.step(state, event)
        shared = state.pages if isinstance(state.pages, list) else []
        if isinstance(event, GotPage):
            shared.append((event.n, event.value))
        return attrs.evolve(after, pages=shared), commands

    return _stepping(play, step)


# --- laws ---


SOURCE = "core.machine: effects as data; runtime.machine.replay_log: the same run without the world"


@frozen
class MachineCase:
    """A machine, its initial state, a function that makes its handlers (called once per run) and the classes in its log."""

    machine: Machine[Any]
    state: Any
    handlers: Callable[[], dict[type[Any], Callable[[Any], Any]]]
    classes: tuple[type, ...] = ()


Latencies = list[int]


def latencies() -> SearchStrategy[Latencies]:
    """Draw a schedule: the durations of the commands in order of issue; the list is repeated."""
    return st.lists(st.integers(0, 5), min_size=1, max_size=6)


def perform(play: MachineCase, times: Sequence[int], log: Log) -> list[Any]:
    """Return the states of one run in simulated time; commands and events are appended to `log`."""
    world = simulated(play.handlers(), lambda number, command: float(times[number % len(times)]))
    return list(drive(play.machine, play.state, record_events(world, log)))


def machine_laws() -> Suite:
    """The laws of a machine and of the logs of its runs."""
    return Suite("machine_laws", (_pure(), _replay(), _text(), _values()))


_law = law_constructor(latencies, SOURCE, most=200)


def _equal(where: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise Broken(f"{where}: got {render(got)}, wanted {render(wanted)}")


def _pure() -> Law:
    def check(play: MachineCase, times: Latencies, seen: Seen) -> None:
        log: Log = []
        states = perform(play, times, log)
        told = [entry.event for entry in log if isinstance(entry, Received)]
        seen("several events", len(told) > 1)
        for state, event in zip(states, told, strict=False):
            first = play.machine.step(state, event)
            play.machine.step(play.state, event)
            _equal(f"the answer to {render(event)}, asked twice", play.machine.step(state, event), first)

    mutant = Mutant("counts events in a list beside the state", counts_beside)
    claim = "A machine's answer depends on its state and the event alone."
    return _law("machine_is_pure", claim, mutant, check, "several events")


def _replay() -> Law:
    def check(play: MachineCase, times: Latencies, seen: Seen) -> None:
        log: Log = []
        live = perform(play, times, log)
        order = [entry.command for entry in log]
        seen("answers out of order", order != sorted(order))
        _equal("the states of the replayed run", list(drive(play.machine, play.state, replay_events(log))), live)

    mutant = Mutant("looks at the world itself, not through a command", looks_outside)
    claim = "A run replayed from its log goes through the states of the live one, under every schedule."
    return _law("replay_is_the_run", claim, mutant, check, "answers out of order")


def _text() -> Law:
    def check(play: MachineCase, times: Latencies, seen: Seen) -> None:
        log: Log = []
        live = perform(play, times, log)
        again = from_lines(to_lines(log), play.classes)
        _equal("the log, written and read", again, log)
        _equal(
            "the states from the log that was read", list(drive(play.machine, play.state, replay_events(again))), live
        )

    mutant = Mutant("puts a Python object without fields into an event", opaque_events)
    claim = "A log survives as lines of text, and the run with it."
    return _law("log_survives_as_text", claim, mutant, check)


def _values() -> Law:
    def check(play: MachineCase, times: Latencies, seen: Seen) -> None:
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

    mutant = Mutant("appends to a list that all states share", shares_a_list)
    claim = "States are values: later steps change none of them."
    return _law("states_are_values", claim, mutant, check, "a state that changes")
