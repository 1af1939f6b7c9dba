"""Asynchronous training as a pure machine: the scheduler of generators and a trainer that run concurrently.

(state, event) -> (state, commands)

It enforces three bounds: the number of samples under way (`Rules.concurrency`), the number let in (`staleness.capacity`), and
the age of each sample when it is trained on, whatever its length. Groups are trained on completely or not at all. Versions
rise one by one, when a new one is published and not before. Failures are retried after a pause, twice as long each time;
samples that are too old are dropped, requeued or waited for. Messages that come late, twice, or are impossible change only
a counter. The trainer's work is identified by its kind and its version, since its samples may move meanwhile. The state has a
JSON form (`runtime.machine.json_codec`), and replaying the events through the machine gives the same states.

A step costs a few short tuples, whatever the number of samples; once for each version it visits all that are live.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....core.errors import choose
from ....core.machine import Command, Event, Failed, Interrupted, Machine, Started, Stop
from ...machine.persistent_map import Fifo, entries, push, put_value, value_at, without_key
from . import events as say
from .dispatch import Answer, fill, ignored, leave, released, replace_seat, retry
from .state import (
    IDLE,
    NOBODY,
    PENDING,
    PUBLISH,
    RESTING,
    RUNNING,
    THERE,
    Group,
    Rules,
    Schedule,
    Seat,
    Worker,
    age_of,
    put_age,
    with_fields,
    with_workers,
)
from .state import begin_schedule as begin_schedule
from .updates import PHASES, consumed, published, recomputed, task, train_next, trainer_command, try_again, under_way

Handle = Callable[[Rules, Schedule, Any], Answer]


def scheduler(rules: Rules) -> Machine[Schedule]:
    """Return the machine that follows these rules; its first state is `begin_schedule(rules, ...)`.

    It stops when version `updates` is published, at Ctrl-C, and when nothing is under way and no prompts wait, so submit
    prompts ahead. A state that was begun resumes at `Started` with the generators it had, at `Resumed` with others: samples
    that were under way are begun again, and the trainer's command is repeated.
    Raises: ChoiceError for an event of another class.

    >>> from purestep.core.machine import Started, run
    >>> rules = Rules(batch=1, concurrency=2, staleness=0, updates=1)
    >>> events = [Started(), say.Finished(0, 0, 0, 9, 0, 0)]
    >>> state, said = run(scheduler(rules), begin_schedule(rules, prompts=3, workers=1), events)
    >>> said
    (Dispatch(group=0, seat=0, attempt=0, prompt=0, worker=0, version=0), Train(version=0, samples=((0, 0, 0),), head=0))
    """
    return Machine(partial(_step, rules))


def _step(rules: Rules, state: Schedule, event: Event) -> Answer:
    handle = HANDLES.get(type(event)) or choose("scheduler: event", type(event).__name__, NAMES)
    ages = state.ages
    state, commands = handle(rules, state, event)
    if type(event) is say.TokenChunk and state.ages is ages and not commands:
        return state, ()  # the most frequent event: it frees no slot and completes no group, so nothing else changes
    if state.stopped:
        return state, (say.Report("stopped", NOBODY, str(event.error)),) if isinstance(event, Failed) else ()
    if isinstance(event, Interrupted):
        return _stop(state, commands, "interrupted")
    if state.version >= rules.updates:
        return _stop(state, commands, "complete")
    state, trained = train_next(rules, state)
    state, sent = fill(rules, state)
    if not (state.running or state.waiting) and state.phase == IDLE:
        return _stop(state, (*commands, *trained), "out of prompts")
    return state, (*commands, *trained, *sent)


def _stop(state: Schedule, commands: tuple[Command, ...], reason: str) -> Answer:
    """Stop the run; samples under way stay so in the state, for a run that resumes from it."""
    aborts = tuple(
        say.Abort(number, seat, one.attempt, one.worker)
        for number, group in entries(state.groups)
        for seat, one in enumerate(group.seats)
        if one.status == RUNNING
    )
    return with_fields(state, stopped=True), (*commands, *aborts, Stop(reason))


def _submitted(rules: Rules, state: Schedule, event: say.Submitted) -> Answer:
    if event.prompts < 1:
        return ignored(state)
    more = event.prompts * rules.group
    fresh = state.fresh + event.prompts
    return with_fields(state, fresh=fresh, submitted=state.submitted + more, waiting=state.waiting + more), ()


def _failed(rules: Rules, state: Schedule, event: Failed) -> Answer:
    """Handle a failed command: ignored if its attempt is over; no command is returned after too many trainer failures.

    The driver then raises the error.
    """
    command = event.command
    if isinstance(command, say.Dispatch) and _find_seat(state, command, RUNNING):
        return retry(rules, state, (command.group, command.seat), event.error, rest=True)
    if under_way(state, task(command)):
        return try_again(rules, state, command)
    if isinstance(command, say.Abort):  # its generator is gone, and the attempt with it
        return state, (say.Report("abort", command.group, event.error),)
    if isinstance(command, say.Dispatch) or type(command) in PHASES:
        return ignored(state)[0], (say.Report("late", NOBODY, event.error),)
    return state, ()


def _filtered(rules: Rules, state: Schedule, event: say.Filtered) -> Answer:
    if not value_at(state.groups, event.group) or event.group in state.batch:
        return ignored(state)
    return leave(rules, state, event.group, "filtered")


def _joined(rules: Rules, state: Schedule, event: say.Joined) -> Answer:
    there = value_at(state.workers, event.worker)
    if event.worker < 0 or event.slots < 1 or there:
        return ignored(state)
    free = state.free
    for _ in range(event.slots):
        free = push(free, event.worker)
    return with_fields(state, free=free, workers=put_value(state.workers, event.worker, Worker(event.slots))), ()


def _lost(rules: Rules, state: Schedule, event: say.Lost) -> Answer:
    found = value_at(state.workers, event.worker)
    if not found:
        return ignored(state)
    state, commands = with_fields(state, workers=without_key(state.workers, event.worker)), list[Command]()
    for number, seat in found.busy:
        group = value_at(state.groups, number)
        if group and (group.seats[seat].status, group.seats[seat].worker) == (RUNNING, event.worker):
            state, more = retry(rules, state, (number, seat), "its generator was lost", rest=False)
            commands.extend(more)
    return state, tuple(commands)


def _due(rules: Rules, state: Schedule, event: say.Due) -> Answer:
    command = event.command
    if isinstance(command, say.Dispatch):
        return _rested(state, command)
    awake = with_fields(state, resting=False)
    if not (state.resting and under_way(awake, task(command))):
        return ignored(state)
    return awake, (trainer_command(awake),)  # with the samples that are there now


def _started(rules: Rules, state: Schedule, event: Started) -> Answer:
    if not state.begun:
        return with_fields(state, begun=True), ()
    return _go_on(state)


def _resumed(rules: Rules, state: Schedule, event: say.Resumed) -> Answer:
    return _go_on(with_workers(with_fields(state, begun=True), event.workers, event.slots))


def _find_seat(state: Schedule, event: Any, status: str) -> tuple[Group, Seat] | tuple[()]:
    """Return the group and seat of an event or command, if that attempt has this status; else `()`."""
    group = value_at(state.groups, event.group)
    if not group or not 0 <= event.seat < len(group.seats):
        return ()
    seat = group.seats[event.seat]
    return (group, seat) if (seat.attempt, seat.status) == (event.attempt, status) else ()


def _newest(state: Schedule) -> int:
    """Return the newest version that tokens may have: one being published may be in use before its event arrives."""
    return state.version + (state.phase == PUBLISH)


def _take_chunk(rules: Rules, state: Schedule, event: say.TokenChunk) -> Answer:
    """Handle new tokens, of the same version as before or a newer one; repeated and late events add none."""
    found = _find_seat(state, event, RUNNING)
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


def _finish_sample(rules: Rules, state: Schedule, event: say.Finished) -> Answer:
    """Handle a finished sample, which must agree with its earlier events."""
    found = _find_seat(state, event, RUNNING)
    if not found:
        return ignored(state)
    group, seat = found
    begun = event.head == seat.head if seat.tokens else event.head >= seat.head
    if not begun or event.tokens < seat.tokens or not max(seat.tail, event.head) <= event.tail <= _newest(state):
        return _garbage(rules, state, event, seat)
    return _accept(rules, state, group, event), ()


def _accept(rules: Rules, state: Schedule, group: Group, event: say.Finished) -> Schedule:
    """Return the state after a sample under way has finished."""
    number, seat, there = event.group, event.seat, group.there + 1
    state = released(state, (number, seat), group.seats[seat].worker)
    seen = {"tokens": event.tokens, "head": event.head, "tail": event.tail}
    now = with_fields(group.seats[seat], status=THERE, worker=NOBODY, **seen)
    more = {"running": state.running - 1, "accepted": state.accepted + 1}
    if there < rules.group:
        return replace_seat(state, number, group, seat, now, {**more, "cached": state.cached + 1}, there=there)
    more |= {"cached": state.cached - there + 1, "queued": state.queued + there}
    state = replace_seat(state, number, group, seat, now, more, there=there)
    age = age_of(state.ages, (value_at(state.groups, number) or group).head)
    complete = with_fields(age, complete=age.complete + 1, ready=push(age.ready, number))
    return with_fields(state, ages=put_age(state.ages, complete))


def _garbage(rules: Rules, state: Schedule, event: say.TokenChunk | say.Finished, seat: Seat) -> Answer:
    """Discard an attempt whose generator sent an impossible event, and retry the sample."""
    state, more = retry(rules, state, (event.group, event.seat), f"impossible: {event}", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, seat.worker), *more)


def _timed_out(rules: Rules, state: Schedule, event: say.TimedOut) -> Answer:
    """Handle a sample that took too long: cancel the attempt and retry it."""
    found = _find_seat(state, event, RUNNING)
    if not found:
        return ignored(state)
    state, more = retry(rules, state, (event.group, event.seat), "timed out", rest=True)
    return state, (say.Abort(event.group, event.seat, event.attempt, found[1].worker), *more)


def _rested(state: Schedule, command: say.Dispatch) -> Answer:
    """Handle the end of the pause before another attempt."""
    found = _find_seat(state, command, RESTING)
    if not found:
        return ignored(state)
    group, seat = found
    state = replace_seat(state, command.group, group, command.seat, with_fields(seat, status=PENDING))
    return with_fields(state, pending=push(state.pending, (command.group, command.seat, command.attempt))), ()


def _go_on(state: Schedule) -> Answer:
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


HANDLES: Mapping[type[Any], Handle] = {
    Started: _started,
    Interrupted: lambda rules, state, event: (state, ()),
    Failed: _failed,
    say.Submitted: _submitted,
    say.TokenChunk: _take_chunk,
    say.Finished: _finish_sample,
    say.TimedOut: _timed_out,
    say.Filtered: _filtered,
    say.Recomputed: recomputed,
    say.Consumed: consumed,
    say.Published: published,
    say.Joined: _joined,
    say.Lost: _lost,
    say.Resumed: _resumed,
    say.Due: _due,
}
NAMES: Mapping[str, Handle] = {kind.__name__: handle for kind, handle in HANDLES.items()}
