"""Simulated generators as people get them wrong."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.core.machine import Command
from purestep.runtime.drive import Entry, Finished, Told
from purestep.runtime.scheduling import messages as say
from purestep.runtime.scheduling.state import changed
from purestep.runtime.scheduling.twins import BARRIER, INTERRUPT, NEXT, Twins, World

from .simulation_plays import Twinning

Edit = Callable[[Twinning], Twinning]


def _as_if(change: Callable[[Twins], Twins]) -> Edit:
    """The edit that takes the generators for others: `change(twins)`."""

    def make(subject: Twinning) -> Twinning:
        return Twinning(
            lambda twins, world, number, command: subject.begun(change(twins), world, number, command),
            lambda twins, world: subject.happened(change(twins), world),
        )

    return make


def _telling(change: Callable[[World, Any], Any]) -> Edit:
    """The edit of each event that is told: `change(world, event)`."""

    def make(subject: Twinning) -> Twinning:
        def happened(twins: Twins, world: World) -> tuple[World, Entry]:
            after, entry = subject.happened(twins, world)
            return after, evolve(entry, event=change(after, entry.event)) if isinstance(entry, Told) else entry

        return evolve(subject, happened=happened)

    return make


def forgets_the_command(subject: Twinning) -> Twinning:
    """A sample that was given up never ends: whoever waits for its command waits for ever."""

    def happened(twins: Twins, world: World) -> tuple[World, Entry]:
        while True:
            world, entry = subject.happened(twins, world)
            if not (isinstance(entry, Finished) and entry.kind == say.Dispatch.TAG and entry.command % 3 == 0):
                return world, entry

    return evolve(subject, happened=happened)


def goes_on_regardless(subject: Twinning) -> Twinning:
    """An abort is noted and changes nothing."""

    def begun(twins: Twins, world: World, number: int, command: Command) -> World:
        nobody = evolve(command, group=-1) if isinstance(command, say.Abort) else command
        return subject.begun(twins, world, number, nobody)

    return evolve(subject, begun=begun)


def known_too_early(subject: Twinning) -> Twinning:
    """Weights can be had as soon as they are to be published."""

    def begun(twins: Twins, world: World, number: int, command: Command) -> World:
        after = subject.begun(twins, world, number, command)
        return changed(after, newest=command.version) if isinstance(command, say.Publish) else after

    return evolve(subject, begun=begun)


def goes_on_from_the_last(subject: Twinning) -> Twinning:
    """Knows the agenda that it made last, whatever world it is given."""
    last = list[World]()

    def happened(twins: Twins, world: World) -> tuple[World, Entry]:
        stale = bool(last) and world.agenda.now < last[-1].agenda.now
        after, entry = subject.happened(twins, last[-1] if stale and last[-1].agenda.items else world)
        last.append(after)
        return after, entry

    return evolve(subject, happened=happened)


def _of_the_newest(world: World, event: Any) -> Any:
    if isinstance(event, say.TokenChunk):
        return evolve(event, version=world.newest)
    return evolve(event, tail=world.newest) if isinstance(event, say.Finished) else event


def _without_the_last(world: World, event: Any) -> Any:
    return evolve(event, tokens=event.tokens - 1) if isinstance(event, say.Finished) and event.tokens > 1 else event


in_the_middle = _telling(_of_the_newest)
drops_the_last = _telling(_without_the_last)
endless_patience = _as_if(lambda twins: evolve(twins, patience=float("inf")))

MUTANTS: dict[str, Edit] = {
    "takes new weights in no time": _as_if(lambda twins: evolve(twins, load=0.0)),
    "publishes while others are under way, where all are to be waited for": _as_if(
        lambda twins: evolve(twins, weights=NEXT if twins.weights == BARRIER else twins.weights)
    ),
    "never takes new weights in the middle of a sample": _as_if(
        lambda twins: evolve(twins, weights=NEXT if twins.weights == INTERRUPT else twins.weights)
    ),
}
