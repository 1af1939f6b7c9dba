"""Phases of the trainer: recompute, train, publish, one after the other, and a new version at the end."""

from collections.abc import Mapping
from typing import Any

from ....core.machine import Command
from ...machine.persistent_map import entries, pop, value_at, without_key
from .dispatch import Answer, ignored, leave, retry_pause
from .events import Consumed, Name, Publish, Published, Recompute, Recomputed, RetryAfter, Train
from .state import IDLE, PACE, PUBLISH, RECOMPUTE, TRAIN, Ages, Group, Rules, Schedule, age_of, put_age, with_fields

Task = tuple[str, int]  # work of the trainer: a phase, and its version
PHASES: Mapping[type[Any], str] = {Recompute: RECOMPUTE, Train: TRAIN, Publish: PUBLISH}


def task(command: Command) -> Task | tuple[()]:
    """Return the trainer's work in a command, `()` if it is not for the trainer.

    The command's samples are no part of it: while it runs, or waits to be repeated, they may get another attempt, or leave.

    >>> task(Recompute(3, ((0, 0, 0),))), task(Publish(4)), task("Stop")
    (('recompute', 3), ('publish', 4), ())
    """
    return (PHASES[type(command)], command.version) if type(command) in PHASES else ()


def under_way(state: Schedule, one: Task | tuple[()]) -> bool:
    """Return whether this is the trainer's current work; while it waits to repeat it, nothing is under way.

    >>> under_way(Schedule(version=3, phase=PUBLISH), (PUBLISH, 4)), under_way(Schedule(phase=TRAIN, resting=True), (TRAIN, 0))
    (True, False)
    """
    return one == (state.phase, state.version + (state.phase == PUBLISH)) and not state.resting


def train_next(rules: Rules, state: Schedule) -> Answer:
    """Begin an update if there is a batch; groups that would be too old for the one after it are removed now."""
    if state.phase != IDLE or state.queued < rules.batch:
        return state, ()
    state, old = _leave_behind(rules, state, state.version - rules.staleness)  # needed after a change of the rules
    chosen = choose_groups(rules, state.ages, state.version) if state.queued >= rules.batch else ()
    if not chosen:
        return state, old
    state = _take(state, chosen)
    state, dropped = _leave_behind(rules, state, state.version + 1 - rules.staleness)
    state = with_fields(state, phase=RECOMPUTE if rules.proximal == RECOMPUTE else TRAIN, failures=0)
    if state.phase == RECOMPUTE and not _due(state):
        state = with_fields(state, phase=TRAIN)
    return state, (*old, *dropped, trainer_command(state))


def choose_groups(rules: Rules, ages: Ages, version: int) -> tuple[tuple[int, int], ...]:
    """Return (oldest version, number of groups) pairs of the next batch, the oldest first; `()` where it has to wait.

    Under "pace" no group may become too old, now or later. With n the staleness and B the batch, a group of oldest version h
    can be trained on until version h + n, and k updates use up k B samples. So a batch at version v may be taken if, for
    every h, the remaining samples of groups as old as h or older fit the updates that are left to them:

        samples of groups with a head of at most h  <=  (h + n - v) B

    This holds as soon as all groups are complete, since at version u at most (n + 1) B samples live. Where it does not (the
    rules have changed), waiting would not help, and the oldest groups that are allowed are taken.

    >>> from .state import Age
    >>> choose_groups(Rules(batch=2, concurrency=9, staleness=1, updates=9), (Age(3, 2, 1), Age(4, 3, 3)), 4)
    ((3, 1), (4, 1))
    >>> choose_groups(Rules(batch=2, concurrency=9, staleness=1, updates=9, stale="pace"), (Age(3, 2, 1), Age(4, 3, 3)), 4)
    ()
    """
    wanted, taken = rules.batch // rules.group, list[tuple[int, int]]()
    remain, fits, may_wait = 0, True, any(age.groups > age.complete for age in ages)
    for age in ages:
        take = min(age.complete, wanted)
        wanted -= take
        remain += age.groups - take
        fits = fits and remain * rules.group <= max(0, age.head + rules.staleness - version) * rules.batch
        if take:
            taken.append((age.head, take))
    return () if wanted or (rules.stale == PACE and may_wait and not fits) else tuple(taken)


def _take(state: Schedule, chosen: tuple[tuple[int, int], ...]) -> Schedule:
    """Return the state with its batch chosen: these numbers of complete groups of each age."""
    batch, ages = list[int](), state.ages
    for head, count in chosen:
        age = age_of(ages, head)
        ready, wanted = age.ready, len(batch) + count
        while len(batch) < wanted:
            number, ready = pop(ready)
            if value_at(state.groups, number):
                batch.append(number)
        less = with_fields(age, groups=age.groups - count, complete=age.complete - count, ready=ready)
        ages = put_age(ages, less)
    return with_fields(state, batch=tuple(batch), ages=ages)


def _leave_behind(rules: Rules, state: Schedule, limit: int) -> Answer:
    """Remove the groups with a version before `limit`, except those in training."""
    if not state.ages or state.ages[0].head >= limit:
        return state, ()
    batch, out = set(state.batch), list[Command]()
    for number, group in entries(state.groups):
        if 0 <= group.head < limit and number not in batch:
            state, more = leave(rules, state, number, "stale")
            out.extend(more)
    return state, tuple(out)


def trainer_command(state: Schedule) -> Command:
    """Return the trainer's command in this phase."""
    if state.phase == RECOMPUTE:
        return Recompute(state.version, _due(state))
    if state.phase == PUBLISH:
        return Publish(state.version + 1)
    groups = [(number, value_at(state.groups, number) or Group(-1)) for number in state.batch]
    samples = tuple((number, seat, one.attempt) for number, group in groups for seat, one in enumerate(group.seats))
    return Train(state.version, samples, min(group.head for _, group in groups))


def _due(state: Schedule) -> tuple[Name, ...]:
    """Return the samples that may have tokens of the version before this one."""
    before = state.version - 1
    return tuple(
        (number, seat, one.attempt)
        for number, group in entries(state.groups)
        for seat, one in enumerate(group.seats)
        if one.tokens and one.head <= before <= one.tail
    )


def recomputed(rules: Rules, state: Schedule, event: Recomputed) -> Answer:
    """Begin the update after proximal log-probs were computed."""
    if not under_way(state, (RECOMPUTE, event.version)):
        return ignored(state)
    state = with_fields(state, phase=TRAIN, failures=0, resting=False)
    return state, (trainer_command(state),)


def consumed(rules: Rules, state: Schedule, event: Consumed) -> Answer:
    """Remove the samples of a batch that was trained on, and publish the new weights."""
    if not under_way(state, (TRAIN, event.version)):
        return ignored(state)
    groups, tokens = state.groups, 0
    for number in state.batch:
        tokens += sum(one.tokens for one in (value_at(groups, number) or Group(-1)).seats)
        groups = without_key(groups, number)
    state = with_fields(
        state,
        phase=PUBLISH,
        failures=0,
        resting=False,
        batch=(),
        groups=groups,
        consumed=state.consumed + rules.batch,
        queued=state.queued - rules.batch,
        tokens_used=state.tokens_used + tokens,
    )
    return state, (trainer_command(state),)


def published(rules: Rules, state: Schedule, event: Published) -> Answer:
    """Return the state with the next version, after its weights were published."""
    if not under_way(state, (PUBLISH, event.version)):
        return ignored(state)
    return with_fields(state, version=state.version + 1, phase=IDLE, failures=0, resting=False), ()


def try_again(rules: Rules, state: Schedule, command: Command) -> Answer:
    """Repeat the trainer's failed command after a pause; return no command after too many failures."""
    if state.failures >= rules.retries:
        return state, ()
    state = with_fields(state, failures=state.failures + 1, resting=True)
    return state, (RetryAfter(command, retry_pause(rules, state.failures)),)
