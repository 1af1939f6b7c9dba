"""What is told of samples under way, and what of it cannot be true."""

from typing import Any

from . import messages as say
from .numbered import Line, entries, find, push, put
from .seats import Answer, accept, retry, seated
from .state import IDLE, PENDING, PUBLISH, RESTING, RUNNING, THERE, Group, Rules, Schedule, Seat, changed
from .updates import work


def ignored(state: Schedule) -> Answer:
    """A message about what is over, or not possible, is counted."""
    return changed(state, ignored=state.ignored + 1), ()


def place(state: Schedule, event: Any, status: str) -> tuple[Group, Seat] | tuple[()]:
    """The group and seat that an event or command is about, if that attempt is in this state."""
    group = find(state.groups, event.group)
    if not group or not 0 <= event.seat < len(group.seats):
        return ()
    seat = group.seats[event.seat]
    return (group, seat) if (seat.attempt, seat.status) == (event.attempt, status) else ()


def _newest(state: Schedule) -> int:
    """The newest version there may be tokens of: what is being published may be known before that is told."""
    return state.version + (state.phase == PUBLISH)


def chunk(rules: Rules, state: Schedule, event: say.TokenChunk) -> Answer:
    """More tokens, of the version there was before or a newer one; what is told again, or late, tells of no more."""
    found = place(state, event, RUNNING)
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
    """A whole sample, which agrees with what was told of it."""
    found = place(state, event, RUNNING)
    if not found:
        return ignored(state)
    group, seat = found
    begun = event.head == seat.head if seat.tokens else event.head >= seat.head
    if not begun or event.tokens < seat.tokens or not max(seat.tail, event.head) <= event.tail <= _newest(state):
        return _garbage(rules, state, event, seat)
    return accept(rules, state, group, event), ()


def _garbage(rules: Rules, state: Schedule, event: say.TokenChunk | say.Finished, seat: Seat) -> Answer:
    """A generator says what cannot be: nothing it said of this attempt is believed."""
    state, more = retry(rules, state, (event.group, event.seat), f"impossible: {event}", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, seat.worker), *more)


def timed_out(rules: Rules, state: Schedule, event: say.TimedOut) -> Answer:
    """A sample took too long: it is given up and tried again."""
    found = place(state, event, RUNNING)
    if not found:
        return ignored(state)
    state, more = retry(rules, state, (event.group, event.seat), "timed out", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, found[1].worker), *more)


def rested(state: Schedule, command: say.Dispatch) -> Answer:
    """The pause before another attempt is over."""
    found = place(state, command, RESTING)
    if not found:
        return ignored(state)
    group, seat = found
    state = seated(state, command.group, group, command.seat, changed(seat, status=PENDING))
    return changed(state, pending=push(state.pending, (command.group, command.seat, command.attempt))), ()


def go_on(state: Schedule) -> Answer:
    """Begins anew what was under way in a process that is no more, and what the trainer did, with all its tries."""
    idle, free, pending = state.workers, Line[int](), Line[tuple[int, int, int]]()
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
