"""Capacity, ages and strategies: values by hand, the published table, and all of it vmapped and compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from purestep.algorithms import staleness
from purestep.algorithms.staleness import (
    capacity,
    head_staleness,
    head_version,
    proximal_version,
    recompute_due,
    segment_wise,
    standard,
    tail_staleness,
    tail_version,
)
from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.transcript.record import ABSENT
from purestep.properties import check, flags, integers, step_laws

from ...laws.algorithms.staleness import own_aging, staleness_laws

test_laws = check(staleness_laws(), own_aging())


def ages(version: torch.Tensor, mask: torch.Tensor, recomputed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """All that is said of tokens and samples, at version 4."""
    return (
        head_version(version, mask),
        tail_version(version, mask),
        head_staleness(version, mask, 4),
        tail_staleness(version, mask, recomputed),
        standard(version, mask, recomputed, 4, bound=2),
        segment_wise(version, mask, recomputed, 4, bound=2),
        proximal_version(version, recomputed),
        recompute_due(version, mask, 4),
    )


tokens = st.tuples(integers((2, 3), -1, 5), flags((2, 3)), integers((2,), -1, 5))
test_ages_are_a_step = check(step_laws(tokens), ages)


def room(**changes: int) -> int:
    given = {"running": 0, "accepted": 0, "version": 0, "batch": 4, "concurrency": 100, "staleness": 1}
    return capacity(**{**given, **changes})


def test_capacity_by_hand() -> None:
    """AReaL's staleness_manager: min(max(1, concurrency) - running, (staleness + version + 1) max(1, batch) - ...)."""
    assert room() == 8
    assert room(version=3) == 20
    assert room(accepted=12, version=2, running=3) == 1
    assert room(accepted=16, version=2, running=3) == -3  # after a resume with other rules
    assert room(concurrency=5, running=3) == 2
    assert room(concurrency=0) == 1
    assert room(batch=0) == 2
    assert room(staleness=0, running=4) == 0
    assert room(staleness=0, running=4, version=1) == 4


def test_what_was_filtered_is_repaid_once_and_only_in_the_staleness_term() -> None:
    assert room(accepted=8) == 0
    assert room(accepted=8, filtered=3) == 3
    assert room(accepted=8, filtered=3, running=3) == 0
    assert room(accepted=8, filtered=8, concurrency=5) == 5


def test_a_sample_may_be_consumed_later_than_the_formula_says() -> None:
    """Why there is a bound of each sample: the formula allows this run, whose first sample waits for four updates."""
    begun_at, bound = 0, 1
    for version in range(1, 5):
        assert room(batch=1, staleness=bound, version=version, accepted=version, running=1) > 0
    assert 4 - begun_at > bound


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"staleness": -1}, "staleness is -1, wanted 0 or more"),
        ({"version": -1}, "version is -1"),
        ({"running": -2}, "running is -2"),
        ({"accepted": 2, "filtered": 3}, "filtered is 3, wanted at most 2"),
    ],
)
def test_impossible_counts_are_refused(wrong: dict[str, int], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        room(**wrong)


@pytest.mark.parametrize(
    ("version", "current", "stale"),
    [
        (5, 5, False),
        (4, 5, False),
        (3, 5, True),
        (2, 5, True),
        (9, 10, False),
        (8, 10, True),
        (0, 0, False),
        (0, 2, True),
    ],
)
def test_the_table_of_segment_wise_staleness(version: int, current: int, stale: bool) -> None:
    made, mask = torch.full((3,), version), torch.ones(3, dtype=torch.bool)
    never = torch.tensor(ABSENT)
    assert segment_wise(made, mask, never, current, bound=4).item() is stale
    assert standard(made, mask, never, current, bound=4).item() is False


@pytest.mark.parametrize(("bound", "head", "stale"), [(4, 1, False), (4, 0, True), (0, 4, False), (0, 3, True)])
def test_recomputed_samples_are_judged_by_their_head(bound: int, head: int, stale: bool) -> None:
    made = torch.tensor([head, 5, 9])
    mask = torch.tensor([True, True, False])
    assert segment_wise(made, mask, torch.tensor(0), 5, bound=bound).item() is stale


def test_ages_by_hand() -> None:
    version = torch.tensor([[0, 2, 7], [ABSENT, 3, 3], [ABSENT, ABSENT, 4]])
    mask = torch.tensor([[True, True, False], [True, True, True], [True, True, False]])
    assert head_version(version, mask).tolist() == [0, 3, ABSENT]
    assert tail_version(version, mask).tolist() == [2, 3, ABSENT]
    assert head_staleness(version, mask, 4).tolist() == [4, 1, 0]
    assert tail_staleness(version, mask, torch.tensor([2, 3, 4])).tolist() == [0, 0, 0]


def test_a_run_keeps_every_token_at_its_proximal_version() -> None:
    """Five updates; token i is made at version i, and recomputing what is due before each update is enough."""
    made = torch.arange(5)
    held, mask = made.clone(), torch.ones(5, dtype=torch.bool)
    for now in range(5):
        held = torch.where(recompute_due(made, mask & (made <= now), now), now, held)
        assert torch.equal(held[: now + 1], proximal_version(made[: now + 1], now))
    assert held.tolist() == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("name", ["head_version", "tail_version"])
def test_wrong_tensors_are_refused(name: str) -> None:
    function = getattr(staleness, name)
    with pytest.raises(ShapeError, match=rf"{name}: mask is \[2\]"):
        function(torch.zeros(3, dtype=torch.int64), torch.ones(2, dtype=torch.bool))
    with pytest.raises(DtypeError, match=r"mask is torch.int64"):
        function(torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    with pytest.raises(DtypeError, match=rf"{name}: version is torch.float32"):
        function(torch.zeros(3), torch.ones(3, dtype=torch.bool))


def test_one_compiled_graph(compiled: Callable[..., Any]) -> None:
    drawn = (
        torch.tensor([[0, 2, 7], [ABSENT, 3, 3]]),
        torch.tensor([[True, True, False]] * 2),
        torch.tensor([0, ABSENT]),
    )
    for got, wanted in zip(compiled(ages)(*drawn), ages(*drawn), strict=True):
        assert torch.equal(got, wanted)
