"""Laws of lists to reduce: they can be reduced step by step, and each step can be checked on its own.

The subject is a `Listing`: the functions of core.language.list_reduction.tasks and demonstrations.
"""

import re
from collections.abc import Callable
from math import ceil
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.list_reduction.lists import KINDS, Lists
from purestep.core.language.list_reduction.tasks import ListTask
from purestep.core.language.parsers import strict_answer
from purestep.core.language.reasoning_cache.demonstrations import summed_up
from purestep.core.language.reasoning_cache.state import (
    REASONING,
    InferenceProblemState,
    ModelRequest,
    Problem,
    Reply,
    RolloutResult,
)
from purestep.core.language.reasoning_cache.templates import thought
from purestep.core.language.types import ModelOutput
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds

# --- mutants ---
# Common errors in lists to reduce, and in the check of a step.


@frozen
class Listing:
    """The functions of core.language.list_reduction.tasks and demonstrations, under their names there."""

    list_task: Callable[[Lists, Key], ListTask]
    list_problem: Callable[[ListTask], Problem]
    read_list: Callable[[str], ListTask]
    right_reasoning: Callable[..., str]
    right_summary: Callable[[ListTask, int], str]
    carried: Callable[[ListTask, str], int]
    reached: Callable[[ListTask, str, str], int | tuple[()]]
    step_correct: Callable[..., bool]
    summed_up: Callable[[str, str], str]
    show_reasoning: Callable[..., str]
    show_summary: Callable[..., str]
    aloud: Callable[[str], str]
    list_rollout: Callable[..., RolloutResult]


def always_longest(listing: Listing) -> Listing:
    """Draw lists of one length."""
    return evolve(listing, list_task=lambda lists, key: listing.list_task(evolve(lists, shortest=lists.longest), key))


def one_alphabet(listing: Listing) -> Listing:
    """Restart the labels after z."""

    def list_problem(task: ListTask) -> Problem:
        problem = listing.list_problem(task)
        words = problem.problem_text.split(" ")
        return evolve(
            problem,
            problem_text=" ".join(word[1:] if word[:1] == "a" and word[1:2].isalpha() else word for word in words),
        )

    return evolve(listing, list_problem=list_problem)


def answers_alone(listing: Listing) -> Listing:
    """Accept a step if its answer is right, or if it has no answer."""

    def step_correct(task: ListTask, summary: str, text: str, *, numbers: int) -> bool:
        return strict_answer(text) in ((), task.results[-1])

    return evolve(listing, step_correct=step_correct)


def trusts_summaries(listing: Listing) -> Listing:
    """Accept a summary with a right label, whatever its result is."""

    def carried(task: ListTask, summary: str) -> int:
        named = summary.partition(" ")[0]
        rights = [listing.right_summary(task, count).partition(" ")[0] for count in range(len(task.numbers) + 1)]
        return rights.index(named) if named in rights else 0

    return evolve(listing, carried=carried)


def reads_cut_items(listing: Listing) -> Listing:
    """Parse an item that was cut as if it were complete."""

    def reached(task: ListTask, summary: str, text: str) -> int | tuple[()]:
        return listing.reached(task, summary, text if "[" in text or text[-1:] in ("", ";", " ") else f"{text};")

    return evolve(listing, reached=reached)


def forgets_the_label(listing: Listing) -> Listing:
    """Leave the label out of a summary."""
    return evolve(listing, summed_up=lambda summary, text: summed_up(summary, text).rpartition(" ")[2])


def shows_only_right(listing: Listing) -> Listing:
    """Demonstrate reasoning with full skill, whatever the skill is."""

    def show_reasoning(task: ListTask, count: int, key: Key, *, skill: float, numbers: int) -> str:
        return listing.show_reasoning(task, count, key, skill=1.0, numbers=numbers)

    return evolve(listing, show_reasoning=show_reasoning)


def sums_up_what_is_right(listing: Listing) -> Listing:
    """Demonstrate summaries with full skill, whatever the skill is."""

    def show_summary(summary: str, text: str, key: Key, *, skill: float) -> str:
        return listing.show_summary(summary, text, key, skill=1.0)

    return evolve(listing, show_summary=show_summary)


def thinks_the_answer(listing: Listing) -> Listing:
    """End the thinking after the answer, so that no text follows it."""
    return evolve(listing, aloud=lambda text: f"{text}</think>")


def pays_every_text(listing: Listing) -> Listing:
    """Reward a step as if it had to reduce one number, whatever `numbers` is."""

    def list_rollout(
        state: InferenceProblemState, asked: ModelRequest, reply: Reply, *, numbers: int = 1
    ) -> RolloutResult:
        return listing.list_rollout(state, asked, reply, numbers=1)

    return evolve(listing, list_rollout=list_rollout)


def pays_for_less(listing: Listing) -> Listing:
    """Accept a step that reduces one number, whatever `numbers` is."""

    def step_correct(task: ListTask, summary: str, text: str, *, numbers: int) -> bool:
        return listing.step_correct(task, summary, text, numbers=1)

    return evolve(listing, step_correct=step_correct)


MUTANTS: dict[str, Callable[[Any], Any]] = {"takes a step for right that gets anywhere": pays_for_less}


# --- laws ---


SOURCE = "core.language.list_reduction.tasks: one step's tokens cannot finish the list, a summary can carry it"
REDUCE: dict[str, Callable[[list[int]], int]] = {
    "sum": sum,
    "modular_sum": lambda numbers: sum(numbers) % 10,
    "maximum": max,
    "minimum": min,
}


@frozen
class Lesson:
    """A list, and the count of numbers that a step reduces."""

    kind: str
    numbers: tuple[int, ...]
    step: int
    seed: int

    @property
    def task(self) -> ListTask:
        """The list."""
        return ListTask(kind=self.kind, numbers=self.numbers)


def lessons() -> SearchStrategy[Lesson]:
    """Draw lists of one to 31 numbers, some of them negative; the longest have more labels than the alphabet."""
    some = st.lists(st.integers(-9, 30), min_size=1, max_size=9)
    many = st.integers(27, 31).map(lambda n: [(7 * i) % 10 - 3 for i in range(n)])
    numbers = st.one_of(some, some, many).map(tuple)
    return st.builds(Lesson, st.sampled_from(tuple(KINDS)), numbers, st.integers(1, 4), seeds())


def reasoning_task_laws() -> Suite:
    """The laws of lists."""
    laws = _told(), _drawn(), _finished(), _wrong(), _cut(), _carried(), _skill(), _summing(), _aloud(), _paid()
    return Suite("reasoning_task_laws", laws)


_law = law_constructor(lessons, SOURCE)


def _told() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        problem = listing.list_problem(lesson.task)
        seen("a list beyond the alphabet", len(lesson.numbers) > 26)
        same("the list that the text tells", listing.read_list(problem.problem_text), lesson.task)
        same("the answer", problem.answer, str(REDUCE[lesson.kind](list(lesson.numbers))))
        labels = re.findall(r" ([a-z]+)", problem.problem_text.partition(":")[2])
        same("labels, each once", len(set(labels)), len(lesson.numbers))

    mutant = Mutant("begins the labels anew behind z", one_alphabet)
    claim = "A problem's text tells its list, and its answer is the list reduced."
    return _law("told_by_its_text", claim, mutant, check, "a list beyond the alphabet")


def _drawn() -> Law:
    def check(listing: Listing, drawn: tuple[str, int, int, int], seen: Seen) -> None:
        kind, seed, shortest, more = drawn
        lists = Lists(kind=kind, shortest=shortest, longest=shortest + more, low=-2, high=2)
        tasks = [listing.list_task(lists, key) for key in keys.split(keys.key(seed), 12)]
        lengths = {len(task.numbers) for task in tasks}
        seen("room for several lengths", more > 3)
        require(lengths <= set(range(shortest, shortest + more + 1)), f"lengths are {sorted(lengths)}")
        require(more <= 3 or len(lengths) > 1, "twelve keys give one length")
        require(
            {number for task in tasks for number in task.numbers} <= set(range(-2, 3)),
            "numbers are within their bounds",
        )
        same("drawn again", [listing.list_task(lists, key) for key in keys.split(keys.key(seed), 12)], tasks)

    mutant = Mutant("draws lists of one length", always_longest)
    claim = "The key decides the list, of any length and any numbers within the bounds."
    inputs = st.tuples(st.sampled_from(tuple(KINDS)), seeds(), st.integers(1, 5), st.integers(0, 8))
    return _law("drawn_by_a_key", claim, mutant, check, "room for several lengths", inputs=inputs)


def _finished() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, summary, answers, count = lesson.task, "", [], 0
        cycles = ceil(len(task.numbers) / lesson.step)
        seen("several cycles", cycles > 1)
        for _ in range(cycles + 1):
            text = listing.right_reasoning(task, count, numbers=lesson.step)
            require(
                listing.step_correct(task, summary, text, numbers=lesson.step), f"{text!r} is right behind {summary!r}"
            )
            answers.append(strict_answer(text))
            summary, count = listing.summed_up(summary, text), min(count + lesson.step, len(task.numbers))
            same("the summary", summary, listing.right_summary(task, count))
            same("what it carries", listing.carried(task, summary), count)
        same("answers", answers, [*[()] * (cycles - 1), *[task.results[-1]] * 2])

    mutant = Mutant("sums up the result without its label", forgets_the_label)
    claim = "Right steps and summaries of them finish a list of n numbers in n / numbers cycles, and then repeat the answer."
    return _law("finished_in_cycles", claim, mutant, check, "several cycles")


def _wrong() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        right, summary = listing.right_reasoning(task, count, numbers=lesson.step), listing.right_summary(task, count)
        digits = [match.start() for match in re.finditer(r"\d", right)]
        for place in digits:
            changed = f"{right[:place]}{(int(right[place]) + 1 + lesson.seed % 9) % 10}{right[place + 1 :]}"
            seen("a wrong result without an answer", "[" not in right)
            require(not listing.step_correct(task, summary, changed, numbers=lesson.step), f"{changed!r} is not right")
        short = right.rpartition(";")[0].rpartition(";")[0]
        if ";" in right:
            seen("a step that is short by one", short)
            require(not listing.step_correct(task, summary, short, numbers=lesson.step), f"{short!r} stops too early")

    mutant = Mutant("looks at the answer alone", answers_alone)
    claim = "A step with any digit changed is wrong, and so is one that stops before it should."
    return _law(
        "one_wrong_digit", claim, mutant, check, "a wrong result without an answer", "a step that is short by one"
    )


def _cut() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        right, summary = listing.right_reasoning(task, count, numbers=lesson.step), listing.right_summary(task, count)
        seen("results of two digits", re.search(r"=\d\d", right))
        for end in range(len(right.partition(" [")[0]) + 1 if ";" in right else 0):
            text = right[:end]
            same(f"how far {text!r} gets", listing.reached(task, summary, text), count + text.count(";"))

    mutant = Mutant("reads an item that was cut as if it were whole", reads_cut_items)
    claim = "A right step that is cut gets as far as its last whole item, and is never wrong."
    return _law("cut_steps", claim, mutant, check, "results of two digits")


def _carried() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task = lesson.task
        for count in range(1, len(task.numbers) + 1):
            name, _, result = listing.right_summary(task, count).partition(" ")
            same("a right summary", listing.carried(task, f" {name} {result}\n"), count)
            for wrong in (
                f"{name} {int(result) + 1}",
                f"{name}",
                result,
                f"{name} {result} or so",
                f"z{name} {result}",
            ):
                same(f"what {wrong!r} carries", listing.carried(task, wrong), 0)
            anew = listing.right_reasoning(task, 0, numbers=lesson.step)
            seen("a wrong summary of several numbers", count > 1)
            found = listing.step_correct(task, f"{name} {int(result) + 1}", anew, numbers=lesson.step)
            require(found, f"behind a wrong summary {anew!r} is right")
        same("nothing", (listing.carried(task, ""), listing.right_summary(task, 0)), (0, ""))

    mutant = Mutant("trusts the label of a summary", trusts_summaries)
    claim = "A summary carries what it says if all of it is true, else nothing, and then the work begins anew."
    return _law("wrong_summaries_carry_nothing", claim, mutant, check, "a wrong summary of several numbers")


def _skill() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        summary = listing.right_summary(task, count)
        for skill in (0.0, 1.0):
            for key in keys.split(keys.key(lesson.seed), 6):
                text = listing.show_reasoning(task, count, key, skill=skill, numbers=lesson.step)
                again = listing.show_reasoning(task, count, key, skill=skill, numbers=lesson.step)
                same("shown again", again, text)
                right = listing.step_correct(task, summary, text, numbers=lesson.step)
                lucky = count == len(task.numbers) and skill == 0.0
                seen("no skill", not right)
                require(lucky or right == (skill == 1.0), f"with skill {skill} {text!r} is shown behind {summary!r}")

    mutant = Mutant("shows what is right alone", shows_only_right)
    claim = (
        "With skill 1 demonstrations are right, with skill 0 wrong, but for a lucky guess when nothing is left to do."
    )
    return _law("skill", claim, mutant, check, "no skill")


def _summing() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        summary = listing.right_summary(task, count)
        for key in keys.split(keys.key(lesson.seed), 4):
            text = listing.show_reasoning(task, count, key, skill=0.5, numbers=lesson.step)
            right = listing.summed_up(summary, text)
            seen("reasoning that moved on", right != summary)
            for skill, wanted in ((1.0, right), (0.0, summary)):
                same(f"with skill {skill}", listing.show_summary(f" {summary}\n", text, key, skill=skill), wanted)
        shown = {listing.show_summary("", "a1=1;", key, skill=0.5) for key in keys.split(keys.key(lesson.seed), 24)}
        same("with skill 0.5, of 24 keys", shown, {"", "a 1"})

    mutant = Mutant("sums up with full skill whatever it is told", sums_up_what_is_right)
    claim = "With skill 1 what was reasoned is summed up, with skill 0 nothing of it, in between either, by the key."
    return _law("skill_of_summaries", claim, mutant, check, "reasoning that moved on")


def _aloud() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        summary = listing.right_summary(task, count)
        for key in keys.split(keys.key(lesson.seed), 4):
            text = listing.show_reasoning(task, count, key, skill=0.5, numbers=lesson.step)
            said = listing.aloud(text)
            seen("a step with items and an answer", ";" in text and "[" in text)
            same("what is thought", thought(said), text.partition("[")[0].strip())
            same("the answer", strict_answer(said), strict_answer(text))
            right = listing.step_correct(task, summary, text, numbers=lesson.step)
            same("whether it is right", listing.step_correct(task, summary, said, numbers=lesson.step), right)
            same("its summary", listing.summed_up(summary, thought(said)), listing.summed_up(summary, text))

    mutant = Mutant("ends what is thought behind the answer", thinks_the_answer)
    claim = "Said aloud, a step has its items in what is thought and its answer behind it, and is worth the same."
    return _law("aloud", claim, mutant, check, "a step with items and an answer")


def _paid() -> Law:
    def check(listing: Listing, lesson: Lesson, seen: Seen) -> None:
        task, count = lesson.task, lesson.seed % (len(lesson.numbers) + 1)
        summary = listing.right_summary(task, count)
        state = InferenceProblemState(problem=listing.list_problem(task), curr_summary=summary)
        asked = ModelRequest(cycle_step=0, turn_type=REASONING, turn_number=1, prompt_text="Go on:")
        right = listing.right_reasoning(task, count, numbers=lesson.step)
        said = ModelOutput(ids=(1,), log_probs=(-0.5,), versions=(3,))
        for text in (right, right.rpartition("; ")[0] + ";", "hm"):
            paid = listing.list_rollout(state, asked, Reply(cycle_step=0, text=text, said=said), numbers=lesson.step)
            (told,) = paid.training_texts
            wanted = listing.step_correct(task, summary, text, numbers=lesson.step)
            seen("a step that is short by one", text != right and ";" in text and not wanted)
            same("the reward", told.reward, float(wanted))
            same("the success", paid.success, wanted)
            same("what is trained", (told.prompt_text, told.output_text, told.said), ("Go on:", text, said))

    mutant = Mutant("pays a step as if it were to take one number", pays_every_text)
    claim = "A step on a list makes one training text, which is paid 1 where the step is right and else 0."
    return _law("paid_by_the_step", claim, mutant, check, "a step that is short by one")
