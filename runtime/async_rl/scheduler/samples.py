"""Events of samples under way, and the checks that reject impossible ones."""

from typing import Any

from ...machine.persistent_map import Fifo, entries, push, put_value, value_at
from . import events as say
from .dispatch import Answer, accept, ignored, replace_seat, retry
from .state import IDLE, PENDING, PUBLISH, RESTING, RUNNING, THERE, Group, Rules, Schedule, Seat, with_fields
from .updates import trainer_command


def find_seat(state: Schedule, event: Any, status: str) -> tuple[Group, Seat] | tuple[()]:
    """Return the group and seat of an event or command, if that attempt has this status; else `()`."""
    group = value_at(state.groups, event.group)
    if not group or not 0 <= event.seat < len(group.seats):
        return ()
    seat = group.seats[event.seat]
    return (group, seat) if (seat.attempt, seat.status) == (event.attempt, status) else ()


def _newest(state: Schedule) -> int:
    """Return the newest version that tokens may have: one being published may be in use before its event arrives."""
    return state.version + (state.phase == PUBLISH)


def take_chunk(rules: Rules, state: Schedule, event: say.TokenChunk) -> Answer:
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
    now = with_fields(seat, tokens=event.tokens, head=head, tail=event.version)
    return replace_seat(state, event.group, group, event.seat, now), ()


def finish_sample(rules: Rules, state: Schedule, event: say.Finished) -> Answer:
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
    state = replace_seat(state, command.group, group, command.seat, with_fields(seat, status=PENDING))
    return with_fields(state, pending=push(state.pending, (command.group, command.seat, command.attempt))), ()


def go_on(state: Schedule) -> Answer:
    """Resume after a restart: retry all samples that were under way, and repeat the trainer's command, with all its retries."""
    idle, free, pending = state.workers, Fifo[int](), Fifo[tuple[int, int, int]]()
    for worker, found in entries(state.workers):
        idle = put_value(idle, worker, with_fields(found, busy=()))
        for _ in range(found.slots):
            free = push(free, worker)
    state = with_fields(state, workers=idle, free=free, stopped=False, resting=False, failures=0)
    for number, group in entries(state.groups):
        for chair, seat in enumerate(group.seats):
            if seat.status != THERE:
                group = value_at(state.groups, number) or group
                now = Seat(PENDING, seat.attempt + 1, seat.failures)
                wasted = state.tokens_wasted + seat.tokens
                state = with_fields(replace_seat(state, number, group, chair, now), tokens_wasted=wasted)
                pending = push(pending, (number, chair, now.attempt))
    state = with_fields(state, pending=pending)
    return state, (trainer_command(state),) if state.phase != IDLE else ()
