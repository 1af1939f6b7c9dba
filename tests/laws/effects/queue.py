"""Laws of a bounded queue (Q1 to Q4): order, capacity, age, no caller that waits without need, and returned samples.

The subject is a `step(line, event) -> (line, answers)` as in `runtime.effects.bounded_queue`.
"""

import itertools
from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.bounded_queue import (
    ACCEPTED,
    CLOSED,
    Advance,
    Answer,
    Close,
    Event,
    Expired,
    Put,
    PutAnswer,
    QueuedSample,
    QueueState,
    Take,
    TakeAnswer,
    Withdraw,
    empty_queue,
    too_old,
)

# --- mutants ---
# Common errors in queues: each an edit of a right step.


AnyStep = Callable[[QueueState, Event], Any]


def newest(step: AnyStep) -> AnyStep:
    """Take the newest samples first."""

    def turned(state: QueueState, event: Event) -> Any:
        entries = state.entries[::-1] if isinstance(event, Take) else state.entries
        after, answers = step(evolve(state, entries=entries), event)
        return (evolve(after, entries=after.entries[::-1]) if isinstance(event, Take) else after), answers

    return turned


def drops_oldest(step: AnyStep) -> AnyStep:
    """Drop the oldest sample of a full queue, as a deque with a maximal length."""

    def dropping(state: QueueState, event: Event) -> Any:
        if isinstance(event, Put) and len(state.entries) == state.capacity and not state.closed:
            state = evolve(state, entries=state.entries[1:], expired=state.expired + 1)
        return step(state, event)

    return dropping


def age_when_put(step: AnyStep) -> AnyStep:
    """Check the age of samples only when they are put."""

    def lax(state: QueueState, event: Event) -> Any:
        if isinstance(event, Advance):
            return evolve(state, version=max(state.version, event.version)), ()
        return step(state, event)

    return lax


def wakes_nobody(step: AnyStep) -> AnyStep:
    """Do not wake waiting putters at a take; they are answered at the next Put."""

    def silent(state: QueueState, event: Event) -> Any:
        if not isinstance(event, Take):
            return step(state, event)
        after, answers = step(evolve(state, putting=()), event)
        return evolve(after, putting=state.putting), answers

    return silent


def uncounted(step: AnyStep) -> AnyStep:
    """Leave expired samples out of the count."""

    def quiet(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        return evolve(after, expired=state.expired), answers

    return quiet


def small_first(step: AnyStep) -> AnyStep:
    """Serve a small take before larger ones that wait."""

    def greedy(state: QueueState, event: Event) -> Any:
        if isinstance(event, Take) and state.taking and len(state.entries) >= event.count:
            served, answers = step(evolve(state, taking=()), event)
            return evolve(served, taking=state.taking), answers
        return step(state, event)

    return greedy


def throws_away(step: AnyStep) -> AnyStep:
    """Drop all samples at the close."""

    def clearing(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        if isinstance(event, Close):
            return evolve(after, entries=(), taken=after.taken + len(after.entries)), answers
        return after, answers

    return clearing


def hands_out_twice(step: AnyStep) -> AnyStep:
    """Return a sample and keep it, as a replay buffer would."""

    def keeping(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        given = {ticket for answer in answers if isinstance(answer, TakeAnswer) for ticket in answer.tickets}
        back = tuple(entry for entry in state.entries if entry.ticket in given)[:1]
        return evolve(after, entries=(*back, *after.entries)), answers

    return keeping


def answers_twice(step: AnyStep) -> AnyStep:
    """Answer an accepted caller twice."""

    def twice(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        again = tuple(answer for answer in answers if isinstance(answer, PutAnswer) and answer.outcome == ACCEPTED)
        return after, (*answers, *(again if state.putting else ()))

    return twice


def reports_again(step: AnyStep) -> AnyStep:
    """Count expired samples as refused as well."""

    def double(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        gone = sum(len(answer.tickets) for answer in answers if isinstance(answer, Expired))
        return evolve(after, refused=after.refused + gone), answers

    return double


def back_at_the_end(step: AnyStep) -> AnyStep:
    """Put returned samples at the end."""

    def behind(state: QueueState, event: Event) -> Any:
        after, answers = step(state, event)
        if not isinstance(event, Withdraw):
            return after, answers
        back = tuple(entry for entry in after.entries if entry in event.back)
        others = tuple(entry for entry in after.entries if entry not in event.back)
        return evolve(after, entries=(*others, *back)), answers

    return behind


def loses_back(step: AnyStep) -> AnyStep:
    """Lose the samples that a leaving caller returns."""

    def losing(state: QueueState, event: Event) -> Any:
        return step(state, Withdraw(event.caller) if isinstance(event, Withdraw) else event)

    return losing


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "hands a sample out twice": hands_out_twice,
    "answers a caller twice": answers_twice,
    "counts what expired as refused as well": reports_again,
    "loses what comes back": loses_back,
}


# --- laws ---


SOURCE = "runtime.effects.bounded_queue: a bounded queue as a pure machine"
Step = Callable[[QueueState, Event], tuple[QueueState, tuple[Answer, ...]]]
Acts = tuple[tuple[str, int], ...]


@frozen
class Scene:
    """A capacity, a bound on the lag, and acts of callers in their order."""

    capacity: int
    max_lag: Any
    acts: Acts


@frozen
class Course:
    """The results of a scene: the state after each event, and all answers with the state before their event."""

    states: list[QueueState] = Factory(list)
    events: list[Event] = Factory(list)
    answers: list[tuple[QueueState, Answer]] = Factory(list)  # (the line before the event, the answer)

    def outcomes(self) -> dict[int, list[str]]:
        """The answers to each caller of a Put."""
        found: dict[int, list[str]] = {}
        for _, answer in self.answers:
            if isinstance(answer, PutAnswer):
                found.setdefault(answer.caller, []).append(answer.outcome)
        return found

    def accepted(self) -> list[int]:
        """The tickets that were accepted, in their order."""
        told = [answer for _, answer in self.answers if isinstance(answer, PutAnswer)]
        return [answer.caller for answer in told if answer.outcome == ACCEPTED]

    def given(self) -> list[int]:
        """The tickets that were taken, in their order."""
        return [ticket for _, answer in self.answers if isinstance(answer, TakeAnswer) for ticket in answer.tickets]

    def expired(self) -> list[int]:
        """The tickets that got too old, in their order."""
        return [ticket for _, answer in self.answers if isinstance(answer, Expired) for ticket in answer.tickets]


def scenes(*, least: int = 16, most: int = 40) -> SearchStrategy[Scene]:
    """Draw scenes of a small queue; the number of an act is a count, a version or the index of a waiting caller."""
    verbs = st.sampled_from(("put", "put", "put", "take", "take", "leave", "advance", "close"))
    acts = st.lists(st.tuples(verbs, st.integers(0, 5)), min_size=least, max_size=most).map(tuple)
    return st.builds(Scene, capacity=st.integers(2, 4), max_lag=st.sampled_from((0, 1, 1, ())), acts=acts)


def played(step: Step, scene: Scene) -> Course:
    """Run the acts through the machine. The caller of a Put is its ticket."""
    state, course, version = empty_queue(scene.capacity, max_lag=scene.max_lag), Course(), 0
    for number, (verb, value) in enumerate(scene.acts):
        waiting = [who for who, _ in (*state.putting, *state.taking)]
        event: Event
        if verb == "put":
            event = Put(number, QueuedSample(number, max(0, version - value // 3)))
        elif verb == "take":
            event = Take(number, 1 + value % scene.capacity)
        elif verb == "leave":
            event = Withdraw(waiting[value % len(waiting)] if waiting else -1)
        elif verb == "advance":
            version += value % 3
            event = Advance(version)
        else:
            event = Close() if value == 0 else Advance(version)
        after, answers = step(state, event)
        course.answers.extend((state, answer) for answer in answers)
        course.states.append(after)
        course.events.append(event)
        state = after
    return course


def queue_laws() -> Suite:
    """The laws of a queue's rules."""
    return Suite(
        "queue_laws", (_order(), _room(), _age(), _progress(), _accounts(), _turns(), _closing(), _coming_back())
    )


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Scene, Course, Seen], None], *needs: str) -> Law:
    def on_course(step: Step, scene: Scene, seen: Seen) -> None:
        check(scene, played(step, scene), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(scenes()),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _order() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        given, accepted = course.given(), course.accepted()
        seen("several samples taken", len(given) > 1)
        require(len(set(given)) == len(given), f"taken twice: {given}")
        wanted = [ticket for ticket in accepted if ticket in given]
        require(given == wanted, f"taken in the order {given}, accepted in the order {wanted}")

    claim = "Samples are taken in the order in which they were accepted, each once."
    return _law("first_in_first_out", claim, Mutant("takes the newest", newest), check, "several samples taken")


def _room() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        for state in course.states:
            seen("a full queue with somebody waiting", len(state.entries) == scene.capacity and state.putting)
            require(len(state.entries) <= scene.capacity, f"{len(state.entries)} samples in room for {scene.capacity}")
        last = course.states[-1]
        there = {*course.given(), *course.expired(), *(entry.ticket for entry in last.entries)}
        lost = [ticket for ticket in course.accepted() if ticket not in there]
        require(not lost, f"accepted and gone: {lost}")

    claim = "There are never more samples than room, and a full queue lets callers wait: it drops nothing in silence."
    mutant = Mutant("drops the oldest to make room", drops_oldest)
    return _law("room_is_kept", claim, mutant, check, "a full queue with somebody waiting")


def _age() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        entries = {event.entry.ticket: event.entry for event in course.events if isinstance(event, Put)}
        seen("a sample that got too old inside", course.expired())
        for before, answer in course.answers:
            for ticket in answer.tickets if isinstance(answer, TakeAnswer) else ():
                lag = before.version - entries[ticket].version
                bound = scene.max_lag if isinstance(scene.max_lag, int) else lag
                require(lag <= bound, f"a sample {lag} versions old was given, at most {bound} allowed")
        for earlier, later in itertools.pairwise(course.states):
            require(later.version >= earlier.version, "the version of those who take went back")

    claim = "What is taken is at most max_lag versions behind when it is taken, not only when it was put in."
    mutant = Mutant("looks at the age when a sample is put in alone", age_when_put)
    return _law("nothing_stale_is_taken", claim, mutant, check, "a sample that got too old inside")


def _progress() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        for before, after in zip([empty_queue(scene.capacity), *course.states], course.states, strict=False):
            seen("somebody who waited and was served", len(after.putting) < len(before.putting))
            if after.putting:
                require(len(after.entries) >= scene.capacity, "somebody waits to put a sample in, and there is room")
            if after.taking:
                count = after.taking[0][1]
                require(len(after.entries) < count, f"somebody waits for {count} of {len(after.entries)} samples")

    claim = "Whatever the schedule, nobody waits who could be served."
    mutant = Mutant("wakes nobody when room is made", wakes_nobody)
    return _law("nobody_waits_in_vain", claim, mutant, check, "somebody who waited and was served")


def _accounts() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        seen("a sample that expired", course.expired())
        seen("a sample refused", course.states[-1].refused)
        for state in course.states:
            kept = state.taken + state.expired + len(state.entries)
            require(state.accepted == kept, f"{state.accepted} accepted, {kept} taken, expired or still there")
        last, told = course.states[-1], course.outcomes()
        require(all(len(one) == 1 for one in told.values()), "a caller was answered twice")
        puts = sum(isinstance(event, Put) for event in course.events)
        require(puts == len(told) + len(last.putting), f"{puts} puts, {len(told)} answers, {len(last.putting)} waiting")
        numbers = (last.accepted, last.refused, last.taken, last.expired)
        wanted = (
            len(course.accepted()),
            len(told) - len(course.accepted()),
            len(course.given()),
            len(course.expired()),
        )
        require(numbers == wanted, f"(accepted, refused, taken, expired): counted {numbers}, told {wanted}")

    claim = "Every sample is counted once: accepted or refused, and accepted = taken + expired + still there."
    mutant = Mutant("does not count what expired", uncounted)
    return _law("accounts_balance", claim, mutant, check, "a sample that expired", "a sample refused")


def _turns() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        left = {event.caller for event in course.events if isinstance(event, Withdraw)}
        told = [answer.caller for _, answer in course.answers if isinstance(answer, TakeAnswer)]
        served = [caller for caller in told if caller not in left]
        wants = {event.caller: event.count for event in course.events if isinstance(event, Take)}
        seen("a take behind a larger one", any(wants[a] > wants[b] for a, b in itertools.pairwise(served)))
        require(served == sorted(served), f"callers who came in the order of their numbers were served as {served}")
        for before, answer in course.answers:
            if isinstance(answer, TakeAnswer) and answer.caller not in left and not before.closed:
                closing = course.states[-1].closed
                whole = len(answer.tickets) == wants[answer.caller]
                require(whole or closing, f"{len(answer.tickets)} of {wants[answer.caller]} samples were given")

    claim = "Takes are served in turn, each whole, so that a large one is not passed by small ones for ever."
    mutant = Mutant("lets a small take pass a large one", small_first)
    return _law("takes_are_served_in_turn", claim, mutant, check, "a take behind a larger one")


def _closing() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        for i, event in enumerate(course.events):
            if not isinstance(event, Close):
                continue
            before = course.states[i - 1] if i else empty_queue(scene.capacity)
            after = course.states[i]
            seen("a close with somebody waiting", before.putting or before.taking)
            require(not after.putting and not after.taking, "somebody waits at a closed queue")
            there = {*course.given(), *course.expired(), *(entry.ticket for entry in course.states[-1].entries)}
            gone = [entry.ticket for entry in before.entries if entry.ticket not in there]
            require(not gone, f"a close threw samples away: {gone}")
            later = [event.caller for event in course.events[i:] if isinstance(event, Put)]
            told = course.outcomes()
            require(all(told.get(caller) == [CLOSED] for caller in later), "a closed queue took a sample in")

    claim = "Closing answers everybody who waits; nothing more comes in, and what is there can be taken."
    mutant = Mutant("throws away what is there when it closes", throws_away)
    return _law("closing_loses_nothing", claim, mutant, check, "a close with somebody waiting")


def _coming_back() -> Law:
    def check(step: Step, scene: Scene, seen: Seen) -> None:
        course = played(step, scene)
        before = course.states[-1]
        entries = {event.entry.ticket: event.entry for event in course.events if isinstance(event, Put)}
        given = next(
            (answer for _, answer in course.answers if isinstance(answer, TakeAnswer) and answer.tickets), None
        )
        if given is None:
            return
        back = tuple(entries[ticket] for ticket in given.tickets)
        after, answers = step(before, Withdraw(given.caller, back))
        fresh = {entry.ticket for entry in (*before.entries, *back) if not too_old(before, entry)}
        seen("something came back before what is there", fresh & {*given.tickets} and before.entries)
        seen("something too old came back", len(fresh) < len(before.entries) + len(back))
        told = Course(answers=[(before, answer) for answer in answers])
        there = [*told.given(), *(entry.ticket for entry in after.entries)]
        wanted = [*sorted(fresh), *told.accepted()]
        require(there == wanted, f"given or there are {there}, wanted {wanted}")
        old = sorted(entry.ticket for entry in back if entry.ticket not in fresh)
        require(told.expired() == old, f"expired {told.expired()}, too old {old}")
        numbers = (after.taken, after.expired, after.accepted)
        counted = (
            before.taken - len(back) + len(told.given()),
            before.expired + len(old),
            before.accepted + len(told.accepted()),
        )
        require(numbers == counted, f"(taken, expired, accepted) are {numbers}, wanted {counted}")

    return Law(
        name="what_comes_back_has_its_place",
        claim="What a caller was given and never had is in its old place again, and counts as not taken.",
        source=SOURCE,
        inputs=always(scenes()),
        check=check,
        mutant=Mutant("puts what comes back at the end", back_at_the_end),
        needs=("something came back before what is there", "something too old came back"),
        most=500,
    )
