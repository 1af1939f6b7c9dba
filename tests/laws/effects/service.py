"""Laws of a service of replicas: healthy ones serve in fair turns, and failed ones are restarted.

The subject is a `step(roster, event) -> (roster, actions)` as in `runtime.effects.tools.service`.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.tools import service
from purestep.runtime.effects.tools.service import (
    HEALTHY,
    WAITING,
    NotRestarted,
    Pick,
    Picked,
    ReplicaFailed,
    Restart,
    Restarted,
    Served,
    ServiceClock,
)

# --- mutants ---
# Common errors in services: each an edit of a right machine.


def _stepping(step: Any, edit: Callable[[Callable[..., Any], Any, Any], Any]) -> Any:
    return lambda state, event: edit(step, state, event)


def picks_anybody(subject: Any) -> Any:
    """Pick the next number, healthy or not."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if not isinstance(event, Pick):
            return step(state, event)
        chosen = state.replicas[state.turns % len(state.replicas)]
        return evolve(state, turns=state.turns + 1), (Picked(chosen.number, chosen.generation),)

    return _stepping(subject, edit)


def counts_over_healthy(subject: Any) -> Any:
    """Take a counter modulo the number of healthy replicas."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        healthy = [one for one in state.replicas if one.state == HEALTHY]
        if not isinstance(event, Pick) or not healthy:
            return step(state, event)
        chosen = healthy[state.turns % len(healthy)]
        return evolve(state, turns=state.turns + 1), (Picked(chosen.number, chosen.generation),)

    return _stepping(subject, edit)


def by_number(subject: Any) -> Any:
    """Apply events of an earlier generation to the replica that has its number now."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, ReplicaFailed | Served):
            event = evolve(event, generation=state.replicas[event.number].generation)
        return step(state, event)

    return _stepping(subject, edit)


def no_pause(subject: Any) -> Any:
    """Restart a failed replica without a pause."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, ServiceClock):
            replicas = tuple(evolve(one, retry=0.0) if one.state == WAITING else one for one in state.replicas)
            state = evolve(state, replicas=replicas)
        return step(state, event)

    return _stepping(subject, edit)


def starts_twice(subject: Any) -> Any:
    """Restart a replica at each clock event until it is there."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, ServiceClock):
            busy = tuple(Restart(one.number) for one in state.replicas if one.state not in (HEALTHY, WAITING))
            actions = (*actions, *busy)
        return after, actions

    return _stepping(subject, edit)


def forgets_failed_starts(subject: Any) -> Any:
    """Reset the count of failures at a failed start."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, NotRestarted):
            replica = evolve(state.replicas[event.number], failures=0)
            replicas = tuple(replica if one.number == replica.number else one for one in state.replicas)
            state = evolve(state, replicas=replicas)
        return step(state, event)

    return _stepping(subject, edit)


def always_first(subject: Any) -> Any:
    """Pick the first healthy replica."""

    def edit(step: Callable[..., Any], state: Any, event: Any) -> Any:
        if isinstance(event, Pick):
            state = evolve(state, replicas=tuple(evolve(one, turn=0) for one in state.replicas))
        return step(state, event)

    return _stepping(subject, edit)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "starts a replica again at each look": starts_twice,
    "forgets starts that failed": forgets_failed_starts,
    "takes the first that is healthy": always_first,
}


# --- laws ---


SOURCE = "runtime.effects.tools.service: replicas as a pure machine"
REPLICAS = 3
Story = tuple[tuple[str, int], ...]
Step = Callable[[service.Roster, service.Event], tuple[service.Roster, tuple[service.Action, ...]]]


@frozen
class Moment:
    """An event, the roster before and after it, and the actions."""

    event: Any
    before: service.Roster
    after: service.Roster
    actions: tuple[service.Action, ...]
    now: float


@frozen
class Course:
    """The results of a story."""

    moments: list[Moment] = Factory(list)

    def picks(self) -> list[tuple[int, Picked]]:
        """The picks, with the index of their moment."""
        return [(i, one) for i, moment in enumerate(self.moments) for one in moment.actions if isinstance(one, Picked)]


def stories() -> Any:
    """Draw acts of callers and of time: (verb, index of the call or seconds)."""
    verbs = st.sampled_from(
        ("pick", "pick", "pick", "pick", "served", "failed", "late", "wait", "wait", "start", "no start")
    )
    return st.lists(st.tuples(verbs, st.integers(0, 5)), min_size=16, max_size=50).map(tuple)


def played(step: Step, story: Story) -> Course:
    """Run a story through the machine. "late" reports a call again that has failed before."""
    state, now, course = service.roster(REPLICAS, pause=1.0, longest=4.0), 0.0, Course()
    out: list[Picked] = []  # calls that are being served
    told: list[Picked] = []  # calls that failed
    starting: list[int] = []

    def feed(event: service.Event) -> None:
        nonlocal state
        after, actions = step(state, event)
        course.moments.append(Moment(event, state, after, actions, now))
        out.extend(one for one in actions if isinstance(one, Picked))
        starting.extend(one.number for one in actions if isinstance(one, Restart))
        state = after

    for verb, value in story:
        if verb == "pick":
            feed(Pick())
        elif verb in ("served", "failed") and out:
            call = out.pop(value % len(out))
            told += [call] if verb == "failed" else []
            feed(
                (Served(call.number, call.generation))
                if verb == "served"
                else ReplicaFailed(call.number, call.generation, now)
            )
        elif verb == "late" and told:
            feed(ReplicaFailed(told[value % len(told)].number, told[value % len(told)].generation, now))
        elif verb in ("start", "no start") and starting:
            number = starting.pop(0)
            feed(Restarted(number) if verb == "start" else NotRestarted(number, now))
        elif verb == "wait":
            now += value
            feed(ServiceClock(now))
    return course


def service_laws() -> Suite:
    """The laws of a service."""
    return Suite("service_laws", (_healthy(), _turns(), _once(), _pauses()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Course, Seen], None], *needs: str) -> Law:
    def on_course(step: Step, story: Story, seen: Seen) -> None:
        check(played(step, story), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(stories()),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _up(state: service.Roster) -> set[int]:
    return {one.number for one in state.replicas if one.state == HEALTHY}


def _healthy() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            if isinstance(moment.event, Pick):
                up = _up(moment.before)
                seen("nobody healthy", not up)
                seen("somebody out of service", len(up) < REPLICAS)
                picked = [one.number for one in moment.actions if isinstance(one, Picked)]
                require(len(picked) == bool(up), f"{len(picked)} picked, {sorted(up)} healthy")
                require(set(picked) <= up, f"{picked} picked, {sorted(up)} healthy")

    claim = "Who is picked is healthy, and somebody is picked while anybody is."
    mutant = Mutant("goes round without looking", picks_anybody)
    return _law("picked_are_healthy", claim, mutant, check, "nobody healthy", "somebody out of service")


def _turns() -> Law:
    def check(course: Course, seen: Seen) -> None:
        picks = course.picks()
        for at, (start, one) in enumerate(picks):
            later = [(i, other) for i, other in picks[at + 1 :] if other.number == one.number]
            if not later:
                continue
            end = later[0][0]
            there = set.intersection(*[_up(moment.before) for moment in course.moments[start : end + 1]])
            between = [other.number for i, other in picks if start < i < end]
            seen("a failure between two turns", any(_up(m.before) != _up(m.after) for m in course.moments[start:end]))
            seen("a replica that was out between its turns", one.number not in there)
            for number in there - {one.number}:
                count = between.count(number)
                fair = count == 1 or (count > 1 and one.number not in there)
                require(fair, f"{number} was picked {count} times between two turns of {one.number}: {between}")

    claim = (
        "Between two turns of one replica each other one that stayed healthy has one turn, whoever fails or returns; "
        "more only while the first was out of service itself."
    )
    mutant = Mutant("counts over the list of the healthy", counts_over_healthy)
    needs = ("a failure between two turns", "a replica that was out between its turns")
    return _law("turns_are_fair", claim, mutant, check, *needs)


def _once() -> Law:
    def check(course: Course, seen: Seen) -> None:
        counted: set[tuple[int, int]] = set()
        for moment in course.moments:
            event, lost = moment.event, _up(moment.before) - _up(moment.after)
            if isinstance(event, ReplicaFailed):
                key = (event.number, event.generation)
                seen("a failure told twice", key in counted)
                current = moment.before.replicas[event.number].generation
                seen("a failure of a replica since replaced", event.generation < current)
                wanted = {event.number} if key not in counted and event.generation == current else set()
                require(lost == wanted, f"{event}: {sorted(lost)} taken out, wanted {sorted(wanted)}")
                counted.add(key)
            else:
                require(not lost, f"{event} took {sorted(lost)} out of service")

    claim = "A replica is taken out once for each time it was started, and never for what the one before it did."
    mutant = Mutant("goes by the number alone", by_number)
    needs = ("a failure told twice", "a failure of a replica since replaced")
    return _law("failures_count_once", claim, mutant, check, *needs)


def _pauses() -> Law:
    def check(course: Course, seen: Seen) -> None:
        last: dict[int, float] = {}
        row: dict[int, int] = dict.fromkeys(range(REPLICAS), 0)
        for moment in course.moments:
            event = moment.event
            for number in _up(moment.before) - _up(moment.after):
                last[number], row[number] = moment.now, row[number] + 1
            if isinstance(event, NotRestarted):
                last[event.number], row[event.number] = moment.now, row[event.number] + 1
            if isinstance(event, Served) and moment.before.replicas[event.number].generation == event.generation:
                row[event.number] = 0 if event.number in _up(moment.before) else row[event.number]
            if isinstance(event, ServiceClock):
                due = {n for n, at in last.items() if moment.now >= at + service.restart_pause(moment.before, row[n])}
                begun = {one.number for one in moment.actions if isinstance(one, Restart)}
                seen("a start after several failures", any(row[number] > 1 for number in begun))
                require(begun == due, f"at {moment.now} {sorted(begun)} start again, wanted {sorted(due)}")
                for number in begun:
                    del last[number]

    claim = "Who failed is started again once, when its pause is over; failures in a row double the pause."
    mutant = Mutant("starts again at once", no_pause)
    return _law("starts_again_in_time", claim, mutant, check, "a start after several failures")
