"""Services as people get them wrong: each an edit around a right machine."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from purestep.runtime.effects.service_rules import (
    HEALTHY,
    WAITING,
    Clock,
    Failed,
    NotRestarted,
    Pick,
    Picked,
    Restart,
    Served,
)


def _stepping(serving: Any, edit: Callable[[Callable[..., Any], Any, Any], Any]) -> Any:
    return evolve(serving, step=lambda state, event: edit(serving.step, state, event))


def picks_anybody(serving: Any) -> Any:
    """Takes the next number."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if not isinstance(event, Pick):
            return step(state, event)
        chosen = state.replicas[state.turns % len(state.replicas)]
        return evolve(state, turns=state.turns + 1), (Picked(chosen.number, chosen.generation),)

    return _stepping(serving, edit)


def counts_over_healthy(serving: Any) -> Any:
    """Takes a counter modulo the number of those that are healthy."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        healthy = [one for one in state.replicas if one.state == HEALTHY]
        if not isinstance(event, Pick) or not healthy:
            return step(state, event)
        chosen = healthy[state.turns % len(healthy)]
        return evolve(state, turns=state.turns + 1), (Picked(chosen.number, chosen.generation),)

    return _stepping(serving, edit)


def by_number(serving: Any) -> Any:
    """Takes what is said about a replica for the one that has its number now."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, Failed | Served):
            event = evolve(event, generation=state.replicas[event.number].generation)
        return step(state, event)

    return _stepping(serving, edit)


def no_pause(serving: Any) -> Any:
    """Hopes for the best."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, Clock):
            replicas = tuple(evolve(one, retry=0.0) if one.state == WAITING else one for one in state.replicas)
            state = evolve(state, replicas=replicas)
        return step(state, event)

    return _stepping(serving, edit)


def drops_remainder(serving: Any) -> Any:
    """Divides with //."""

    def slices(processes: Sequence[Any], per_replica: int) -> Any:
        whole = len(processes) // per_replica * per_replica
        return serving.slices(processes[:whole], per_replica) if whole else ()

    return evolve(serving, slices=slices)


def starts_twice(serving: Any) -> Any:
    """Starts a replica again at each look, until it is there."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Clock):
            busy = tuple(Restart(one.number) for one in state.replicas if one.state not in (HEALTHY, WAITING))
            actions = (*actions, *busy)
        return after, actions

    return _stepping(serving, edit)


def forgets_failed_starts(serving: Any) -> Any:
    """Counts failures from the last start on."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, NotRestarted):
            replica = evolve(state.replicas[event.number], failures=0)
            replicas = tuple(replica if one.number == replica.number else one for one in state.replicas)
            state = evolve(state, replicas=replicas)
        return step(state, event)

    return _stepping(serving, edit)


def always_first(serving: Any) -> Any:
    """Takes the first that is healthy."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, Pick):
            state = evolve(state, replicas=tuple(evolve(one, turn=0) for one in state.replicas))
        return step(state, event)

    return _stepping(serving, edit)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "starts a replica again at each look": starts_twice,
    "forgets starts that failed": forgets_failed_starts,
    "takes the first that is healthy": always_first,
}
