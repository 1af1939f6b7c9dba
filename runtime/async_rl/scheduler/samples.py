"""Events of samples under way, and the checks that reject impossible ones."""

from typing import Any

from ...machine.persistent_map import Fifo, entries, find, push, put
from . import events as say
from .dispatch import Answer, accept, ignored, retry, seated
from .state import IDLE, PENDING, PUBLISH, RESTING, RUNNING, THERE, Group, Rules, Schedule, Seat, changed
from .updates import work


def find_seat(state: Schedule, event: Any, status: str) -> tuple[Group, Seat] | tuple[()]:
    """Return the group and seat of an event or command, if that attempt has this status; else `()`."""
    group = find(state.groups, event.group)
    if not group or not 0 <= event.seat < len(group.seats):
        return ()
    seat = group.seats[event.seat]
    return (group, seat) if (seat.attempt, seat.status) == (event.attempt, status) else ()


def _newest(state: Schedule) -> int:
    """Return the newest version that tokens may have: one being published may be in use before its event arrives."""
    return state.version + (state.phase == PUBLISH)


def chunk(rules: Rules, state: Schedule, event: say.TokenChunk) -> Answer:
    """Handle new tokens, of the same version as before or a newer one; repeated and late events add none."""
    found = find_seat(state, event, RUNNING)
    if not found:
        return ignored(state)
    group, seat = found
    if 1 <= event.tokens <= seat.tokens:
        return ignored(state)
    if event.tokens < 1 or not seat.tail <= event.version <= _newest(state):
        return _garbage(rules, state, event, seat)
    head = seat.head if seat.tokens else event.version
    now = changed(seat, tokens=event.tokens, head=head, tail=event.version)
    return seated(state, event.group, group, event.seat, now), ()


def finished(rules: Rules, state: Schedule, event: say.Finished) -> Answer:
    """Handle a finished sample, which must agree with its earlier events."""
    found = find_seat(state, event, RUNNING)
    if not found:
        return ignored(state)
    group, seat = found
    begun = event.head == seat.head if seat.tokens else event.head >= seat.head
    if not begun or event.tokens < seat.tokens or not max(seat.tail, event.head) <= event.tail <= _newest(state):
        return _garbage(rules, state, event, seat)
    return accept(rules, state, group, event), ()


def _garbage(rules: Rules, state: Schedule, event: say.TokenChunk | say.Finished, seat: Seat) -> Answer:
    """Discard an attempt whose generator sent an impossible event, and retry the sample."""
    state, more = retry(rules, state, (event.group, event.seat), f"impossible: {event}", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, seat.worker), *more)


def timed_out(rules: Rules, state: Schedule, event: say.TimedOut) -> Answer:
    """Handle a sample that took too long: cancel the attempt and retry it."""
    found = find_seat(state, event, RUNNING)
    if not found:
        return ignored(state)
    state, more = retry(rules, state, (event.group, event.seat), "timed out", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, found[1].worker), *more)


def rested(state: Schedule, command: say.Dispatch) -> Answer:
    """Handle the end of the pause before another attempt."""
    found = find_seat(state, command, RESTING)
    if not found:
        return ignored(state)
    group, seat = found
    state = seated(state, command.group, group, command.seat, changed(seat, status=PENDING))
    return changed(state, pending=push(state.pending, (command.group, command.seat, command.attempt))), ()


def go_on(state: Schedule) -> Answer:
    """Resume after a restart: retry all samples that were under way, and repeat the trainer's command, with all its retries."""
    idle, free, pending = state.workers, Fifo[int](), Fifo[tuple[int, int, int]]()
    for worker, found in entries(state.workers):
        idle = put(idle, worker, changed(found, busy=()))
        for _ in range(found.slots):
            free = push(free, worker)
    state = changed(state, workers=idle, free=free, stopped=False, resting=False, failures=0)
    for number, group in entries(state.groups):
        for chair, seat in enumerate(group.seats):
            if seat.status != THERE:
                group = find(state.groups, number) or group
                now = Seat(PENDING, seat.attempt + 1, seat.failures)
                wasted = state.tokens_wasted + seat.tokens
                state = changed(seated(state, number, group, chair, now), tokens_wasted=wasted)
                pending = push(pending, (number, chair, now.attempt))
    state = changed(state, pending=pending)
    return state, (work(state),) if state.phase != IDLE else ()
