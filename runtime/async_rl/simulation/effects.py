"""Effects of simulated generators and a simulated trainer for a scheduler: nothing waits for a clock, runs are reproducible.

`begin_command` and `happened` are pure: the world is a value, and the events follow from it. `generators` passes it to a
driver.
"""

from typing import Any

from ....core.errors import choose
from ....core.machine import Command, Event, tag_of
from ...machine.drive import Effects, Entry, Finished, Inbox, Received, Session
from ...machine.simulation import pop_due, schedule_after
from ..scheduler import events as say
from ..scheduler.state import with_fields
from .workers import BARRIER, INTERRUPT, Chunk, Flight, Late, Name, New, SimulationState, Twins

ANSWERS = {say.Recompute: say.Recomputed, say.Train: say.Consumed, say.Publish: say.Published}


def begin_command(twins: Twins, world: SimulationState, number: int, command: Command) -> SimulationState:
    """Return the world with command `number` under way. Aborts and reports have no events.

    Raises: ChoiceError for a command of another class than a scheduler's.

    >>> even = Twins(tokens=lambda prompt, seat, attempt: 30.0)
    >>> begin_command(even, SimulationState(), 0, say.Dispatch(0, 0, 0, prompt=0, worker=0, version=0)).agenda.items
    ((0.25, 0, Chunk(name=(0, 0, 0), number=0, tokens=25)),)
    """
    if isinstance(command, say.Dispatch):
        if world.waits:
            return with_fields(world, held=(*world.held, (number, command)))
        return _start(twins, world, number, command)
    if isinstance(command, say.Abort):
        return _over(_given_up(twins, world, (command.group, command.seat, command.attempt)), number, command)
    if isinstance(command, say.Publish):
        if twins.weights == BARRIER:
            world = with_fields(world, waits=(New(number, command),))
        return world if world.waits and world.flights else _after(world, twins.publish, New(number, command))
    if isinstance(command, say.Recompute | say.Train):
        seconds = twins.train if isinstance(command, say.Train) else twins.recompute
        return _over(world, number, command, ANSWERS[type(command)](command.version), seconds=seconds)
    if isinstance(command, say.RetryAfter):
        return _over(world, number, command, say.Due(command.command), seconds=command.seconds)
    choose("twins: command", type(command).__name__, {kind.__name__: 0 for kind in say.COMMANDS})
    return _over(world, number, command)


def happened(twins: Twins, world: SimulationState) -> tuple[SimulationState, Entry]:
    """Return the world after the next entry for the driver, and the entry. Call it only while a command is under way.

    >>> even = Twins(tokens=lambda prompt, seat, attempt: 30.0)
    >>> world = begin_command(even, SimulationState(newest=3), 0, say.Dispatch(0, 0, 0, prompt=0, worker=0, version=3))
    >>> world, entry = happened(even, world)
    >>> world.agenda.now, entry.event
    (0.25, TokenChunk(group=0, seat=0, attempt=0, tokens=25, version=3))
    >>> world, entry = happened(even, world)
    >>> world.agenda.now, entry.event
    (0.3, Finished(group=0, seat=0, attempt=0, tokens=30, head=3, tail=3))
    """
    while True:
        agenda, what = pop_due(world.agenda)
        world = with_fields(world, agenda=agenda)
        if isinstance(what, Received | Finished):
            return world, what
        if isinstance(what, Chunk):
            world = _made(twins, world, what)
        elif isinstance(what, New):
            world = _published(twins, world, what)
        elif isinstance(what, Late) and _there(world, what):
            world = _after(world, 0.0, Received(what.number, say.Dispatch.TAG, say.TimedOut(*what.name)))


def _after(world: SimulationState, seconds: float, what: Any) -> SimulationState:
    return with_fields(world, agenda=schedule_after(world.agenda, seconds, what))


def _over(
    world: SimulationState, number: int, command: Command, *events: Event, seconds: float = 0.0
) -> SimulationState:
    """Return the world in which a command is done after this number of seconds, with these events."""
    kind = tag_of(type(command))
    for event in events:
        world = _after(world, seconds, Received(number, kind, event))
    return _after(world, seconds, Finished(number, kind))


def _start(twins: Twins, world: SimulationState, number: int, command: say.Dispatch) -> SimulationState:
    """Begin a sample on a generator, with the newest weights."""
    name = (command.group, command.seat, command.attempt)
    tokens = max(1, round(twins.tokens(command.prompt, command.seat, command.attempt)))
    flight = Flight(number, max(world.newest, command.version), tokens, world.agenda.now)
    if twins.patience < float("inf"):
        world = _after(world, twins.patience, Late(name, number))
    return _go_on(twins, world, name, flight, 0.0)


def _go_on(twins: Twins, world: SimulationState, name: Name, flight: Flight, pause: float) -> SimulationState:
    """Begin the next chunk of a sample."""
    tokens = min(twins.chunk, flight.left)
    world = with_fields(world, flights={**world.flights, name: flight})
    return _after(world, pause + tokens / twins.speed, Chunk(name, flight.number, tokens))


def _there(world: SimulationState, what: Chunk | Late) -> bool:
    """Return whether the sample is still under way."""
    flight = world.flights.get(what.name)
    return flight is not None and flight.number == what.number


def _made(twins: Twins, world: SimulationState, what: Chunk) -> SimulationState:
    """Handle the end of a chunk, and perhaps of the sample."""
    if not _there(world, what):
        return world
    name, old = what.name, world.flights[what.name]
    head = old.head if old.tokens else old.version
    flight = with_fields(old, left=old.left - what.tokens, tokens=old.tokens + what.tokens, head=head)
    if not flight.left:
        world = _landed(twins, world, name)
        return _last(twins, world, flight, say.Finished(*name, flight.tokens, head, flight.version))
    world = _said(twins, world, flight.number, say.TokenChunk(*name, flight.tokens, flight.version))[0]
    if twins.weights == INTERRUPT and world.newest > flight.version:
        return _go_on(twins, world, name, with_fields(flight, version=world.newest), twins.load)
    return _go_on(twins, world, name, flight, 0.0)


def _said(twins: Twins, world: SimulationState, number: int, event: Event) -> tuple[SimulationState, tuple[float, ...]]:
    """Send a message; return the world and the delays of the message's copies."""
    delays = twins.line(world.sent)
    for delay in delays:
        world = _after(world, delay, Received(number, say.Dispatch.TAG, event))
    return with_fields(world, sent=world.sent + 1), delays


def _last(twins: Twins, world: SimulationState, flight: Flight, event: Event) -> SimulationState:
    """Send the end of a sample; if the message is lost, its time-out is sent in the end."""
    world, delays = _said(twins, world, flight.number, event)
    if delays or twins.patience == float("inf"):
        return _after(world, max(delays, default=0.0), Finished(flight.number, say.Dispatch.TAG))
    rest = max(0.0, flight.began + twins.patience - world.agenda.now)
    name = (event.group, event.seat, event.attempt)
    world = _after(world, rest, Received(flight.number, say.Dispatch.TAG, say.TimedOut(*name)))
    return _after(world, rest, Finished(flight.number, say.Dispatch.TAG))


def _landed(twins: Twins, world: SimulationState, name: Name) -> SimulationState:
    """Remove a sample that is no longer under way; if weights waited for it, publish them."""
    flights = {one: flight for one, flight in world.flights.items() if one != name}
    busy = world.busy + world.agenda.now - world.flights[name].began
    world = with_fields(world, flights=flights, busy=busy)
    return _after(world, twins.publish, world.waits[0]) if world.waits and not flights else world


def _given_up(twins: Twins, world: SimulationState, name: Name) -> SimulationState:
    """Cancel an attempt and finish its command; an attempt that is over is unchanged."""
    for number, one in world.held:
        if (one.group, one.seat, one.attempt) == name:
            held = tuple(pair for pair in world.held if pair[0] != number)
            return _over(with_fields(world, held=held), number, one)
    if name not in world.flights:
        return world
    number = world.flights[name].number
    return _after(_landed(twins, world, name), 0.0, Finished(number, say.Dispatch.TAG))


def _published(twins: Twins, world: SimulationState, new: New) -> SimulationState:
    """Publish new weights, and begin the samples that waited for them."""
    held = world.held
    world = with_fields(world, newest=new.command.version, held=(), waits=())
    for number, command in held:
        world = _start(twins, world, number, command)
    return _over(world, new.number, new.command, say.Published(new.command.version))


def generators(twins: Twins) -> Effects:
    """Return the world as effects of a driver: `drive(scheduler(rules), begin_schedule(rules, ...), generators(twins))`.

    Every run with the same twins is the same. Raises: ChoiceError for a command of another class than a scheduler's.

    >>> from purestep.core import keys
    >>> from purestep.runtime.machine.drive import drive
    >>> from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
    >>> from purestep.runtime.async_rl.scheduler.state import Rules
    >>> from purestep.runtime.machine.simulation import log_normal
    >>> rules = Rules(batch=4, concurrency=8, staleness=1, updates=5)
    >>> twins = Twins(tokens=log_normal(keys.key(0), mean=100.0, sigma=1.0))
    >>> *_, last = drive(scheduler(rules), begin_schedule(rules, prompts=99, workers=8), generators(twins))
    >>> last.version, last.consumed
    (5, 20)
    """

    def open_(inbox: Inbox) -> Session:
        world = SimulationState()

        def begin(number: int, command: Command) -> None:
            nonlocal world
            world = begin_command(twins, world, number, command)

        def follow() -> Entry:
            nonlocal world
            if not inbox.empty():
                return inbox.get()
            world, entry = happened(twins, world)
            return entry

        return Session(begin, follow, lambda wait: None)

    return Effects(open_)
