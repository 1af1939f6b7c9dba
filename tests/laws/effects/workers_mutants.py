"""Supervisors as people get them wrong: each an edit around a right step."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.workers_rules import (
    Answered,
    Clock,
    Crew,
    Deliver,
    Ended,
    Event,
    Heard,
    Lost,
    Ready,
    Sent,
)

AnyStep = Callable[[Crew, Event], Any]


def sends_to_the_gone(step: AnyStep) -> AnyStep:
    """A send that succeeds says nothing of who reads."""

    def careless(state: Crew, event: Event) -> Any:
        after, actions = step(state, event)
        return after, () if isinstance(event, Sent) else actions

    return careless


def takes_any_answer(step: AnyStep) -> AnyStep:
    """Looks a task up by its number, wherever the answer comes from."""

    def trusting(state: Crew, event: Event) -> Any:
        if isinstance(event, Answered):
            owner = next((one.number for one in state.workers if event.task in one.tasks), event.worker)
            after, actions = step(state, evolve(event, worker=owner))
            named = [evolve(one, worker=event.worker) if isinstance(one, Deliver) else one for one in actions]
            return after, tuple(named)
        return step(state, event)

    return trusting


def from_the_beginning(step: AnyStep) -> AnyStep:
    """Gives a worker a time for all it does."""

    def impatient(state: Crew, event: Event) -> Any:
        after, actions = step(state, event)
        since = {worker.number: worker.since for worker in state.workers}
        if isinstance(event, Answered | Heard):
            workers = [evolve(one, since=since.get(one.number, one.since)) for one in after.workers]
            after = evolve(after, workers=tuple(workers))
        return after, actions

    return impatient


def replaces_twice(step: AnyStep) -> AnyStep:
    """Answers every sign of a death with a birth."""

    def eager(state: Crew, event: Event) -> Any:
        known = not isinstance(event, Ended) or event.worker in [one.number for one in state.workers]
        after, actions = step(state, event)
        return (after if known else evolve(after, due=(*after.due, event.now))), actions

    return eager


def at_once(step: AnyStep) -> AnyStep:
    """Does not look back."""

    def hasty(state: Crew, event: Event) -> Any:
        after, actions = step(evolve(state, failures=0), event)
        return evolve(after, failures=0), actions

    return hasty


def ignores_strange_answers(step: AnyStep) -> AnyStep:
    """Drops what it cannot place."""

    def mild(state: Crew, event: Event) -> Any:
        if isinstance(event, Answered):
            mine = next((one.tasks for one in state.workers if one.number == event.worker), ())
            if event.task not in mine:
                return state, ()
        return step(state, event)

    return mild


def hands_back_all(step: AnyStep) -> AnyStep:
    """Starts everything anew when something goes wrong."""

    def thorough(state: Crew, event: Event) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Ended) and any(isinstance(action, Lost) for action in actions):
            tasks = tuple(task for worker in state.workers for task in worker.tasks)
            workers = tuple(evolve(worker, tasks=()) for worker in after.workers)
            actions = tuple(evolve(one, tasks=tasks) if isinstance(one, Lost) else one for one in actions)
            return evolve(after, workers=workers), actions
        return after, actions

    return thorough


def idle_is_hanging(step: AnyStep) -> AnyStep:
    """Expects to hear from everybody, all the time."""

    def strict(state: Crew, event: Event) -> Any:
        if not isinstance(event, Clock):
            return step(state, event)
        late = [w for w in state.workers if w.ready and not w.tasks and event.now - w.since >= state.patience]
        actions: tuple[Any, ...] = ()
        for worker in late:
            state, more = step(state, Ended(worker.number, "hung", event.now))
            actions = (*actions, *more)
        after, more = step(state, event)
        return after, (*actions, *more)

    return strict


def keeps_the_answered(step: AnyStep) -> AnyStep:
    """Forgets to cross off what was done, so that it is handed back later."""

    def forgetful(state: Crew, event: Event) -> Any:
        after, actions = step(state, event)
        if isinstance(event, Answered) and any(isinstance(action, Deliver) for action in actions):
            kept = {worker.number: worker.tasks for worker in state.workers}
            after = evolve(after, workers=tuple(evolve(one, tasks=kept[one.number]) for one in after.workers))
        return after, actions

    return forgetful


def never_ready(step: AnyStep) -> AnyStep:
    """Gives a worker that has begun the time that beginning takes."""

    def slow(state: Crew, event: Event) -> Any:
        return (state, ()) if isinstance(event, Ready) else step(state, event)

    return slow


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "hands back everybody's work": hands_back_all,
    "takes a worker without work for one that hangs": idle_is_hanging,
    "does not cross off what was answered": keeps_the_answered,
    "does not notice that a worker has begun": never_ready,
}
