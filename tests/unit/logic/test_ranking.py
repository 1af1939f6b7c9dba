"""Ranks, the means made of them, and average precision, against their definitions in plain Python."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.logic.ranking import TIES, average_precision, ranking, ranks
from purestep.runtime.logic.rank import Scored, ranking_result

ROOT = Path(__file__).parents[3]
SCORES = st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=7)
Rows = list[tuple[int, bool]]


def told(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and presence; candidate 0 is always there."""
    scores = torch.tensor([float(score) for score, _ in rows])
    return scores, torch.tensor([True, *(present for _, present in rows[1:])])


def better_and_equal(rows: Rows) -> tuple[int, int]:
    own, others = rows[0][0], [score for score, present in rows[1:] if present]
    return sum(score > own for score in others), sum(score == own for score in others)


@settings(max_examples=100)
@given(rows=SCORES, seed=st.integers(0, 1000))
def test_ranks_with_ties(rows: Rows, seed: int) -> None:
    """The rank among all orders of equal scores: the best of them, the worst, and the mean of these two."""
    better, equal = better_and_equal(rows)
    best, worst = better + 1, better + equal + 1
    got = {name: float(ranks(*told(rows), ties=name, key=keys.key(seed))) for name in TIES}
    assert got["optimistic"] == best
    assert got["pessimistic"] == worst
    assert got["realistic"] == (best + worst) / 2
    assert got["random"] in range(best, worst + 1)


def test_random_ranks_are_uniform() -> None:
    """Three equally good ones: four ranks, each with probability 1/4, within five standard deviations."""
    count = 4096
    scores = torch.tensor([1.0, 1.0, 2.0, 1.0, 0.0, 1.0]).expand(count, 6)
    got = ranks(scores, torch.ones_like(scores, dtype=torch.bool), "random", keys.key(3))
    counts = torch.bincount(got.to(torch.int64), minlength=6).tolist()
    assert counts[:2] == [0, 0]
    assert sum(counts) == count
    assert len(counts) == 6
    assert all(abs(number - count / 4) < 5 * math.sqrt(count * 3 / 16) for number in counts[2:])


def test_one_key_ranks_a_batch_each_on_its_own() -> None:
    scores = torch.zeros(200, 3)
    got = ranks(scores, torch.ones(200, 3, dtype=torch.bool), "random", keys.key(0))
    assert set(got.tolist()) == {1.0, 2.0, 3.0}


def test_unknown_ties_are_refused() -> None:
    with pytest.raises(ChoiceError, match="realistic"):
        ranks(torch.zeros(2), torch.ones(2, dtype=torch.bool), "realist")


@given(rows=st.lists(st.lists(st.integers(1, 14), min_size=3, max_size=3), min_size=1, max_size=3))
def test_means_of_ranks(rows: list[list[int]]) -> None:
    got = ranking(torch.tensor(rows, dtype=torch.float64))
    for number, row in enumerate(rows):
        assert float(got.mean_reciprocal_rank[number]) == pytest.approx(sum(1 / rank for rank in row) / 3)
        for k, hits in ((1, got.hits_at_1), (3, got.hits_at_3), (10, got.hits_at_10)):
            assert float(hits[number]) == pytest.approx(sum(rank <= k for rank in row) / 3)


Labelled = list[tuple[int, bool, bool]]


def precision_over_thresholds(rows: Labelled) -> float:
    """sum over thresholds of (gained recall) x precision, what scores at least the threshold being retrieved."""
    there = [(score, positive) for score, positive, present in rows if present]
    positives = sum(positive for _, positive in there)
    total, recall = 0.0, 0.0
    for threshold in sorted({score for score, _ in there}, reverse=True):
        retrieved = [positive for score, positive in there if score >= threshold]
        gained = sum(retrieved) / positives - recall if positives else 0.0
        total += gained * sum(retrieved) / len(retrieved)
        recall += gained
    return total


@settings(max_examples=300)
@given(rows=st.lists(st.tuples(st.integers(-2, 2), st.booleans(), st.booleans()), min_size=1, max_size=9))
def test_average_precision_is_its_definition(rows: Labelled) -> None:
    columns = [torch.tensor(column) for column in zip(*rows, strict=True)]
    got = average_precision(columns[0].float(), columns[1], columns[2])
    assert float(got) == pytest.approx(precision_over_thresholds(rows))


def test_average_precision_does_not_depend_on_the_order() -> None:
    rows = [(1, True, True), (1, False, True), (2, False, True), (0, True, True), (3, True, False)]
    got = set()
    for order in itertools.permutations(rows):
        columns: list[Any] = [torch.tensor(column) for column in zip(*order, strict=True)]
        got.add(round(float(average_precision(columns[0].float(), columns[1], columns[2])), 9))
    assert got == {round(precision_over_thresholds(rows), 9)}


def test_a_standing_counts_what_is_there() -> None:
    """Two queries with three candidates each; the second has one negative, and its own proof fails."""
    present = torch.tensor([[[True, True, True], [True, True, False]]])
    every = Scored(
        score=torch.tensor([[[-1.0, -2.0, -103.0], [-101.0, -0.5, -1e9]]]),
        present=present,
        proven=torch.tensor([[[True, True, False], [False, True, False]]]),
        depth=torch.tensor([[[2, 3, 4], [4, 2, 0]]]),
        too_long=torch.tensor([[[0, 1, 0], [0, 0, 0]]]),
        too_many=torch.tensor([[[2, 1, 0], [0, 0, 0]]]),
    )
    found = ranking_result(every)
    assert float(found.ranking.mean_reciprocal_rank) == (1 + 1 / 2) / 2
    assert float(found.ranking.hits_at_1) == 0.5
    assert found.average_precision == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 4)
    assert (found.positives, found.negatives) == ((0, 0, 1, 0, 0), (0, 0, 1, 1, 0))
    assert (found.queries, found.candidates, found.too_long, found.too_many) == (2, 3, 1, 2)


@pytest.mark.parametrize("ties", ["optimistic", "pessimistic", "realistic"])
def test_ranks_and_means_are_those_of_pykeens_evaluator(ties: str) -> None:
    """On the same scores, many of them equal; benchmarks/peers/pykeen_ranks.py has asked it."""
    told = json.loads((ROOT / "benchmarks" / "peers" / "pykeen_ranks.json").read_text())
    scores = torch.tensor(told["scores"], dtype=torch.float64)
    assert all(torch.equal(row, row.round()) and len(row.unique()) < len(row) / 2 for row in scores[1::2])
    rank = ranks(scores, torch.ones_like(scores, dtype=torch.bool), ties)
    assert rank.tolist() == told["ranks"][ties]
    means = ranking(rank)
    ours = (means.mean_reciprocal_rank, means.hits_at_1, means.hits_at_3, means.hits_at_10)
    wanted = list(told["metrics"][ties].values())
    assert [float(mean) for mean in ours] == pytest.approx(wanted, rel=1e-6)  # its realistic ranks are float32


def test_nan_never_helps_and_random_ties_need_a_key() -> None:
    nan, yes = float("nan"), torch.ones(3, dtype=torch.bool)
    assert float(ranks(torch.tensor([nan, 1.0, nan]), yes)) == 3.0
    assert float(ranks(torch.tensor([2.0, 1.0, nan]), yes)) == 2.0
    with pytest.raises(ChoiceError, match="ranks: key is none, wanted one for random ties"):
        ranks(torch.zeros(3), yes, "random")
