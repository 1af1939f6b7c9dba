"""Laws of starts: each group is prepared once, by one rollout worker, whichever workers come or go; no waiting command is lost.

The subject is a function (groups) -> `Starts`. The laws run it through commands that need starts, finished preparations and
lost rollout workers, in any order.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, define, evolve
from hypothesis import strategies as st

from purestep.core.language.preparation import Start
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.async_rl.preparation import Ready, Starts, WaitingCommand

# --- mutants ---
# Common errors in starts: preparations done twice, freed once, forgotten, or used for the wrong group.


Subject = Callable[[int], Starts]


def _of(subject: Subject, kind: type) -> Subject:
    return lambda groups: kind(groups=subject(groups).groups)


class _ForEach(Starts):
    def asked(self, held: WaitingCommand) -> tuple[Starts, bool]:
        after, _ = super().asked(held)
        return evolve(after, under_way={**after.under_way, held.prompt // self.groups: held.worker}), True


class _FreesOne(Starts):
    def come(self, ready: Ready) -> tuple[Starts, tuple[int, ...]]:
        after, freed = super().come(ready)
        kept = tuple(one for one in self.waiting if one.number in freed[1:])
        return evolve(after, waiting=(*after.waiting, *kept)), freed[:1]


class _Forgets(Starts):
    def lost(self, worker: int) -> tuple[Starts, tuple[WaitingCommand, ...], tuple[int, ...]]:
        after, _, gone = super().lost(worker)
        left = {one: by for one, by in self.under_way.items() if by != worker}
        return evolve(after, under_way=left), (), gone


class _FirstStart(Starts):
    def come(self, ready: Ready) -> tuple[Starts, tuple[int, ...]]:
        return super().come(evolve(ready, starts=ready.starts[:1] * len(ready.starts)))


def for_each(subject: Subject) -> Any:
    """Prepare once for each command."""
    return _of(subject, _ForEach)


def frees_one(subject: Subject) -> Any:
    """Free only the first waiting command."""
    return _of(subject, _FreesOne)


def forgets(subject: Subject) -> Any:
    """Forget the preparation under way on a lost rollout worker."""
    return _of(subject, _Forgets)


def first_start(subject: Subject) -> Any:
    """Use the first start of a preparation for all of its groups."""
    return _of(subject, _FirstStart)


# --- laws ---


SOURCE = "runtime.async_rl.preparation: a preparation is done once, by a generator that is there"
Move = tuple[str, int, int]  # what happens; a prompt, or which preparation; a generator


def starts_laws() -> Suite:
    """The laws of starts."""
    return Suite("starts_laws", (_once(), _freed(), _lost(), _ready()))


@define
class Course:
    """Starts after some moves, and the expected state besides."""

    starts: Starts
    groups: int
    waiting: dict[int, tuple[int, int]] = Factory(dict)  # commands: prompt, generator
    working: dict[int, int] = Factory(dict)  # preparations: generator
    ready: set[int] = Factory(set)  # prompts
    begun: list[tuple[int, int]] = Factory(list)  # preparation and generator, each time one is begun
    freed: list[int] = Factory(list)
    gone: list[int] = Factory(list)
    number: int = 0
    doubled: int = 0  # preparations that were begun while they were under way
    last: tuple[str, int] = ("", 0)  # the last move, and its generator

    def move(self, kind: str, one: int, worker: int) -> None:
        """Apply one move."""
        self.last = kind, worker
        if kind == "ask":
            self._ask(one, worker)
        elif kind == "done" and self.working:
            self._done(sorted(self.working)[one % len(self.working)])
        elif kind == "lost":
            self._lost(worker)
        elif kind == "drop" and self.waiting:
            number = sorted(self.waiting)[one % len(self.waiting)]
            self.starts = self.starts.without(number)
            del self.waiting[number]

    def _ask(self, prompt: int, worker: int) -> None:
        if prompt in self.starts.ready:
            return
        self.starts, first = self.starts.asked(WaitingCommand(self.number, prompt, worker))
        self.waiting[self.number] = prompt, worker
        self.number += 1
        if first:
            self.doubled += prompt // self.groups in self.working
            self.begun.append((prompt // self.groups, worker))
            self.working[prompt // self.groups] = worker

    def _done(self, preparation: int) -> None:
        made = tuple(Start(state=preparation, observation=str(place)) for place in range(self.groups))
        self.starts, freed = self.starts.come(Ready(preparation=preparation, starts=made))
        self.working.pop(preparation)
        self.ready |= {preparation * self.groups + place for place in range(self.groups)}
        self.freed.extend(freed)
        for number in freed:
            self.waiting.pop(number, None)

    def _lost(self, worker: int) -> None:
        self.starts, again, gone = self.starts.lost(worker)
        for held in again:
            self.working[held.prompt // self.groups] = held.worker
            self.begun.append((held.prompt // self.groups, held.worker))
        self.working = {one: by for one, by in self.working.items() if by != worker}
        self.gone.extend(gone)
        for number in gone:
            self.waiting.pop(number, None)


def moves() -> Any:
    """Draw moves of a few rollout workers, prompts of a few preparations, and the number of groups of each."""
    kinds = st.sampled_from(("ask", "ask", "ask", "ask", "done", "lost", "drop"))
    move = st.tuples(kinds, st.integers(0, 3), st.integers(0, 2))
    return st.tuples(st.integers(1, 3), st.lists(move, min_size=10, max_size=30))


def gone_through(subject: Subject, drawn: tuple[int, list[Move]], after: Callable[[Course], None]) -> Course:
    """Return the course after some moves, checked after each."""
    groups, made = drawn
    course = Course(subject(groups), groups)
    for kind, one, worker in made:
        course.move(kind, one, worker)
        after(course)
    return course


_law = law_constructor(moves, SOURCE, most=300)


def _once() -> Law:
    def check(subject: Subject, drawn: tuple[int, list[Move]], seen: Seen) -> None:
        def after(course: Course) -> None:
            same("preparations under way", dict(course.starts.under_way), course.working)
            same("preparations begun twice", course.doubled, 0)

        course = gone_through(subject, drawn, after)
        asked = [one // course.groups for kind, one, _ in drawn[1] if kind == "ask"]
        seen("two commands for one preparation", len(set(asked)) < len(asked))

    mutant = Mutant("prepares for each command", for_each)
    claim = "A preparation that is under way is not begun again."
    return _law("once", claim, mutant, check, "two commands for one preparation")


def _freed() -> Law:
    def check(subject: Subject, drawn: tuple[int, list[Move]], seen: Seen) -> None:
        def after(course: Course) -> None:
            same("commands that wait", {one.number for one in course.starts.waiting}, set(course.waiting))
            needed = {prompt // course.groups for prompt, _ in course.waiting.values()}
            require(needed <= set(course.starts.under_way), "what waits is being prepared")

        course = gone_through(subject, drawn, after)
        seen("a command that was freed", course.freed)
        same("commands, freed once", len(set(course.freed)), len(course.freed))

    mutant = Mutant("frees the first command alone", frees_one)
    claim = "A command waits until its start is there, and goes on once."
    return _law("freed", claim, mutant, check, "a command that was freed")


def _lost() -> Law:
    def check(subject: Subject, drawn: tuple[int, list[Move]], seen: Seen) -> None:
        def after(course: Course) -> None:
            kind, gone = course.last
            if kind == "lost":
                needed = {prompt // course.groups for prompt, _ in course.waiting.values()}
                require(needed <= set(course.starts.under_way), "what waits is being prepared")
                require(gone not in course.starts.under_way.values(), "a lost generator prepares nothing")
                require(all(one.worker != gone for one in course.starts.waiting), "nor does anything wait for it")

        course = gone_through(subject, drawn, after)
        asked = {(one // course.groups, worker) for kind, one, worker in drawn[1] if kind == "ask"}
        shared = len({one for one, _ in asked}) < len(asked)
        seen("a preparation for two generators, and one lost", shared and any(kind == "lost" for kind, *_ in drawn[1]))

    mutant = Mutant("forgets what a lost generator was preparing", forgets)
    claim = "What a lost generator was preparing is prepared by another one that waits for it."
    return _law("lost", claim, mutant, check, "a preparation for two generators, and one lost")


def _ready() -> Law:
    def check(subject: Subject, drawn: tuple[int, list[Move]], seen: Seen) -> None:
        course = gone_through(subject, drawn, lambda course: None)
        seen("several groups of a preparation", course.groups > 1 and course.ready)
        same("prompts with a start", set(course.starts.ready), course.ready)
        for prompt, start in course.starts.ready.items():
            wanted = prompt // course.groups, str(prompt % course.groups)
            same(f"the start of prompt {prompt}", (start.state, start.observation), wanted)

    mutant = Mutant("gives all groups of a preparation its first start", first_start)
    claim = "Each group of a preparation has a start of its own."
    return _law("ready", claim, mutant, check, "several groups of a preparation")
