"""Laws of a curriculum: prompts are conserved, none starves, and a step has its groups.

The subject is a `Curriculum`: functions of `core.language.curriculum`.
"""

import math
from collections.abc import Callable, Sequence

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core.language.curriculum import (
    Choice,
    CurriculumRules,
    CurriculumState,
    Resampling,
    RowOf,
    resampling,
)
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

SOURCE = "core.language.curriculum: each number of a prompt is asked once or skipped"
Results = Sequence[tuple[int, bool]]


@frozen
class Curriculum:
    """The functions of core.language.curriculum, under their names there."""

    choose_prompts: Callable[[CurriculumRules, CurriculumState, int, RowOf], Choice]
    add_results: Callable[[CurriculumRules, CurriculumState, Results, RowOf], CurriculumState]
    missing: Callable[[Resampling], int]
    add_round: Callable[[Resampling, Sequence[tuple[int, bool]]], Resampling]
    batch_of: Callable[[Resampling], tuple[int, ...]]


# --- mutants ---
# Common errors in the choice of prompts.


def forgets_skipped(subject: Curriculum) -> Curriculum:
    """Report no prompt as skipped."""
    return evolve(subject, choose_prompts=lambda *given: evolve(subject.choose_prompts(*given), skipped=()))


def never_returns(subject: Curriculum) -> Curriculum:
    """Skip a solved prompt for good."""
    return evolve(
        subject,
        choose_prompts=lambda rules, *given: subject.choose_prompts(evolve(rules, rest=1 << 30, floor=0.5), *given),
    )


def without_a_floor(subject: Curriculum) -> Curriculum:
    """Skip all solved prompts of a pass but one."""
    return evolve(
        subject, choose_prompts=lambda rules, *given: subject.choose_prompts(evolve(rules, floor=1e-9), *given)
    )


def counts_all_solved(subject: Curriculum) -> Curriculum:
    """Count the passes in which a prompt was solved, in a row or not."""

    def add_results(rules: CurriculumRules, state: CurriculumState, results: Results, row_of: RowOf) -> CurriculumState:
        return subject.add_results(rules, state, [one for one in results if one[1]], row_of)

    return evolve(subject, add_results=add_results)


def forgets_the_pass(subject: Curriculum) -> Curriculum:
    """Begin the count of skipped prompts anew in each call."""
    return evolve(
        subject,
        choose_prompts=lambda rules, state, *given: subject.choose_prompts(rules, evolve(state, skipped=0), *given),
    )


def one_round(subject: Curriculum) -> Curriculum:
    """Sample no further prompts."""
    return evolve(subject, missing=lambda step: 0 if step.kept or step.equal else subject.missing(step))


def first_come(subject: Curriculum) -> Curriculum:
    """Take the first groups of a step, whatever they earned."""

    def batch_of(step: Resampling) -> tuple[int, ...]:
        return tuple(sorted((*step.kept, *step.equal)))[: step.groups]

    return evolve(subject, batch_of=batch_of)


# --- laws ---


@frozen
class Run:
    """A run over a list: its rules, the prompts of each step, and the outcome of each row, pass by pass, over and over."""

    rules: CurriculumRules
    steps: tuple[int, ...]
    right: tuple[tuple[bool, ...], ...]

    def row_of(self, number: int) -> int:
        """Return the row of a prompt: in each pass the list is turned by one."""
        passed, place = divmod(number, self.rules.prompts)
        return (place + passed) % self.rules.prompts

    def solved(self, number: int) -> bool:
        """Return whether all attempts at a prompt are right."""
        outcomes = self.right[self.row_of(number) % len(self.right)]
        return outcomes[number // self.rules.prompts % len(outcomes)]


@st.composite
def runs(draw: DrawFn) -> Run:
    """Draw a run over a short list, many of whose prompts are solved."""
    rules = CurriculumRules(
        prompts=draw(st.integers(1, 6)),
        skip_solved=draw(st.integers(1, 2)),
        rest=draw(st.integers(1, 3)),
        floor=draw(st.sampled_from((0.125, 0.25, 0.5))),
    )
    outcomes = st.lists(st.sampled_from((True, True, True, False)), min_size=1, max_size=5).map(tuple)
    right = tuple(draw(st.lists(outcomes, min_size=1, max_size=4)))
    return Run(rules, tuple(draw(st.lists(st.integers(1, 6), min_size=4, max_size=16))), right)


@frozen
class Trace:
    """The choices of a run, step by step, and its states, the last one after the last step."""

    choices: tuple[Choice, ...]
    states: tuple[CurriculumState, ...]

    @property
    def asked(self) -> tuple[int, ...]:
        """Return the prompts that were asked."""
        return tuple(number for choice in self.choices for number in choice.numbers)

    @property
    def skipped(self) -> tuple[int, ...]:
        """Return the prompts that were skipped."""
        return tuple(number for choice in self.choices for number in choice.skipped)


def traced(subject: Curriculum, run: Run) -> Trace:
    """Return what a run asks."""
    states, choices = [CurriculumState()], list[Choice]()
    for count in run.steps:
        choice = subject.choose_prompts(run.rules, states[-1], count, run.row_of)
        same("prompts of a step", len(choice.numbers), count)
        results = [(number, run.solved(number)) for number in choice.numbers]
        choices.append(choice)
        states.append(subject.add_results(run.rules, choice.state, results, run.row_of))
    return Trace(tuple(choices), tuple(states))


_law = law_constructor(runs, SOURCE, most=300)


def curriculum_laws() -> Suite:
    """The laws of a `Curriculum`."""
    return Suite("curriculum_laws", (_conserved(), _floor(), _returns(), _reason(), _chunks(), _groups(), _replaced()))


def _conserved() -> Law:
    def check(subject: Curriculum, run: Run, seen: Seen) -> None:
        found = traced(subject, run)
        seen("a skipped prompt", found.skipped)
        same(
            "prompts asked or skipped", sorted((*found.asked, *found.skipped)), list(range(found.states[-1].following))
        )

    mutant = Mutant("does not record a skipped prompt", forgets_skipped)
    claim = "Each number of a prompt before the next one was asked once or recorded as skipped once."
    return _law("prompts_are_conserved", claim, mutant, check, "a skipped prompt")


def _floor() -> Law:
    def check(subject: Curriculum, run: Run, seen: Seen) -> None:
        found, size = traced(subject, run), run.rules.prompts
        for passed in range(found.states[-1].following // size):
            asked = [number for number in found.asked if number // size == passed]
            least = math.ceil(run.rules.floor * size)
            seen("a pass in which no more may be skipped", len(asked) == least < size)
            require(len(asked) >= least, f"pass {passed} asks {len(asked)} of {size} prompts, {least} are the floor")

    mutant = Mutant("skips down to one prompt of a pass", without_a_floor)
    claim = "Each pass asks at least the given share of the list."
    return _law("a_floor_stays", claim, mutant, check, "a pass in which no more may be skipped")


def _returns() -> Law:
    def check(subject: Curriculum, run: Run, seen: Seen) -> None:
        found, size = traced(subject, run), run.rules.prompts
        passes = found.states[-1].following // size
        for row in range(size):
            asked = [number // size for number in found.asked if run.row_of(number) == row]
            gaps = [after - before for before, after in zip([-1, *asked], [*asked, passes], strict=True)]
            seen("a prompt that comes back", max(gaps) > 1 and asked)
            require(max(gaps) <= run.rules.rest + 1, f"row {row} is asked in passes {asked} of {passes}")

    mutant = Mutant("never asks a solved prompt again", never_returns)
    claim = "A prompt is asked again after it was skipped in `rest` passes."
    return _law("skipped_prompts_return", claim, mutant, check, "a prompt that comes back")


def _reason() -> Law:
    def check(subject: Curriculum, run: Run, seen: Seen) -> None:
        found, times = traced(subject, run), run.rules.skip_solved
        steps = [(step, number) for step, choice in enumerate(found.choices) for number in choice.skipped]
        for step, number in steps:
            before = [one for choice in found.choices[:step] for one in choice.numbers]  # whose results are known
            asked = [one for one in before if run.row_of(one) == run.row_of(number)]
            seen("a prompt that failed once", not all(map(run.solved, asked)))
            require(len(asked) >= times, f"prompt {number} is skipped after {len(asked)} passes")
            require(all(map(run.solved, asked[-times:])), f"prompt {number} is skipped, but was not solved")

    mutant = Mutant("counts solved passes that are not in a row", counts_all_solved)
    claim = (
        "A skipped prompt was solved in as many passes in a row as the rules want, the last ones in which it was asked."
    )
    return _law("only_solved_prompts_are_skipped", claim, mutant, check, "a prompt that failed once")


def _chunks() -> Law:
    def check(subject: Curriculum, run: Run, seen: Seen) -> None:
        for state in traced(subject, run).states:
            whole = subject.choose_prompts(run.rules, state, 5, run.row_of)
            first = subject.choose_prompts(run.rules, state, 2, run.row_of)
            second = subject.choose_prompts(run.rules, first.state, 3, run.row_of)
            seen("skipped prompts in both parts", first.skipped and second.skipped)
            same("numbers in two parts", (*first.numbers, *second.numbers), whole.numbers)
            same("skipped numbers in two parts", (*first.skipped, *second.skipped), whole.skipped)
            same("the state after two parts", second.state, whole.state)

    mutant = Mutant("counts the skipped prompts of a call, not of a pass", forgets_the_pass)
    claim = "A run that goes on from a state chooses what an uninterrupted one chooses."
    return _law("goes_on_from_a_state", claim, mutant, check, "skipped prompts in both parts")


@frozen
class Step:
    """A step: its groups, the extra rounds, and whether the rewards of the prompts differ, in their order, over and over."""

    groups: int
    extra: int
    differs: tuple[bool, ...]


def steps() -> st.SearchStrategy[Step]:
    """Draw steps of which many groups have equal rewards."""
    differs = st.lists(st.booleans(), min_size=1, max_size=9).map(tuple)
    return st.builds(Step, st.integers(1, 5), st.integers(0, 4), differs)


@frozen
class Rounds:
    """A step's groups as they came, and the batch."""

    differs: dict[int, bool]
    rounds: int
    batch: tuple[int, ...]


def sampled(subject: Curriculum, step: Step) -> Rounds:
    """Return the rounds of a step."""
    state, differs, rounds = resampling(step.groups, step.extra), dict[int, bool](), 0
    while count := subject.missing(state):
        numbers = range(len(differs), len(differs) + count)
        one = {number: step.differs[number % len(step.differs)] for number in numbers}
        state, differs, rounds = subject.add_round(state, tuple(one.items())), {**differs, **one}, rounds + 1
    return Rounds(differs, rounds, subject.batch_of(state))


def _groups() -> Law:
    def check(subject: Curriculum, step: Step, seen: Seen) -> None:
        found = sampled(subject, step)
        differing = sum(found.differs.values())
        seen("more rounds than one", found.rounds > 1)
        seen("too few groups whose rewards differ", differing < step.groups)
        require(found.rounds <= 1 + step.extra, f"{found.rounds} rounds, {step.extra} extra ones")
        full = differing >= step.groups
        require(full or found.rounds == 1 + step.extra, f"{found.rounds} rounds found {differing} of {step.groups}")

    mutant = Mutant("samples no further prompts", one_round)
    claim = "Further prompts are sampled until the rewards of all groups differ or the rounds are used up."
    return _law("a_step_goes_on", claim, mutant, check, "more rounds than one", inputs=steps())


def _replaced() -> Law:
    def check(subject: Curriculum, step: Step, seen: Seen) -> None:
        found = sampled(subject, step)
        batch = [found.differs[number] for number in found.batch]
        seen("a group that was replaced", len(found.differs) > step.groups)
        same("the number of groups", (len(found.batch), len(set(found.batch))), (step.groups, step.groups))
        same("groups whose rewards differ", sum(batch), min(step.groups, sum(found.differs.values())))
        same("their order", list(found.batch), sorted(found.batch))

    mutant = Mutant("takes the first groups", first_come)
    claim = "A step has its number of groups, those whose rewards differ first."
    return _law("groups_are_replaced", claim, mutant, check, "a group that was replaced", inputs=steps())
