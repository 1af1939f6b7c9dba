"""Laws of rewards: each sample has its own, the weighted sum of the functions that apply, whatever stands beside it.

The subject is a `rewards_of(functions, weights) -> (rewards, names)` as in `runtime.effects.rewards.grader`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core.language.episode import Grade
from purestep.core.language.prompts import PromptRow, RepliedPrompt
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor

# --- mutants ---
# Common errors in rewards: each an edit of a right `rewards_of`.


Replies = tuple[RepliedPrompt, ...]
Grades = Sequence[Grade]
RewardsOf = Callable[..., tuple[Callable[[Replies], Grades], tuple[str, ...]]]
Change = Callable[[Callable[[Replies], Grades], Sequence[float], Replies], Grades]


def _edited(change: Change) -> Callable[[RewardsOf], RewardsOf]:
    """The edit whose grades are change(rewards, weights, replies)."""

    def make(rewards_of: RewardsOf) -> RewardsOf:
        def edited(functions: Any, weights: Sequence[float]) -> Any:
            rewards, names = rewards_of(functions, weights)
            return lambda replies: change(rewards, weights, replies), names

        return edited

    return make


def _each(change: Callable[[Grade, Sequence[float]], Grade]) -> Callable[[RewardsOf], RewardsOf]:
    """The edit of each grade by itself; `weights` are those of all functions."""
    return _edited(lambda rewards, weights, replies: [change(one, weights) for one in rewards(replies)])


def _by_text(rewards: Any, weights: Sequence[float], replies: Replies) -> Grades:
    return list(rewards(tuple(sorted(replies, key=lambda one: one.text))))


def _all_or_none(rewards: Any, weights: Sequence[float], replies: Replies) -> Grades:
    found = list(rewards(replies))
    return [Grade(error="the batch failed")] * len(found) if any(one.error for one in found) else found


def _mean(one: Grade, weights: Sequence[float]) -> Grade:
    return evolve(one, reward=one.reward / len(one.parts)) if one.parts else one


def _unweighted(one: Grade, weights: Sequence[float]) -> Grade:
    return evolve(one, reward=sum(one.parts.values(), 0.0))


def _none_is_zero(one: Grade, weights: Sequence[float]) -> Grade:
    return Grade() if "none applies" in one.error else one


def _error_is_zero(one: Grade, weights: Sequence[float]) -> Grade:
    return one if not one.error or "none applies" in one.error else Grade()


by_text = _edited(_by_text)
all_or_none = _edited(_all_or_none)
mean = _each(_mean)
none_is_zero = _each(_none_is_zero)

MUTANTS: dict[str, Callable[[Any], Any]] = {
    "adds up without weights": _each(_unweighted),
    "gives a sample with an error the reward 0": _each(_error_is_zero),
}


# --- laws ---


SOURCE = "runtime.effects.rewards.grader: rewards of finished attempts"
RAISES, TEXT = "raises", "a text"  # results of a function besides numbers and None
Result = float | str | None


@frozen
class Case:
    """Results of functions for each sample, [samples][functions], the weights of the functions, and an order of samples."""

    results: tuple[tuple[Result, ...], ...]
    weights: tuple[float, ...]
    order: tuple[int, ...]

    def functions(self) -> list[Callable[..., list[Any]]]:
        """Return the functions: each returns the results of the samples whose numbers are the texts, or raises."""

        def function(number: int) -> Callable[..., list[Any]]:
            def reward(completions: Sequence[Any], **columns: Any) -> list[Any]:
                texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
                found = [self.results[int(text)][number] for text in texts]
                if RAISES in found:
                    raise ValueError("no number")
                return found

            return reward

        return [function(number) for number in range(len(self.weights))]

    def replies(self) -> Replies:
        """Return the replies of all samples; every third is one to chat messages."""
        prompts = [(("user", "?"),) if number % 3 == 2 else "?" for number in range(len(self.results))]
        return tuple(RepliedPrompt(PromptRow(prompt), str(number)) for number, prompt in enumerate(prompts))

    def wrong(self, sample: int) -> bool:
        """Return whether a function fails at a sample, or none applies."""
        return any(isinstance(one, str) for one in self.results[sample]) or set(self.results[sample]) == {None}


@st.composite
def cases(draw: DrawFn) -> Case:
    """Up to 6 samples and 3 functions; numbers are dyadic, so that sums are exact."""
    samples, functions = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    numbers = st.integers(-8, 8).map(lambda number: number / 4)
    results = st.one_of(numbers, numbers, numbers, st.sampled_from((None, None, RAISES, TEXT)))
    return Case(
        results=tuple(tuple(draw(results) for _ in range(functions)) for _ in range(samples)),
        weights=tuple(draw(numbers) for _ in range(functions)),
        order=tuple(draw(st.permutations(range(samples)))),
    )


def rewards_laws() -> Suite:
    """The laws of rewards."""
    return Suite("rewards_laws", (_permuted(), _alone(), _sums(), _errors()))


_law = law_constructor(cases, SOURCE, most=100)


def _permuted() -> Law:
    def check(rewards_of: RewardsOf, case: Case, seen: Seen) -> None:
        rewards, _ = rewards_of(case.functions(), case.weights)
        replies = case.replies()
        found, moved = rewards(replies), rewards(tuple(replies[place] for place in case.order))
        seen("another order", case.order != tuple(sorted(case.order)))
        seen("a failure", any(map(case.wrong, case.order)))
        require(list(moved) == [found[place] for place in case.order], f"{moved} in the order {case.order} of {found}")

    claim = "Grades move with their samples."
    return _law(
        "permuted", claim, ("grades samples in the order of their texts", by_text), check, "another order", "a failure"
    )


def _alone() -> Law:
    def check(rewards_of: RewardsOf, case: Case, seen: Seen) -> None:
        rewards, _ = rewards_of(case.functions(), case.weights)
        replies = case.replies()
        wrong = [case.wrong(number) for number in range(len(replies))]
        seen("failures beside others", any(wrong) and not all(wrong))
        together, apart = list(rewards(replies)), [rewards((one,))[0] for one in replies]
        require(together == apart, f"{together} in one batch, {apart} one by one")

    claim = "The grade of a sample does not depend on the others, even if a function fails at some of them."
    mutant = ("gives all samples of a batch the error of one", all_or_none)
    return _law("alone", claim, mutant, check, "failures beside others")


def _sums() -> Law:
    def check(rewards_of: RewardsOf, case: Case, seen: Seen) -> None:
        rewards, names = rewards_of(case.functions(), case.weights)
        require(len(set(names)) == len(case.weights), f"names of parts are {names}")
        for reply, grade in zip(case.replies(), rewards(case.replies()), strict=True):
            results = case.results[int(reply.text)]
            if case.wrong(int(reply.text)):
                continue
            seen("several functions", len(results) > 1)
            seen("one that does not apply", None in results)
            parts = {name: one for name, one in zip(names, results, strict=True) if one is not None}
            require(dict(grade.parts) == parts, f"parts are {grade.parts}, wanted {parts}")
            pairs = zip(case.weights, results, strict=True)
            wanted = sum((weight * one for weight, one in pairs if isinstance(one, float)), 0.0)
            require(grade.reward == wanted, f"the reward is {grade.reward}, wanted {wanted}")

    claim = "A reward is the weighted sum of the functions that apply, its parts are their results."
    needs = ("several functions", "one that does not apply")
    return _law("weighted_sum", claim, ("divides by the number of functions that apply", mean), check, *needs)


def _errors() -> Law:
    def check(rewards_of: RewardsOf, case: Case, seen: Seen) -> None:
        rewards, _ = rewards_of(case.functions(), case.weights)
        for number, grade in enumerate(rewards(case.replies())):
            wrong, results = case.wrong(number), case.results[number]
            seen("none applies", set(results) == {None})
            seen("raises", RAISES in results)
            seen("no number", TEXT in results)
            require(bool(grade.error) == wrong, f"the error is {grade.error!r} for {results}")
            require(not wrong or (grade.reward == 0.0 and not grade.parts), f"{grade} has an error and a reward")
            require("\n" not in grade.error, "an error has several lines")

    claim = "A sample that a function fails at, or to which none applies, has an error and no reward."
    mutant = ("takes a sample to which no function applies as 0", none_is_zero)
    return _law("errors", claim, mutant, check, "none applies", "raises", "no number")
