"""Steps whose groups each earned the same: the cause, reported once, and again after it has changed."""

from collections.abc import Sequence

import pytest

from purestep.core.language.equal_rewards import (
    BY_TASK,
    CONSTANT,
    CUT_OFF,
    FAILED,
    SOLVED,
    STEPS,
    ZERO,
    AttemptSummary,
    Streak,
    cause_of,
    equal_within_groups,
    extended,
)

Step = Sequence[AttemptSummary]


def group(number: int, *rewards: float, solved: bool = False, cut_off: bool = False, error: str = "") -> Step:
    return [AttemptSummary(number, one, solved=solved, cut_off=cut_off, error=error) for one in rewards]


def reports(steps: Sequence[Step]) -> list[str]:
    streak, found = Streak(), []
    for step in steps:
        streak, cause = extended(streak, step)
        found.append(cause)
    return found


@pytest.mark.parametrize(
    ("attempts", "cause"),
    [
        ([*group(0, 0.0, 0.0, error="ValueError: x"), *group(1, 0.0)], FAILED),
        ([*group(0, 0.0, error="ValueError: x"), *group(1, 0.0)], ZERO),
        ([*group(0, 0.0, 0.0, cut_off=True), *group(1, 1.0, cut_off=True)], CUT_OFF),
        ([*group(0, *[0.0] * 9, cut_off=True), *group(1, 0.0)], CUT_OFF),
        ([*group(0, *[0.0] * 8, cut_off=True), *group(1, 0.0)], ZERO),
        (group(0, 1.0, 1.0, solved=True, cut_off=True), SOLVED),
        ([*group(0, 1.0, 1.0, solved=True), *group(1, 1.2, solved=True)], SOLVED),
        ([*group(0, 1.0, 1.0, solved=True), *group(1, 0.0)], BY_TASK),
        (group(0, 0.0, 0.0), ZERO),
        (group(0, -0.1, -0.1), CONSTANT),
        (group(0, 1.0, 1.0), CONSTANT),
    ],
)
def test_the_cause_is_named(attempts: Step, cause: str) -> None:
    assert equal_within_groups(attempts)
    assert cause_of(attempts) == cause


def test_a_failed_attempt_has_no_reward_to_compare() -> None:
    assert equal_within_groups([*group(0, 1.0, 1.0), *group(0, 0.0, error="ValueError: x")])
    assert not equal_within_groups([*group(0, 1.0, 1.0), *group(0, 0.0)])


def test_a_cause_is_reported_once_after_so_many_steps_in_a_row() -> None:
    zero, half = group(0, 0.0, 0.0), group(0, 0.0, 1.0)
    assert reports([zero] * 12) == ["", "", "", "", ZERO, *[""] * 7]
    assert reports([*[zero] * 4, half] * 3) == [""] * 15


def test_it_is_reported_again_after_it_has_changed() -> None:
    zero, one, half = group(0, 0.0, 0.0), group(0, 1.0, 1.0, solved=True), group(0, 0.0, 1.0)
    again = reports([*[zero] * 6, half, *[zero] * 6])
    assert [place for place, cause in enumerate(again) if cause == ZERO] == [4, 11]
    changed = reports([*[zero] * 5, *[one] * 6, *[zero] * 6])
    assert [cause for cause in changed if cause] == [ZERO, BY_TASK, SOLVED]
    assert changed.index(SOLVED) == 4 + STEPS
