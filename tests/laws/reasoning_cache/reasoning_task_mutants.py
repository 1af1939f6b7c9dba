"""How people get lists to be reduced wrong, and what is right about one step on them."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from purestep.core.keys import Key
from purestep.core.language.parsers import strict_answer
from purestep.core.language.reasoning_demonstrations import summed_up
from purestep.core.language.reasoning_lists import Lists
from purestep.core.language.reasoning_state import Ask, InferenceProblemState, Problem, Reply, RolloutResult
from purestep.core.language.reasoning_tasks import ListTask


@frozen
class Listing:
    """The functions of core.language.reasoning_tasks and reasoning_demonstrations, under their names there."""

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
    """Draws lists of one length."""
    return evolve(listing, list_task=lambda lists, key: listing.list_task(evolve(lists, shortest=lists.longest), key))


def one_alphabet(listing: Listing) -> Listing:
    """Begins the labels anew behind z."""

    def list_problem(task: ListTask) -> Problem:
        problem = listing.list_problem(task)
        words = problem.problem_text.split(" ")
        return evolve(
            problem,
            problem_text=" ".join(word[1:] if word[:1] == "a" and word[1:2].isalpha() else word for word in words),
        )

    return evolve(listing, list_problem=list_problem)


def answers_alone(listing: Listing) -> Listing:
    """Takes a step for right if its answer is, or if it gives none."""

    def step_correct(task: ListTask, summary: str, text: str, *, numbers: int) -> bool:
        return strict_answer(text) in ((), task.results[-1])

    return evolve(listing, step_correct=step_correct)


def trusts_summaries(listing: Listing) -> Listing:
    """Takes a summary's label for true, whatever its result."""

    def carried(task: ListTask, summary: str) -> int:
        named = summary.partition(" ")[0]
        rights = [listing.right_summary(task, count).partition(" ")[0] for count in range(len(task.numbers) + 1)]
        return rights.index(named) if named in rights else 0

    return evolve(listing, carried=carried)


def reads_cut_items(listing: Listing) -> Listing:
    """Reads an item that was cut as if it were whole."""

    def reached(task: ListTask, summary: str, text: str) -> int | tuple[()]:
        return listing.reached(task, summary, text if "[" in text or text[-1:] in ("", ";", " ") else f"{text};")

    return evolve(listing, reached=reached)


def forgets_the_label(listing: Listing) -> Listing:
    """Sums up the result alone."""
    return evolve(listing, summed_up=lambda summary, text: summed_up(summary, text).rpartition(" ")[2])


def shows_only_right(listing: Listing) -> Listing:
    """Demonstrates with full skill whatever it is told."""

    def show_reasoning(task: ListTask, count: int, key: Key, *, skill: float, numbers: int) -> str:
        return listing.show_reasoning(task, count, key, skill=1.0, numbers=numbers)

    return evolve(listing, show_reasoning=show_reasoning)


def sums_up_what_is_right(listing: Listing) -> Listing:
    """Sums up with full skill whatever it is told."""

    def show_summary(summary: str, text: str, key: Key, *, skill: float) -> str:
        return listing.show_summary(summary, text, key, skill=1.0)

    return evolve(listing, show_summary=show_summary)


def thinks_the_answer(listing: Listing) -> Listing:
    """Ends what is thought behind the answer, so that nothing is said."""
    return evolve(listing, aloud=lambda text: f"{text}</think>")


def pays_every_text(listing: Listing) -> Listing:
    """Pays a step as if it were to take one number, whatever it is told."""

    def list_rollout(state: InferenceProblemState, asked: Ask, reply: Reply, *, numbers: int = 1) -> RolloutResult:
        return listing.list_rollout(state, asked, reply, numbers=1)

    return evolve(listing, list_rollout=list_rollout)


def pays_for_less(listing: Listing) -> Listing:
    """Takes a step for right that gets anywhere."""

    def step_correct(task: ListTask, summary: str, text: str, *, numbers: int) -> bool:
        return listing.step_correct(task, summary, text, numbers=1)

    return evolve(listing, step_correct=step_correct)


MUTANTS: dict[str, Callable[[Any], Any]] = {"takes a step for right that gets anywhere": pays_for_less}
