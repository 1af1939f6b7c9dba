"""Laws of saves beside training: one at a time, each answered once, and every fault reported.

The subject is a `step(desk, event) -> (desk, answers)` as in `runtime.effects.checkpoint.async_save_rules`.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.checkpoint.async_save_rules import (
    AllSaved,
    Answer,
    BeginSave,
    Event,
    NoMoreSaves,
    RaiseFault,
    SaveEnded,
    SaveQueue,
    SaveRequested,
    WaitForSave,
)

# --- mutants ---
# Common errors in saves beside training: each an edit of a right step.


AnyStep = Callable[[SaveQueue, Event], Any]


def begins_beside(step: AnyStep) -> AnyStep:
    """Start a thread for every save."""

    def beside(desk: SaveQueue, event: Event) -> Any:
        if isinstance(event, SaveRequested) and desk.writing and not desk.fault:
            return desk, (BeginSave(event.step),)
        return step(desk, event)

    return beside


def forgets(step: AnyStep) -> AnyStep:
    """Drop the fault of the last write when the next one is requested."""

    def forgetful(desk: SaveQueue, event: Event) -> Any:
        return step(evolve(desk, fault="") if isinstance(event, SaveRequested) else desk, event)

    return forgetful


def serves_one(step: AnyStep) -> AnyStep:
    """Wake only the first waiting caller when a write ends."""

    def one(desk: SaveQueue, event: Event) -> Any:
        if not isinstance(event, SaveEnded) or len(desk.waiting) < 2:
            return step(desk, event)
        first, *rest = desk.waiting
        after, answers = step(evolve(desk, waiting=(first,)), event)
        return evolve(after, waiting=(*after.waiting, *rest)), answers

    return one


def leaves_at_once(step: AnyStep) -> AnyStep:
    """Leave without waiting for the thread."""

    def hasty(desk: SaveQueue, event: Event) -> Any:
        return (desk, (AllSaved(),)) if isinstance(event, NoMoreSaves) and desk.writing else step(desk, event)

    return hasty


def repeats(step: AnyStep) -> AnyStep:
    """Report a fault again at every later request."""

    def again(desk: SaveQueue, event: Event) -> Any:
        after, answers = step(desk, event)
        told = [answer.fault for answer in answers if isinstance(answer, RaiseFault)]
        return (evolve(after, fault=told[-1]) if told and not after.writing else after), answers

    return again


def newest_first(step: AnyStep) -> AnyStep:
    """Answer the waiting callers in reverse order."""

    def turned(desk: SaveQueue, event: Event) -> Any:
        return step(evolve(desk, waiting=desk.waiting[::-1]) if isinstance(event, SaveEnded) else desk, event)

    return turned


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "tells a fault again and again": repeats,
    "serves whoever came last": newest_first,
}


# --- laws ---


SOURCE = "runtime.effects.checkpoint.async_save_rules: saves beside training as a pure machine"
Step = Callable[[SaveQueue, Event], tuple[SaveQueue, tuple[Answer, ...]]]
Acts = tuple[str, ...]


@frozen
class Course:
    """The results of a scene: each event, with the busy flag before it and the answers to it."""

    moves: list[tuple[bool, Event, tuple[Answer, ...]]] = Factory(list)

    def answers(self) -> list[Answer]:
        """All answers but Wait, in their order."""
        return [answer for _, _, told in self.moves for answer in told if not isinstance(answer, WaitForSave)]

    def asked(self) -> list[Event]:
        """All events that a caller waits for an answer to."""
        return [event for _, event, _ in self.moves if not isinstance(event, SaveEnded)]

    def faults(self) -> list[str]:
        """The faults of writes that were in progress."""
        return [event.fault for busy, event, _ in self.moves if busy and isinstance(event, SaveEnded) and event.fault]

    def told(self) -> list[str]:
        """The faults that were reported."""
        return [answer.fault for answer in self.answers() if isinstance(answer, RaiseFault)]


def played(step: Step, acts: Acts) -> Course:
    """Run the acts through the machine; writes in progress are tracked by its answers alone."""
    desk, course, busy = SaveQueue(), Course(), False
    for number, act in enumerate(acts):
        event: Event = (
            SaveRequested(number)
            if act == "ask"
            else NoMoreSaves()
            if act == "leave"
            else SaveEnded("" if act == "end" else f"f{number}")
        )
        desk, answers = step(desk, event)
        course.moves.append((busy, event, answers))
        busy = (busy and not isinstance(event, SaveEnded)) or any(isinstance(answer, BeginSave) for answer in answers)
    return course


def later_laws() -> Suite:
    """The laws of the rules of saves beside training."""
    return Suite("later_laws", (_one_at_a_time(), _told_once(), _answered(), _left()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Course, Seen], None], *needs: str) -> Law:
    def on_course(step: Step, acts: Acts, seen: Seen) -> None:
        check(played(step, acts), seen)

    verbs = st.sampled_from(("ask", "ask", "end", "fail", "fail", "leave"))
    acts = st.lists(verbs, min_size=12, max_size=30).map(tuple)
    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(acts),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _one_at_a_time() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for busy, event, answers in course.moves:
            begun = [answer for answer in answers if isinstance(answer, BeginSave)]
            free = not busy or isinstance(event, SaveEnded)
            seen("somebody who asked while one is written", busy and isinstance(event, SaveRequested))
            require(len(begun) <= (1 if free else 0), f"{begun} while another is being written, on {event}")

    claim = "One checkpoint is being written at a time."
    mutant = Mutant("begins beside the one under way", begins_beside)
    return _law("one_at_a_time", claim, mutant, check, "somebody who asked while one is written")


def _told_once() -> Law:
    def check(course: Course, seen: Seen) -> None:
        faults, told = course.faults(), course.told()
        seen("a fault that was told", told)
        same("the faults that were told, in their order", told, faults[: len(told)])
        require(len(faults) - len(told) <= 1, f"of the faults {faults} only {told} were told")
        since = [
            i
            for i, (busy, event, _) in enumerate(course.moves)
            if busy and isinstance(event, SaveEnded) and event.fault
        ]
        if len(faults) > len(told):
            later = [event for _, event, _ in course.moves[since[-1] :] if not isinstance(event, SaveEnded)]
            require(not later, f"the fault {faults[-1]} was not told to who asked {later}")

    claim = "Every fault of a write is told once, to the first who asks for anything afterwards."
    mutant = Mutant("forgets a fault when the next one is begun", forgets)
    return _law("faults_are_told_once", claim, mutant, check, "a fault that was told")


def _answered() -> Law:
    def check(course: Course, seen: Seen) -> None:
        asked, answers = course.asked(), course.answers()
        waiting = len(asked) - len(answers)
        seen("one who waited and was answered", any(isinstance(e, SaveEnded) and told for _, e, told in course.moves))
        busy = False
        for _, event, told in course.moves:
            busy = (busy and not isinstance(event, SaveEnded)) or any(isinstance(answer, BeginSave) for answer in told)
        require(
            waiting >= 0 and (busy or waiting == 0), f"{len(asked)} asked, {len(answers)} answers, nothing to wait for"
        )
        for event, answer in zip(asked, answers, strict=False):
            right = isinstance(answer, RaiseFault) or (
                answer == BeginSave(event.step) if isinstance(event, SaveRequested) else isinstance(answer, AllSaved)
            )
            require(right, f"{event} was answered with {answer}")

    claim = "Who asks is answered once, in turn, and nobody waits while nothing is being written."
    mutant = Mutant("serves one of those who wait", serves_one)
    return _law("everybody_is_answered", claim, mutant, check, "one who waited and was answered")


def _left() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for busy, event, answers in course.moves:
            if any(isinstance(answer, AllSaved) for answer in answers):
                seen("one who left after waiting", isinstance(event, SaveEnded))
                still = busy and not isinstance(event, SaveEnded)
                require(not still, "somebody is gone while a checkpoint is being written")

    claim = "Nobody leaves while a checkpoint is being written."
    mutant = Mutant("lets leave at once", leaves_at_once)
    return _law("leaving_waits", claim, mutant, check, "one who left after waiting")
