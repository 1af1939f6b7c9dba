"""Queues as people get them wrong: each an edit around a right step."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.queue_rules import (
    ACCEPTED,
    Advance,
    Answered,
    Close,
    Event,
    Expired,
    Given,
    Leave,
    Line,
    Put,
    Take,
)

AnyStep = Callable[[Line, Event], Any]


def newest(step: AnyStep) -> AnyStep:
    """Takes from the end at which samples come in."""

    def turned(state: Line, event: Event) -> Any:
        entries = state.entries[::-1] if isinstance(event, Take) else state.entries
        after, answers = step(evolve(state, entries=entries), event)
        return (evolve(after, entries=after.entries[::-1]) if isinstance(event, Take) else after), answers

    return turned


def drops_oldest(step: AnyStep) -> AnyStep:
    """A deque with a maximal length."""

    def dropping(state: Line, event: Event) -> Any:
        if isinstance(event, Put) and len(state.entries) == state.capacity and not state.closed:
            state = evolve(state, entries=state.entries[1:], expired=state.expired + 1)
        return step(state, event)

    return dropping


def age_when_put(step: AnyStep) -> AnyStep:
    """Finds out that a sample is old where it comes in, and nowhere else."""

    def lax(state: Line, event: Event) -> Any:
        if isinstance(event, Advance):
            return evolve(state, version=max(state.version, event.version)), ()
        return step(state, event)

    return lax


def wakes_nobody(step: AnyStep) -> AnyStep:
    """Makes room, and tells those who wait for it at the next Put."""

    def silent(state: Line, event: Event) -> Any:
        if not isinstance(event, Take):
            return step(state, event)
        after, answers = step(evolve(state, putting=()), event)
        return evolve(after, putting=state.putting), answers

    return silent


def uncounted(step: AnyStep) -> AnyStep:
    """Forgets to say that samples were dropped."""

    def quiet(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        return evolve(after, expired=state.expired), answers

    return quiet


def small_first(step: AnyStep) -> AnyStep:
    """Serves whom it can."""

    def greedy(state: Line, event: Event) -> Any:
        if isinstance(event, Take) and state.taking and len(state.entries) >= event.count:
            served, answers = step(evolve(state, taking=()), event)
            return evolve(served, taking=state.taking), answers
        return step(state, event)

    return greedy


def throws_away(step: AnyStep) -> AnyStep:
    """Closing is clearing."""

    def clearing(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        if isinstance(event, Close):
            return evolve(after, entries=(), taken=after.taken + len(after.entries)), answers
        return after, answers

    return clearing


def hands_out_twice(step: AnyStep) -> AnyStep:
    """Gives a sample and keeps it, as a replay would."""

    def keeping(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        given = {ticket for answer in answers if isinstance(answer, Given) for ticket in answer.tickets}
        back = tuple(entry for entry in state.entries if entry.ticket in given)[:1]
        return evolve(after, entries=(*back, *after.entries)), answers

    return keeping


def answers_twice(step: AnyStep) -> AnyStep:
    """Tells a caller who was accepted that it was too late, too."""

    def twice(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        again = tuple(answer for answer in answers if isinstance(answer, Answered) and answer.outcome == ACCEPTED)
        return after, (*answers, *(again if state.putting else ()))

    return twice


def reports_again(step: AnyStep) -> AnyStep:
    """Reports what expired to the one who advances and counts it as refused as well."""

    def double(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        gone = sum(len(answer.tickets) for answer in answers if isinstance(answer, Expired))
        return evolve(after, refused=after.refused + gone), answers

    return double


def back_at_the_end(step: AnyStep) -> AnyStep:
    """Puts in again what comes back."""

    def behind(state: Line, event: Event) -> Any:
        after, answers = step(state, event)
        if not isinstance(event, Leave):
            return after, answers
        back = tuple(entry for entry in after.entries if entry in event.back)
        others = tuple(entry for entry in after.entries if entry not in event.back)
        return evolve(after, entries=(*others, *back)), answers

    return behind


def loses_back(step: AnyStep) -> AnyStep:
    """Lets callers go with what they were given."""

    def losing(state: Line, event: Event) -> Any:
        return step(state, Leave(event.caller) if isinstance(event, Leave) else event)

    return losing


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "hands a sample out twice": hands_out_twice,
    "answers a caller twice": answers_twice,
    "counts what expired as refused as well": reports_again,
    "loses what comes back": loses_back,
}
