"""The prompts of a step, chosen by what their attempts earned: solved prompts are skipped for a while, groups replaced.

Prompts are numbered in the order in which a run asks them. With a list of n prompts, number p is in pass p div n, and each row
of the list has one number in each pass. A number is asked once or skipped, never both, and numbers only grow, so that the state
is small and a run that goes on from it asks what an uninterrupted run asks.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from attrs import Factory, evolve, frozen

from ..errors import ChoiceError, message

RowOf = Callable[[int], int]  # number of a prompt -> its row in the list


@frozen(kw_only=True)
class CurriculumRules:
    """Rules of skipping. A prompt is skipped after its attempts were all right in `skip_solved` passes in a row.

    It is asked again after `rest` passes, and skipped for as many again if it is solved then. In each pass at least the share
    `floor` of the list is asked.
    """

    prompts: int = 0  # rows of the list; 0 for prompts that never come again, none of which is skipped
    skip_solved: int = 0  # 0 skips none
    rest: int = 3
    floor: float = 0.25

    @property
    def most_skipped(self) -> int:
        """Return the most prompts that are skipped in one pass.

        >>> CurriculumRules(prompts=10, skip_solved=1).most_skipped
        7
        """
        return self.prompts - math.ceil(self.floor * self.prompts) if self.skip_solved else 0


@frozen
class Solved:
    """A row whose attempts were all right when it was last asked."""

    times: int  # in a row
    last: int  # pass


@frozen
class CurriculumState:
    """Progress through the prompts, and what of them is solved."""

    following: int = 0  # number of the next prompt
    skipped: int = 0  # prompts skipped so far in the pass of `following`
    solved: Mapping[int, Solved] = Factory(dict)  # by row


@frozen
class Choice:
    """Numbers of prompts to ask, and of those skipped before or between them."""

    state: CurriculumState
    numbers: tuple[int, ...]
    skipped: tuple[int, ...]


def choose_prompts(rules: CurriculumRules, state: CurriculumState, count: int, row_of: RowOf) -> Choice:
    """Return the next `count` prompts to ask.

    >>> rules, solved = CurriculumRules(prompts=4, skip_solved=1), {1: Solved(1, 0), 2: Solved(1, 0)}
    >>> choice = choose_prompts(rules, CurriculumState(4, 0, solved), 3, lambda number: number % 4)
    >>> choice.numbers, choice.skipped, choice.state.following
    ((4, 7, 8), (5, 6), 9)
    """
    numbers: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    while len(numbers) < count:
        number = state.following
        passed, place = divmod(number, rules.prompts) if rules.prompts else (0, number)
        before = state.skipped if place else 0
        skips = before < rules.most_skipped and _rests(rules, state.solved.get(row_of(number)), passed)
        numbers, skipped = (numbers, (*skipped, number)) if skips else ((*numbers, number), skipped)
        state = evolve(state, following=number + 1, skipped=before + skips)
    return Choice(state, numbers, skipped)


def _rests(rules: CurriculumRules, solved: Solved | None, passed: int) -> bool:
    return solved is not None and solved.times >= rules.skip_solved and passed - solved.last <= rules.rest


def add_results(
    rules: CurriculumRules, state: CurriculumState, results: Sequence[tuple[int, bool]], row_of: RowOf
) -> CurriculumState:
    """Return the state after prompts were asked: their numbers, in order, and whether all attempts at each were right.

    >>> rules, row_of = CurriculumRules(prompts=4, skip_solved=2), lambda number: number % 4
    >>> add_results(rules, CurriculumState(8), [(2, True), (6, True), (7, False)], row_of).solved
    {2: Solved(times=2, last=1)}
    """
    if not rules.skip_solved:
        return state
    changed: dict[int, Solved] = {}
    for number, right in results:
        row = row_of(number)
        before = changed.get(row, state.solved.get(row, Solved(0, 0)))
        changed = {**changed, row: Solved(before.times + 1 if right else 0, number // rules.prompts)}
    after = {**state.solved, **changed}
    return evolve(state, solved={row: solved for row, solved in after.items() if solved.times})


@frozen(kw_only=True)
class Resampling:
    """A step under way: the numbers of its groups, with and without two different rewards, and the rounds that may follow.

    Source: dynamic sampling, Yu et al. 2025, arXiv:2503.14476, section 3.2.
    """

    groups: int
    rounds: int
    kept: tuple[int, ...] = ()
    equal: tuple[int, ...] = ()


def resampling(groups: int, extra: int) -> Resampling:
    """Return a step before its first round, which at most `extra` rounds follow. Raises: ChoiceError.

    >>> missing(resampling(4, 0))
    4
    """
    for name, number, least in (("groups", groups, 1), ("extra", extra, 0)):
        if number < least:
            remedy = "change it"
            raise ChoiceError(message(f"resampling: {name}", got=number, wanted=f"at least {least}", remedy=remedy))
    return Resampling(groups=groups, rounds=1 + extra)


def missing(step: Resampling) -> int:
    """Return the number of groups to sample in the next round; 0 where the step is complete or has no round left.

    >>> missing(Resampling(groups=3, rounds=1, kept=(1,))), missing(Resampling(groups=3, rounds=0, kept=(1,)))
    (2, 0)
    """
    return step.groups - len(step.kept) if step.rounds else 0


def add_round(step: Resampling, groups: Sequence[tuple[int, bool]]) -> Resampling:
    """Return the step after a round: numbers of its groups, and whether the rewards of each differ.

    >>> step = add_round(resampling(2, 1), [(0, False), (1, True)])
    >>> missing(step), missing(add_round(step, [(2, False)])), batch_of(add_round(step, [(2, False)]))
    (1, 0, (0, 1))
    """
    kept = tuple(number for number, differs in groups if differs)
    equal = tuple(number for number, differs in groups if not differs)
    return evolve(step, rounds=step.rounds - 1, kept=(*step.kept, *kept), equal=(*step.equal, *equal))


def batch_of(step: Resampling) -> tuple[int, ...]:
    """Return the numbers of the step's groups, in order: those whose rewards differ, filled up with the first of the others.

    >>> batch_of(Resampling(groups=3, rounds=0, kept=(1, 4), equal=(0, 2, 3)))
    (0, 1, 4)
    """
    return tuple(sorted((*step.kept, *step.equal)[: step.groups]))
