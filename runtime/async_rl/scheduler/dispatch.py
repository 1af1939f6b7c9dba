"""Transitions of samples: let in, sent to a generator, retried, rejected; and removal of groups."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from ....algorithms.staleness import capacity
from ....core.machine import Command
from ...machine.persistent_map import NO_ONE, pop, push, put_value, queue_items, value_at, without_key
from .events import Abort, Dispatch, Report, RetryAfter
from .state import (
    NOBODY,
    PENDING,
    REPAIR,
    REQUEUE,
    RESTING,
    RUNNING,
    Group,
    Rules,
    Schedule,
    Seat,
    Worker,
    count_groups,
    with_fields,
)

Answer = tuple[Schedule, tuple[Command, ...]]
Place = tuple[int, int]  # group, seat
Candidate = tuple[int, int, Group, dict[str, Any]]  # number of the group, seat, the group, and other changes
NO_MORE: Mapping[str, Any] = MappingProxyType({})


def ignored(state: Schedule) -> Answer:
    """Count a message about something that is over, or an impossible one, and ignore it."""
    return with_fields(state, ignored=state.ignored + 1), ()


def room(rules: Rules, state: Schedule) -> int:
    """Return the number of samples that may still be let in."""
    allowed = capacity(
        running=state.running,
        accepted=state.accepted,
        filtered=state.filtered,
        version=state.version,
        batch=rules.batch,
        concurrency=rules.concurrency,
        staleness=rules.staleness,
    )
    held = state.running + state.queued + state.cached
    return allowed if isinstance(rules.room, tuple) else min(allowed, rules.room - held)


def fill(rules: Rules, state: Schedule) -> Answer:
    """Send samples to generators as long as there are both, each to a generator with the fewest under way.

    Of several such generators the one whose slot has been free for longest is chosen.
    """
    state, candidate = _next(rules, state)
    if not (candidate and len(state.free)):
        return state, ()
    sent, seats = list[Command](), _free_seats(state)
    while candidate and seats:
        busy, order, worker = heappop(seats)
        known = value_at(state.workers, worker)
        found = known or Worker(0)
        if busy < len(found.busy) < found.slots:
            heappush(seats, (len(found.busy), order, worker))  # it has received samples since
        if busy != len(found.busy) or busy >= found.slots:
            continue
        number, seat, group, more = candidate
        now = with_fields(group.seats[seat], status=RUNNING, worker=worker, head=state.version, tail=state.version)
        workers = put_value(state.workers, worker, with_fields(found, busy=(*found.busy, (number, seat))))
        state = replace_seat(state, number, group, seat, now, {**more, "workers": workers})
        sent.append(Dispatch(number, seat, now.attempt, group.prompt, worker, state.version))
        state, candidate = _next(rules, state)
    free = NO_ONE
    for _, _, worker in sorted(seats, key=itemgetter(1)):
        free = push(free, worker)
    return with_fields(state, free=free), tuple(sent)


def _free_seats(state: Schedule) -> list[tuple[int, int, int]]:
    """Return a heap of the free slots: the number of samples of their generators, their order, the generator."""
    seats = []
    for order, worker in enumerate(queue_items(state.free)):
        known = value_at(state.workers, worker)
        if known:
            seats.append((len(known.busy), order, worker))
    heapify(seats)
    return seats


def _next(rules: Rules, state: Schedule) -> tuple[Schedule, Candidate | tuple[()]]:
    """Return the next sample: one that was let in before, or another one if it may be let in."""
    while len(state.pending):
        (number, seat, attempt), rest = pop(state.pending)
        group = value_at(state.groups, number)
        if group and (group.seats[seat].attempt, group.seats[seat].status) == (attempt, PENDING):
            return state, (number, seat, group, {"pending": rest})
        state = with_fields(state, pending=rest)
    return state, _let_in(rules, state) if state.waiting and room(rules, state) >= 1 else ()


def _let_in(rules: Rules, state: Schedule) -> Candidate:
    """Return the next member of the group that is being filled, or the first of a new one."""
    number, more = state.filling, dict[str, Any]()
    group = value_at(state.groups, number)
    if not group:
        number, prompt = state.next_group, state.prompts
        more["next_group"] = number + 1
        if len(state.again):
            prompt, more["again"] = pop(state.again)
        else:
            more.update(prompts=state.prompts + 1, fresh=state.fresh - 1)
        group = Group(prompt)
    group = with_fields(group, seats=(*group.seats, Seat()))
    full = len(group.seats) == rules.group
    more.update(filling=NOBODY if full else number, waiting=state.waiting - 1, running=state.running + 1)
    return number, len(group.seats) - 1, group, more


def replace_seat(
    state: Schedule, number: int, group: Group, seat: int, now: Seat, more: Mapping[str, Any] = NO_MORE, **changes: int
) -> Schedule:
    """Return the state with a seat replaced, and its group updated; `more` changes the state, `changes` the group."""
    seats = (*group.seats[:seat], now, *group.seats[seat + 1 :])
    if now.head == group.seats[seat].head:
        groups = put_value(state.groups, number, with_fields(group, seats=seats, **changes))
        return with_fields(state, groups=groups, **more)
    head = min((one.head for one in seats if one.head != NOBODY), default=NOBODY)
    ages = state.ages
    if head != group.head:
        ages = count_groups(count_groups(ages, group.head, -1), head, 1)
    groups = put_value(state.groups, number, with_fields(group, seats=seats, head=head, **changes))
    return with_fields(state, groups=groups, ages=ages, **more)


def released(state: Schedule, place: Place, worker: int) -> Schedule:
    """Return the state with a sample's slot freed, if its generator is still there."""
    found = value_at(state.workers, worker)
    if not found:
        return state
    busy = tuple(one for one in found.busy if one != place)
    workers = put_value(state.workers, worker, with_fields(found, busy=busy))
    return with_fields(state, workers=workers, free=push(state.free, worker))


def retry(rules: Rules, state: Schedule, place: Place, reason: str, *, rest: bool) -> Answer:
    """End an attempt under way: retry the sample, after a pause if `rest`, or reject it."""
    number, seat = place
    group = value_at(state.groups, number) or Group(NOBODY)
    old = group.seats[seat]
    state = released(state, place, old.worker)
    state = with_fields(state, tokens_wasted=state.tokens_wasted + old.tokens)
    if old.failures >= rules.retries:
        return _reject(rules, state, place, reason)
    now = Seat(RESTING if rest else PENDING, old.attempt + 1, old.failures + 1)
    state = replace_seat(state, number, group, seat, now)
    if not rest:
        return with_fields(state, pending=push(state.pending, (number, seat, now.attempt))), ()
    again = Dispatch(number, seat, now.attempt, group.prompt, NOBODY, state.version)
    return state, (RetryAfter(again, retry_pause(rules, now.failures)),)


def retry_pause(rules: Rules, failures: int) -> float:
    """Return the seconds before the next attempt after this number of failures in a row, at least one.

    >>> [retry_pause(Rules(batch=1, concurrency=1, staleness=0, updates=1, longest=5.0), n) for n in (1, 2, 3, 4, 5000)]
    [1.0, 2.0, 4.0, 5.0, 5.0]
    """
    return min(rules.longest, rules.backoff * 2.0 ** min(failures - 1, 1000))


def _reject(rules: Rules, state: Schedule, place: Place, reason: str) -> Answer:
    """Reject a sample that has failed for good: another one takes its seat, or its group is removed."""
    number, seat = place
    group = value_at(state.groups, number) or Group(NOBODY)
    report = Report("sample", number, reason)
    if rules.incomplete != REPAIR or group.repairs >= rules.group:
        now = with_fields(group.seats[seat], status=RESTING, worker=NOBODY, tokens=0)
        state, rest = leave(rules, replace_seat(state, number, group, seat, now), number, "incomplete")
        return state, (report, *rest)
    now = Seat(attempt=group.seats[seat].attempt + 1)
    state = replace_seat(state, number, group, seat, now, repairs=group.repairs + 1)
    state = with_fields(state, rejected=state.rejected + 1, submitted=state.submitted + 1)
    return with_fields(state, pending=push(state.pending, (number, seat, now.attempt))), (report,)


def leave(rules: Rules, state: Schedule, number: int, reason: str) -> Answer:
    """Remove a group: cancel its attempts under way, and correct the counters."""
    group = value_at(state.groups, number) or Group(NOBODY)
    whole, there = group.there == rules.group, group.there
    out = list[Command]()
    for seat, one in enumerate(group.seats):
        if one.status == RUNNING:
            state = released(state, (number, seat), one.worker)
            out.append(Abort(number, seat, one.attempt, one.worker))
    absent = rules.group - len(group.seats)
    state = with_fields(
        state,
        groups=without_key(state.groups, number),
        ages=count_groups(state.ages, group.head, -1, -whole),
        filling=NOBODY if state.filling == number else state.filling,
        waiting=state.waiting - absent,
        running=state.running - len(group.seats) + there,
        rejected=state.rejected + rules.group - there,
        filtered=state.filtered + there,
        queued=state.queued - (there if whole else 0),
        cached=state.cached - (0 if whole else there),
        tokens_wasted=state.tokens_wasted + sum(one.tokens for one in group.seats),
    )
    if reason == "stale" and rules.stale == REQUEUE:
        state = with_fields(
            state,
            again=push(state.again, group.prompt),
            submitted=state.submitted + rules.group,
            waiting=state.waiting + rules.group,
        )
    return state, (*out, Report("group", number, reason))
