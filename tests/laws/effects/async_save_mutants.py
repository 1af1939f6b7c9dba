"""Saves beside training as people get them wrong: each an edit around a right step."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.sharded.later_rules import Ask, Begin, Desk, Ended, Event, Gone, Leave, Tell

AnyStep = Callable[[Desk, Event], Any]


def begins_beside(step: AnyStep) -> AnyStep:
    """A thread for every save."""

    def beside(desk: Desk, event: Event) -> Any:
        if isinstance(event, Ask) and desk.writing and not desk.fault:
            return desk, (Begin(event.step),)
        return step(desk, event)

    return beside


def forgets(step: AnyStep) -> AnyStep:
    """Keeps the outcome of the last write where nobody looks when the next is begun."""

    def forgetful(desk: Desk, event: Event) -> Any:
        return step(evolve(desk, fault="") if isinstance(event, Ask) else desk, event)

    return forgetful


def serves_one(step: AnyStep) -> AnyStep:
    """Wakes the first of those who wait, whatever comes of it."""

    def one(desk: Desk, event: Event) -> Any:
        if not isinstance(event, Ended) or len(desk.waiting) < 2:
            return step(desk, event)
        first, *rest = desk.waiting
        after, answers = step(evolve(desk, waiting=(first,)), event)
        return evolve(after, waiting=(*after.waiting, *rest)), answers

    return one


def leaves_at_once(step: AnyStep) -> AnyStep:
    """Trusts the thread to end by itself."""

    def hasty(desk: Desk, event: Event) -> Any:
        return (desk, (Gone(),)) if isinstance(event, Leave) and desk.writing else step(desk, event)

    return hasty


def repeats(step: AnyStep) -> AnyStep:
    """Tells a fault to everybody who ever asks again."""

    def again(desk: Desk, event: Event) -> Any:
        after, answers = step(desk, event)
        told = [answer.fault for answer in answers if isinstance(answer, Tell)]
        return (evolve(after, fault=told[-1]) if told and not after.writing else after), answers

    return again


def newest_first(step: AnyStep) -> AnyStep:
    """Serves whoever came last."""

    def turned(desk: Desk, event: Event) -> Any:
        return step(evolve(desk, waiting=desk.waiting[::-1]) if isinstance(event, Ended) else desk, event)

    return turned


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "tells a fault again and again": repeats,
    "serves whoever came last": newest_first,
}
