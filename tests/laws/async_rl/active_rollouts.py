"""Laws of attempts that are added and removed while others run: none is lost or affects another, and all tokens are reported.

The subject is a `Desking`, the functions of `runtime.async_rl.active_rollouts` around a generation in progress; the laws use a
model of integers, so that equal means equal bits.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from attrs import evolve
from hypothesis.strategies import SearchStrategy

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.generation.engine import Generator
from purestep.runtime.effects.generation.scheduling import FREE, ActiveRollouts, AnyAttempt, Chunk, Generation

from .rollout_schedules import Course, Desking, Scene, alone, by_definition, calls_of, played, scenes

# --- mutants ---
# Common errors: edits of the functions that add attempts to a generation, remove them and report their tokens.


NOBODY = -1
Taken = tuple[ActiveRollouts, tuple[tuple[int, AnyAttempt], ...]]


def takes_twice(desking: Desking) -> Desking:
    """Return a finished attempt and add it again if its task is 1 modulo 4."""

    def taken(desk: ActiveRollouts) -> Taken:
        after, over = desking.taken(desk)
        again = [one for one in over if one[0] % 4 == 1]
        return (desking.added(after, *again[-1]) if again and not after.idle else after), over

    return evolve(desking, taken=taken)


def loses_waiting(desking: Desking) -> Desking:
    """Leave the index of the next waiting attempt unchanged when attempts before it are removed."""

    def left(before: ActiveRollouts, after: ActiveRollouts) -> ActiveRollouts:
        following = min(before.generation.following, len(after.tasks))
        return evolve(after, generation=evolve(after.generation, following=following))

    def taken(desk: ActiveRollouts) -> Taken:
        after, over = desking.taken(desk)
        return left(desk, after), over

    return evolve(desking, given_up=lambda desk, task: left(desk, desking.given_up(desk, task)), taken=taken)


def old_seats(desking: Desking) -> Desking:
    """Leave the old indices of attempts in the slots when attempts before them are removed."""

    def left(before: ActiveRollouts, after: ActiveRollouts) -> ActiveRollouts:
        pairs = zip(before.generation.seats, after.generation.seats, strict=True)
        seats = tuple(old if new != FREE and old[0] < len(after.tasks) else new for old, new in pairs)
        return evolve(after, generation=evolve(after.generation, seats=seats))

    def taken(desk: ActiveRollouts) -> Taken:
        after, over = desking.taken(desk)
        return left(desk, after), over

    return evolve(desking, given_up=lambda desk, task: left(desk, desking.given_up(desk, task)), taken=taken)


def old_caches(desking: Desking) -> Desking:
    """Continue with caches that were computed under other weights."""

    def advance(made: Generator, params: Any, version: int, generation: Generation) -> Generation:
        return desking.advance(made, params, version, evolve(generation, version=version))

    return evolve(desking, advance=advance)


def first_version(desking: Desking) -> Desking:
    """Report the first version of a finished call for all of its tokens."""

    def advance(made: Generator, params: Any, version: int, generation: Generation) -> Generation:
        after = desking.advance(made, params, version, generation)
        attempts = tuple(_of_one_version(one) for one in after.attempts)
        return evolve(after, attempts=attempts)

    return evolve(desking, advance=advance)


def _of_one_version(attempt: AnyAttempt) -> AnyAttempt:
    calls = calls_of(attempt)
    if not calls:
        return attempt
    said = calls[-1].said
    heard = evolve(calls[-1], said=evolve(said, versions=said.versions[:1] * len(said.versions)))
    return evolve(attempt, pieces=tuple(heard if piece is calls[-1] else piece for piece in attempt.pieces))


def _telling(
    change: Callable[[ActiveRollouts, ActiveRollouts, tuple[Chunk, ...]], tuple[ActiveRollouts, tuple[Chunk, ...]]],
) -> Any:
    """The edit of reported token counts: `change(before, after, more)`."""

    def make(desking: Desking) -> Desking:
        return evolve(desking, chunks=lambda desk: change(desk, *desking.chunks(desk)))

    return make


def _forgets(
    before: ActiveRollouts, after: ActiveRollouts, more: tuple[Chunk, ...]
) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    return evolve(after, reported=before.reported), more


def _whole_calls(
    before: ActiveRollouts, after: ActiveRollouts, more: tuple[Chunk, ...]
) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    said = tuple(sum(len(one.said.ids) for one in calls_of(attempt)) for attempt in after.generation.attempts)
    new = zip(before.tasks, before.reported, said, strict=True)
    return evolve(after, reported=said), tuple((task, now - old) for task, old, now in new if now > old)


def _under_way_again(
    before: ActiveRollouts, after: ActiveRollouts, more: tuple[Chunk, ...]
) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    """Mark only the tokens of finished calls as reported."""
    said = tuple(sum(len(one.said.ids) for one in calls_of(attempt)) for attempt in after.generation.attempts)
    return evolve(after, reported=said), more


def sits_on(desking: Desking) -> Desking:
    """Let a cancelled attempt run to its end, without reporting it."""

    def given_up(desk: ActiveRollouts, task: int) -> ActiveRollouts:
        return evolve(desk, tasks=tuple(NOBODY if one == task else one for one in desk.tasks))

    def taken(desk: ActiveRollouts) -> Taken:
        after, over = desking.taken(desk)
        return after, tuple(one for one in over if one[0] != NOBODY)

    def chunks(desk: ActiveRollouts) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
        after, more = desking.chunks(desk)
        return after, tuple(one for one in more if one[0] != NOBODY)

    return evolve(desking, given_up=given_up, taken=taken, chunks=chunks)


def newest_first(desking: Desking) -> Desking:
    """Put the newest attempt at the front of the queue."""

    def added(desk: ActiveRollouts, task: int, attempt: AnyAttempt) -> ActiveRollouts:
        place, whole = desk.generation.following, desk.generation.attempts
        return ActiveRollouts(
            generation=evolve(desk.generation, attempts=(*whole[:place], attempt, *whole[place:])),
            tasks=(*desk.tasks[:place], task, *desk.tasks[place:]),
            reported=(*desk.reported[:place], 0, *desk.reported[place:]),
        )

    return evolve(desking, added=added)


def _gives_up_all(desking: Desking) -> Desking:
    """Remove all attempts to cancel one, and restart the others."""

    def given_up(desk: ActiveRollouts, task: int) -> ActiveRollouts:
        if task not in desk.tasks:
            return desk
        left = [one for one in desk.tasks if one != task]
        attempts = [desk.generation.attempts[desk.tasks.index(one)] for one in left]
        for one in desk.tasks:
            desk = desking.given_up(desk, one)
        for one, attempt in zip(left, attempts, strict=True):
            desk = desking.added(desk, one, attempt)
        return desk

    return evolve(desking, given_up=given_up)


def _unknown_is_newest(desking: Desking) -> Desking:
    """Cancel the newest task if the given one is not there."""

    def given_up(desk: ActiveRollouts, task: int) -> ActiveRollouts:
        return desking.given_up(desk, task if task in desk.tasks or desk.idle else desk.tasks[-1])

    return evolve(desking, given_up=given_up)


forgets, whole_calls = _telling(_forgets), _telling(_whole_calls)
MUTANTS: dict[str, Callable[[Desking], Desking]] = {
    "counts the call under way again": _telling(_under_way_again),
    "leaves the next that waits where it was, when some before it leave": loses_waiting,
    "says one version of a whole call": first_version,
    "begins all anew to give one up": _gives_up_all,
    "gives up the newest for one that is not there": _unknown_is_newest,
}


# --- laws ---


SOURCE = "runtime.async_rl.active_rollouts: attempts that come and go"
MOVED = "other weights in the middle of an attempt"


def desk_laws() -> Suite:
    """The laws of a `Desking`."""
    return Suite("desk_laws", (_once(), _alone(), _versions(), _told(), _slots(), _turns()))


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    inputs: SearchStrategy[Scene],
    check: Callable[[Scene, Course, Seen], None],
    *needs: str,
) -> Law:
    def on_course(desking: Desking, scene: Scene, seen: Seen) -> None:
        check(scene, played(desking, scene), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(inputs),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=200,
    )


def _once() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        taken = [task for task, _ in course.taken]
        for place in ("waiting", "sitting"):
            seen(f"one given up while {place}", place in course.dropped.values())
        seen("one given up that was not there", course.late)
        left = Counter([*taken, *course.dropped])
        require(left == Counter([*course.begun]), f"begun {sorted(course.begun)}, left {sorted(left.elements())}")
        for task, attempt in course.taken:
            require(not isinstance(attempt.end, tuple), f"task {task} was taken and has not ended")
            same(f"the request of task {task}", attempt.rollout.request.id, course.begun[task].rollout.request.id)

    claim = "Every task leaves once, ended or given up; none is lost, none comes from nowhere."
    mutant = Mutant("gives what has ended and keeps it", takes_twice)
    needs = ("one given up while waiting", "one given up while sitting", "one given up that was not there")
    return _law("leaves_once", claim, mutant, scenes(versions=False), check, *needs)


def _alone() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        seen("several side by side", any(len(look.sat) > 1 for look in course.looks))
        seen("one given up beside others", "sitting" in course.dropped.values() and scene.slots > 1)
        for task, attempt in course.taken:
            wanted = alone(course.begun[task].rollout.request.id, scene.seed)
            require(attempt == wanted, f"task {task} gave {attempt.ids}, and {wanted.ids} where it is alone")

    claim = "What an attempt gives is, bit for bit, what it gives alone, whatever comes, goes or is given up beside it."
    mutant = Mutant("leaves slots with the numbers of others", old_seats)
    needs = ("several side by side", "one given up beside others")
    return _law("as_if_alone", claim, mutant, scenes(versions=False), check, *needs)


def _versions() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        for task, attempt in course.taken:
            said = [one.said for one in calls_of(attempt)]
            seen(MOVED, len({version for one in said for version in one.versions}) > 1)
            seen("other weights in the middle of a call", any(len(set(one.versions)) > 1 for one in said))
            got = [pair for one in said for pair in zip(one.ids, one.log_probs, strict=True)]
            same(f"the tokens of task {task}", got, by_definition(scene.seed, attempt))

    claim = "Each token is the one that the weights of its version draw behind all before it, and its log-prob theirs."
    mutant = Mutant("goes on with what other weights have put into the caches", old_caches)
    needs = (MOVED, "other weights in the middle of a call")
    return _law("versions_made_their_tokens", claim, mutant, scenes(versions=True), check, *needs)


def _told() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        told = Counter[tuple[int, int]]()
        for task, tokens, version in course.told:
            require(tokens > 0, f"of task {task} {tokens} tokens are told")
            told[task, version] += tokens
        for task, attempt in course.taken:
            said = Counter(version for one in calls_of(attempt) for version in one.said.versions)
            seen(MOVED, len(said) > 1)
            heard = {version: count for (one, version), count in told.items() if one == task}
            same(f"the tokens told of task {task}, by version", heard, dict(said))
        for task in course.dropped:
            count = sum(number for (one, _), number in told.items() if one == task)
            seen("tokens told of one that was given up", count)
            most = len(course.looks) * scene.steps
            require(count <= most, f"{count} tokens are told of task {task} in time for {most}")

    claim = "What is told of an attempt, as the weights that made it come, adds up to its tokens of each version."
    mutant = Mutant("tells of a call once it is over", whole_calls)
    needs = (MOVED, "tokens told of one that was given up")
    return _law("told_adds_up", claim, mutant, scenes(versions=True), check, *needs)


def _slots() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        seen("one given up in a slot", "sitting" in course.dropped.values())
        for look in course.looks:
            seen("more than there are slots for", look.live > look.slots)
            wanted = min(look.live, look.slots)
            require(len(set(look.sat)) == wanted, f"{look.sat} had slots, {wanted} of {look.live} could")
            require(set(look.sat) <= course.begun.keys(), f"{look.sat} had slots, some for nobody")

    claim = "No slot is empty while somebody waits, nor with somebody who was given up."
    mutant = Mutant("lets one that was given up go on to its end", sits_on)
    needs = ("one given up in a slot", "more than there are slots for")
    return _law("slots_are_used", claim, mutant, scenes(versions=False), check, *needs)


def _turns() -> Law:
    def check(scene: Scene, course: Course, seen: Seen) -> None:
        first: dict[int, int] = {}
        for number, look in enumerate(course.looks):
            for task in look.sat:
                first.setdefault(task, number)
        tasks = [task for task in course.begun if task in first]
        seen("one that waited for another", any(first[a] < first[b] for a, b in pairwise(tasks)))
        early = [(a, b) for a, b in pairwise(tasks) if first[a] > first[b]]
        require(not early, f"of each of these the second got a slot before the first, who had come earlier: {early}")

    claim = "Those who wait get slots in the order in which they came."
    mutant = Mutant("lets the newest go first", newest_first)
    return _law("served_in_turn", claim, mutant, scenes(versions=False), check, "one that waited for another")
