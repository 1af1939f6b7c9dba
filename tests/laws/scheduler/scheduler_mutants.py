"""Common errors in schedulers: defects of published systems, each an edit of a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.core.machine import Command, Event, Failed, Interrupted, Machine, Started
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.dispatch import replace_seat
from purestep.runtime.async_rl.scheduler.state import (
    DROP,
    NOBODY,
    PACE,
    PUBLISH,
    REQUEUE,
    Group,
    Rules,
    Schedule,
    with_fields,
)
from purestep.runtime.async_rl.scheduler.updates import trainer_command
from purestep.runtime.machine.persistent_map import entries, push, put_value, value_at, without_key

from .scheduler_world import Scheduling

Answer = tuple[Schedule, tuple[Command, ...]]
Step = Callable[[Schedule, Event], Answer]
Edit = Callable[[Scheduling], Scheduling]

LOOSE = 4  # the staleness that a run had before its bound was tightened


def _stepping(edit: Callable[[Step, Schedule, Event], Answer]) -> Edit:
    """The edit of each step: `edit(step, state, event)`."""

    def make(subject: Scheduling) -> Scheduling:
        def scheduler(rules: Rules) -> Machine[Schedule]:
            step = subject.scheduler(rules).step
            return Machine(lambda state, event: edit(step, state, event))

        return evolve(subject, scheduler=scheduler)

    return make


def _ruling(rule: Callable[[Rules, Schedule], Rules]) -> Edit:
    """The edit that uses other rules at each step: `rule(rules, state)`."""

    def make(subject: Scheduling) -> Scheduling:
        def scheduler(rules: Rules) -> Machine[Schedule]:
            return Machine(lambda state, event: subject.scheduler(rule(rules, state)).step(state, event))

        return evolve(subject, scheduler=scheduler)

    return make


def _saying(change: Callable[[Schedule, Command], tuple[Command, ...]]) -> Edit:
    """The edit of each command: `change(state, command)`."""

    def edit(step: Step, state: Schedule, event: Event) -> Answer:
        after, commands = step(state, event)
        return after, tuple(new for command in commands for new in change(after, command))

    return _stepping(edit)


def _hearing(change: Callable[[Schedule, Event], Event]) -> Edit:
    """The edit of each event: `change(state, event)`."""
    return _stepping(lambda step, state, event: step(state, change(state, event)))


def _forget_filtered(step: Step, state: Schedule, event: Event) -> Answer:
    after, commands = step(state, event)
    return with_fields(after, filtered=state.filtered), commands


def _pay_twice(step: Step, state: Schedule, event: Event) -> Answer:
    twice = min(state.filtered, state.accepted - state.filtered)
    after, commands = step(with_fields(state, filtered=state.filtered + twice), event)
    return with_fields(after, filtered=after.filtered - twice), commands


def _pay_nothing(step: Step, state: Schedule, event: Event) -> Answer:
    unpaid = state.filtered
    after, commands = step(with_fields(state, filtered=0), event)
    return with_fields(after, filtered=after.filtered + unpaid), commands


def _tail_for_age(step: Step, state: Schedule, event: Event) -> Answer:
    if isinstance(event, say.TokenChunk):
        return state, ()
    return step(state, evolve(event, head=event.tail) if isinstance(event, say.Finished) else event)


def _zero_is_none(step: Step, state: Schedule, event: Event) -> Answer:
    if isinstance(event, say.TokenChunk):
        return state, ()
    missing = isinstance(event, say.Finished) and event.head == 0
    return step(state, evolve(event, head=state.version, tail=state.version) if missing else event)


def _failure_is_empty(state: Schedule, event: Event) -> Event:
    if not (isinstance(event, Failed) and isinstance(event.command, say.Dispatch)):
        return event
    command = event.command
    group = value_at(state.groups, command.group)
    seat = group.seats[command.seat] if group else None
    if seat is None or seat.status != "running":
        return event
    return say.Finished(command.group, command.seat, command.attempt, seat.tokens, seat.head, seat.tail)


def _anew(step: Step, state: Schedule, event: Event) -> Answer:
    after, commands = step(state, event)
    if not isinstance(event, say.Lost) or after.stopped:
        return after, commands
    after, more = step(after, Started())
    return after, (*commands, *more)


def _forget_lost(step: Step, state: Schedule, event: Event) -> Answer:
    if isinstance(event, say.Lost):
        return with_fields(state, workers=without_key(state.workers, event.worker)), ()
    return step(state, event)


def _believe_version(step: Step, state: Schedule, event: Event) -> Answer:
    after, commands = step(state, event)
    return (with_fields(after, version=event.version) if isinstance(event, say.Published) else after), commands


def _failure_is_published(state: Schedule, event: Event) -> Event:
    failed = isinstance(event, Failed) and isinstance(event.command, say.Publish)
    return say.Published(event.command.version) if failed else event


def _any_attempt(state: Schedule, event: Event) -> Event:
    if not isinstance(event, say.Finished | say.TokenChunk | say.TimedOut):
        return event
    group = value_at(state.groups, event.group)
    return evolve(event, attempt=group.seats[event.seat].attempt) if group else event


def _clip(state: Schedule, event: Event) -> Event:
    if not isinstance(event, say.Finished | say.TokenChunk):
        return event
    group = value_at(state.groups, event.group)
    if not group or group.seats[event.seat].attempt != event.attempt:
        return event
    seat = group.seats[event.seat]
    if isinstance(event, say.TokenChunk):
        return evolve(
            event, tokens=max(seat.tokens + 1, event.tokens), version=min(max(event.version, seat.tail), state.version)
        )
    tail = min(max(event.tail, seat.tail), state.version)
    return evolve(event, tokens=max(seat.tokens, event.tokens), head=min(seat.head, tail), tail=tail)


def _add_chunks(state: Schedule, event: Event) -> Event:
    """Treat the token count of a chunk as the total, not as an increase."""
    if not isinstance(event, say.TokenChunk) or event.tokens < 1:
        return event
    group = value_at(state.groups, event.group)
    here = group and event.seat < len(group.seats) and group.seats[event.seat].attempt == event.attempt
    return evolve(event, tokens=group.seats[event.seat].tokens + event.tokens) if group and here else event


def _one_by_one(step: Step, state: Schedule, event: Event) -> Answer:
    """Dispatch all new attempts to the rollout worker with the lowest number that has room."""
    after, commands = step(state, event)
    begun = [one for one in commands if isinstance(one, say.Dispatch)]
    for one in begun:
        after = _given(after, one, NOBODY)
    moved = dict[Command, Command]()
    for one in begun:
        worker = next(number for number, found in entries(after.workers) if len(found.busy) < found.slots)
        after, moved[one] = _given(after, one, worker), evolve(one, worker=worker)
    return after, tuple(moved.get(one, one) for one in commands)


def _given(state: Schedule, command: say.Dispatch, worker: int) -> Schedule:
    """The state after a sample in progress is moved to another rollout worker, or to none."""
    group, place = value_at(state.groups, command.group) or Group(NOBODY), (command.group, command.seat)
    seat = group.seats[command.seat]
    old, new = value_at(state.workers, seat.worker), value_at(state.workers, worker)
    if old:
        busy = tuple(one for one in old.busy if one != place)
        workers = put_value(state.workers, seat.worker, with_fields(old, busy=busy))
        state = with_fields(state, workers=workers, free=push(state.free, seat.worker))
    if new:
        state = with_fields(state, workers=put_value(state.workers, worker, with_fields(new, busy=(*new.busy, place))))
    return replace_seat(state, command.group, group, command.seat, with_fields(seat, worker=worker))


def _ignore_interrupt(step: Step, state: Schedule, event: Event) -> Answer:
    return (state, ()) if isinstance(event, Interrupted) else step(state, event)


def _by_samples(step: Step, state: Schedule, event: Event) -> Answer:
    about = isinstance(event, Failed | say.Due) and isinstance(event.command, say.Recompute)
    if about and event.command.version == state.version and event.command != trainer_command(state):
        return with_fields(state, ignored=state.ignored + 1), (say.Report("late", -1, ""),)
    return step(state, event)


def _old_failures(step: Step, state: Schedule, event: Event) -> Answer:
    after, commands = step(state, event)
    goes_on = state.begun and isinstance(event, Started | say.Resumed)
    return (with_fields(after, failures=state.failures) if goes_on else after), commands


def _no_abort_may_fail(step: Step, state: Schedule, event: Event) -> Answer:
    if isinstance(event, Failed) and isinstance(event.command, say.Abort):
        return state, ()
    return step(state, event)


def _believe_resting(step: Step, state: Schedule, event: Event) -> Answer:
    answer = isinstance(event, say.Recomputed | say.Consumed | say.Published)
    return step(with_fields(state, resting=False) if answer else state, event)


def _any_answer(state: Schedule, event: Event) -> Event:
    if not isinstance(event, say.Recomputed | say.Consumed | say.Published):
        return event
    return evolve(event, version=state.version + (state.phase == PUBLISH))


def _batch_alone(state: Schedule, command: Command) -> tuple[Command, ...]:
    if not isinstance(command, say.Recompute):
        return (command,)
    return (evolve(command, samples=tuple(name for name in command.samples if name[0] in state.batch)),)


def _no_abort(state: Schedule, command: Command) -> tuple[Command, ...]:
    return () if isinstance(command, say.Abort) else (command,)


def _at_once(state: Schedule, command: Command) -> tuple[Command, ...]:
    return (evolve(command, seconds=0.0),) if isinstance(command, say.RetryAfter) else (command,)


def last_batch_again(subject: Scheduling) -> Scheduling:
    """Repeat the last batch every other time."""

    def scheduler(rules: Rules) -> Machine[Schedule]:
        inner, batches = subject.scheduler(rules), list[Any]()

        def again(command: Command) -> Command:
            if not isinstance(command, say.Train):
                return command
            batches.append(command.samples)
            return evolve(command, samples=batches[-2]) if len(batches) % 2 == 0 else command

        def step(state: Schedule, event: Event) -> Answer:
            after, commands = inner.step(state, event)
            return after, tuple(map(again, commands))

        return Machine(step)

    return evolve(subject, scheduler=scheduler)


def counts_beside(subject: Scheduling) -> Scheduling:
    """Count every seventh event as ignored, by a counter outside the state."""
    events = list[Event]()

    def scheduler(rules: Rules) -> Machine[Schedule]:
        inner = subject.scheduler(rules)

        def step(state: Schedule, event: Event) -> Answer:
            events.append(event)
            after, commands = inner.step(state, event)
            return with_fields(after, ignored=after.ignored + (len(events) % 7 == 0)), commands

        return Machine(step)

    return evolve(subject, scheduler=scheduler)


def by_heart(subject: Scheduling) -> Scheduling:
    """Count events as ignored whose state was made by another instance."""

    def scheduler(rules: Rules) -> Machine[Schedule]:
        inner, made = subject.scheduler(rules), list[Schedule]()

        def step(state: Schedule, event: Event) -> Answer:
            strange = state.begun and not any(state is one for one in made)
            after, commands = inner.step(state, event)
            made.append(with_fields(after, ignored=after.ignored + strange))
            return made[-1], commands

        return Machine(step)

    return evolve(subject, scheduler=scheduler)


def from_nothing(subject: Scheduling) -> Scheduling:
    """Resume at a later version with counters at 0."""

    def begin(rules: Rules, **how: Any) -> Schedule:
        state = subject.begin(rules, **how)
        return with_fields(state, submitted=state.waiting, accepted=0, consumed=0)

    return evolve(subject, begin=begin)


forgets_filtered = _stepping(_forget_filtered)
pays_twice = _stepping(_pay_twice)
pays_nothing = _stepping(_pay_nothing)
adds_afterwards = _ruling(lambda rules, state: evolve(rules, concurrency=rules.concurrency + state.filtered))
one_by_one = _stepping(_one_by_one)
tail_for_age = _stepping(_tail_for_age)
failure_is_empty = _hearing(_failure_is_empty)
anew = _stepping(_anew)
forgets_lost = _stepping(_forget_lost)
believes_version = _stepping(_believe_version)
any_attempt = _hearing(_any_attempt)
clips = _hearing(_clip)
at_once = _saying(_at_once)
gives_up_silently = _saying(_no_abort)
by_samples = _stepping(_by_samples)
old_failures = _stepping(_old_failures)
no_abort_may_fail = _stepping(_no_abort_may_fail)
batch_alone = _saying(_batch_alone)
ignores_interrupt = _stepping(_ignore_interrupt)
keeps_the_old_bound = _ruling(lambda rules, state: evolve(rules, staleness=max(rules.staleness, LOOSE)))
never_waits = _ruling(lambda rules, state: evolve(rules, stale=DROP if rules.stale == PACE else rules.stale))
never_requeues = _ruling(lambda rules, state: evolve(rules, stale=DROP if rules.stale == REQUEUE else rules.stale))
never_repairs = _ruling(lambda rules, state: evolve(rules, incomplete=DROP))

MUTANTS: dict[str, Edit] = {
    "takes version 0 for no version": _stepping(_zero_is_none),
    "takes a failed publication for a finished one": _hearing(_failure_is_published),
    "measures staleness after the version has risen": _ruling(
        lambda rules, state: evolve(rules, staleness=max(0, rules.staleness - 1))
    ),
}

FAULTS: dict[str, Edit] = {
    "takes what a sample has by now for what it has gained": _hearing(_add_chunks),
    "believes a trainer that has failed and was not asked again": _stepping(_believe_resting),
    "takes any answer of the trainer for the present one": _hearing(_any_answer),
}
