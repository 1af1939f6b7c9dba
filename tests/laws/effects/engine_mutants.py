"""Clusters as people get them wrong: each an edit of a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.engine.interface import Failed, Failure
from purestep.runtime.effects.engine.processes_rules import (
    GONE,
    Answered,
    Asked,
    Begun,
    Clock,
    Deliver,
    End,
    Ended,
    HostAdded,
    HostLost,
    Ledger,
    Settle,
    Stopped,
    Tell,
)

Step = Callable[[Ledger, Any], Any]


def _edited(edit: Callable[[Step], Step]) -> Callable[[Any], Any]:
    """The edit of a step as one of a whole subject."""
    return lambda cluster: evolve(cluster, step=edit(cluster.step))


def _passes_all_on(step: Step) -> Step:
    def trusting(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Answered) and event.seat in [one.seat for one in state.members]:
            actions = (Deliver(event.seat, event.call),)
        return after, actions

    return trusting


def _looks_at_the_first(step: Step) -> Step:
    def hasty(state: Ledger, event: Any) -> Any:
        if not isinstance(event, Clock | Asked):
            return step(state, event)
        firsts = evolve(state, members=tuple(evolve(one, out=one.out[:1]) for one in state.members))
        rest = {one.seat: one.out[1:] for one in state.members}
        after, actions = step(firsts, event)
        members = tuple(
            evolve(one, out=(*[o for o in one.out if o not in new], *rest[one.seat], *new))
            for one in after.members
            for new in [tuple(o for o in one.out if isinstance(event, Asked) and o.call == event.call)]
        )
        return evolve(after, members=members), actions

    return hasty


def _tells_all(step: Step) -> Step:
    def talkative(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        told = {(one.failure.mesh, one.failure.member) for one in actions if isinstance(one, Tell)}
        why = getattr(event, "why", "stopped")
        more = [
            Tell(Failure(one.host, *one.seat, why)) for one in actions if isinstance(one, End) and one.seat not in told
        ]
        return after, (*actions, *more)

    return talkative


def _ends_the_mesh(step: Step) -> Step:
    def thorough(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Ended) and actions:
            after, more = step(after, Stopped(tuple(one.seat for one in after.members if one.seat[0] == event.seat[0])))
            actions = (*actions, *more)
        return after, actions

    return thorough


def _waits_for_the_time_out(step: Step) -> Step:
    def patient(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        return after, tuple(one for one in actions if not (isinstance(one, Settle) and one.answer.lost))

    return patient


def _keeps_the_lost(step: Step) -> Step:
    def faithful(state: Ledger, event: Any) -> Any:
        if isinstance(event, HostLost):
            return evolve(state, hosts=tuple(host for host in state.hosts if host != event.host)), ()
        return step(state, event)

    return faithful


passes_all_on, looks_at_the_first = _edited(_passes_all_on), _edited(_looks_at_the_first)
tells_all, ends_the_mesh = _edited(_tells_all), _edited(_ends_the_mesh)
waits_for_the_time_out, keeps_the_lost = _edited(_waits_for_the_time_out), _edited(_keeps_the_lost)


def fills_hosts(cluster: Any) -> Any:
    """Has as many on a host as it takes."""

    def placed(size: int, hosts: tuple[str, ...]) -> tuple[str, ...]:
        each = -(-size // len(hosts))
        return tuple(hosts[i // each] for i in range(size))

    return evolve(cluster, placed=placed)


def asks_for_anybody(cluster: Any) -> Any:
    """Takes one member for all."""
    return evolve(cluster, whole=lambda state, mesh, size: any(one.seat[0] == mesh for one in state.members))


def sorts_slices(cluster: Any) -> Any:
    """Thinks of a slice as of a set."""
    return evolve(cluster, sliced=lambda members, wanted: tuple(sorted(cluster.sliced(members, wanted))))


def _tells_twice(step: Step) -> Step:
    """Answers each sign of a death, as the pipe and the host both give one."""

    def startled(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Ended) and not actions:
            actions = (Tell(Failure("a", *event.seat, event.why)),)
        return after, actions

    return startled


def _tells_of_starts(step: Step) -> Step:
    """Takes a member for begun as soon as it is started."""

    def early(state: Ledger, event: Any) -> Any:
        meshes = {one.seat[0] for one in state.members}
        for mesh in sorted(meshes):
            state, _ = step(state, Begun(mesh))
        return step(state, event)

    return early


def _strict_deadline(step: Step) -> Step:
    """Gives a call a moment more than its time."""

    def lenient(state: Ledger, event: Any) -> Any:
        return step(state, evolve(event, now=event.now - 0.5) if isinstance(event, Clock) else event)

    return lenient


def _ends_elsewhere(step: Step) -> Step:
    """Sends the end of a member to the host that was added last."""

    def confused(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        host = state.hosts[-1] if state.hosts else ""
        return after, tuple(evolve(one, host=host) if isinstance(one, End) else one for one in actions)

    return confused


def _forgets_at_return(step: Step) -> Step:
    """Has a host twice that comes back before it was missed."""

    def doubled(state: Ledger, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, HostLost):
            after = evolve(after, hosts=(*after.hosts, *[host for host in state.hosts if host == event.host][1:]))
        if isinstance(event, HostAdded):
            after = evolve(after, hosts=(*state.hosts, event.host))
        return after, actions

    return doubled


def _refuses_whole_calls(step: Step) -> Step:
    """Fails a call of all where one of them is gone."""

    def strict(state: Ledger, event: Any) -> Any:
        there = {one.seat for one in state.members}
        if isinstance(event, Asked) and not {(event.mesh, one) for one in event.members} <= there:
            state, late = step(state, Clock(event.now))
            lost = [Settle((event.mesh, one), event.call, Failed(GONE, True)) for one in event.members]
            return state, (*late, *lost)
        return step(state, event)

    return strict


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "tells a death at each sign of it": _edited(_tells_twice),
    "tells of members that never began": _edited(_tells_of_starts),
    "is late half a second late": _edited(_strict_deadline),
    "ends a member on another host": _edited(_ends_elsewhere),
    "counts a host twice that comes back": _edited(_forgets_at_return),
    "calls nobody where one is gone": _edited(_refuses_whole_calls),
}
