"""What the staleness benchmark is made of: worlds played by the weights it says, methods that agree without lag, its words."""

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from purestep.algorithms.decoupled_ppo import lagging
from purestep.core import keys
from purestep.core.record import replace, take
from purestep.core.tree import leaves
from purestep.runtime.population import population
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.runs.arguments import changed

UPDATES, SEEDS = 5, 2


@pytest.fixture(scope="module")
def parts(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("parts.staleness_parts")


@pytest.fixture(scope="module")
def figures(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("parts.staleness_figures")


@pytest.fixture(scope="module")
def setup(parts: Any) -> Any:
    """A large learning rate, since the methods differ in what they clip."""
    small = {"envs": 2, "horizon": 8, "hidden": (8,), "epochs": 2, "minibatches": 1, "learning_rate": 0.05}
    arguments = changed(RECIPES["ppo"].defaults(), small)
    return parts.Setup(arguments=arguments, seeds=SEEDS, updates=UPDATES, points=2, episodes=1, longest=3)


def plainly(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Nothing is compiled."""
    return function


class Watched:
    """A part that notes what it is given and what it gives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.given, self.gave = function, list[Any](), list[Any]()

    def __call__(self, *arguments: Any) -> Any:
        result = self.function(*arguments)
        self.given.append(arguments)
        self.gave.append(result)
        return result


Ran = tuple[Any, Watched, Watched]  # a cell, its sampling and its updates


@pytest.fixture(scope="module")
def ran(parts: Any, setup: Any) -> Callable[[str, int], Ran]:
    """A cell of that method and staleness, watched; each is run once."""

    @functools.cache
    def run(method: str, staleness: int) -> Ran:
        ready = parts.parts(setup, compile=plainly, methods=(method,))
        sample, update = Watched(ready.sample), Watched(ready.update[method])
        done = parts.cell(setup, evolve(ready, sample=sample, update={method: update}), method, staleness)
        return done, sample, update

    return run


def bits(got: Any, wanted: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


@pytest.mark.parametrize(("method", "staleness"), [("ppo", 0), ("recomputed", 3), ("interpolated", 3)])
def test_worlds_are_played_by_the_weights_of_so_many_updates_ago(
    ran: Callable[[str, int], Ran], method: str, staleness: int
) -> None:
    done, sample, update = ran(method, staleness)
    history = [update.given[0][0].params, *(learner.params for learner, _ in update.gave)]
    assert len(history) == UPDATES + 1
    assert not any(bits(a, b) for a, b in itertools.pairwise(history))
    for version in range(UPDATES):
        assert bits(sample.given[version][0], history[max(version - staleness, 0)])
        assert bits(update.given[version][0].params, history[version])
        if method == "interpolated":
            assert update.given[version][1].version.unique().tolist() == [max(version - staleness, 0)]
    assert done.updates == (0, 2, 4, 5)
    assert done.returns.shape == (4, SEEDS)


@pytest.mark.parametrize("staleness", [0, 3])
def test_a_cell_is_training_in_one_piece(setup: Any, ran: Callable[[str, int], Ran], staleness: int) -> None:
    """Bit by bit: by a trainer for all seeds, whose own laws say which weights play."""
    _, _, update = ran("interpolated", staleness)
    many = population(setup.trainer(lagging(setup.algorithm("interpolated"), staleness), staleness))
    state = many.init(torch.stack([keys.key(seed) for seed in range(SEEDS)]))
    for learner, _ in update.gave:
        state, _ = many.iterate(state)
        assert bits(learner, state.learner)


def test_without_staleness_the_methods_are_one(parts: Any, ran: Callable[[str, int], Ran]) -> None:
    last = {name: ran(name, 0)[2].gave[-1][0] for name in parts.METHODS}
    assert bits(last["interpolated"], last["ppo"])
    torch.testing.assert_close(last["recomputed"].params, last["ppo"].params, rtol=1e-4, atol=1e-5)


def test_how_far_apart_one_update_leaves_them_is_measured(parts: Any, setup: Any) -> None:
    ready = parts.parts(setup, compile=plainly)
    near = parts.agreement(setup, ready)
    assert near["interpolated"] == 0.0
    assert near["recomputed"] < 1e-4
    other = parts.agreement(
        setup, evolve(ready, update={**ready.update, "recomputed": lambda learner, *_: (learner, {})})
    )
    assert other["recomputed"] > 1e-3


def test_with_staleness_they_are_not(parts: Any, ran: Callable[[str, int], Ran]) -> None:
    last = [ran(name, 3)[2].gave[-1][0].params for name in parts.METHODS]
    assert not any(torch.allclose(a, b, atol=1e-4) for a, b in ((last[0], last[1]), (last[1], last[2])))


def test_seeds_are_apart(ran: Callable[[str, int], Ran]) -> None:
    last = ran("ppo", 0)[2].gave[-1][0].params
    assert not torch.allclose(take(last, 0), take(last, 1))


# --- words ---

Scores = dict[tuple[str, int], list[float]]


def scores(**changes: list[float]) -> Scores:
    """As expected, except for what is given as method_staleness."""
    usual: Scores = {}
    for method, drop in (("ppo", 4.0), ("recomputed", 1.0), ("interpolated", 2.0)):
        for age in (0, 1, 4, 8):
            usual[method, age] = [100.0 - drop * age, 101.0 - drop * age, 99.0 - drop * age]
    for name, values in changes.items():
        method, _, staleness = name.partition("_")
        usual[method, int(staleness)] = values
    return usual


def held(figures: Any, given: Mapping[tuple[str, int], list[float]]) -> list[bool]:
    return [verdict.holds for verdict in figures.verdicts(given)]


def test_the_expected_ordering_is_found_where_it_is(figures: Any) -> None:
    told = figures.verdicts(scores())
    assert [verdict.holds for verdict in told] == [True] * 6
    assert figures.ordering(told) == "the expected ordering appears"
    assert told[1].differences["at 8"].side() == "above 0"


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"recomputed_0": [90.0, 90.5, 89.5]}, [0, 4]),  # other than plain PPO without staleness; then it does not fall
        ({"recomputed_8": [60.0, 61.0, 59.0]}, [1]),
        ({"interpolated_4": [80.0, 81.0, 79.0]}, [2, 5]),
        ({"ppo_4": [96.5, 97.5, 95.5]}, [1, 2, 3]),
        ({"ppo_1": [100.0, 101.0, 99.0]}, [3]),  # a tie is no fall
    ],
)
def test_each_claim_can_be_denied(figures: Any, changes: dict[str, list[float]], broken: list[int]) -> None:
    told = figures.verdicts(scores(**changes))
    assert [number for number, verdict in enumerate(told) if not verdict.holds] == broken
    assert "does not appear" in figures.ordering(told)
    assert all(told[number].claim in figures.ordering(told) for number in broken)
    assert all(": no (" in told[number].line() for number in broken)


def test_of_cells_that_are_not_there_nothing_is_said(figures: Any) -> None:
    assert figures.verdicts({("ppo", 0): [1.0, 2.0]}) == []
    assert "say nothing" in figures.ordering([])
    assert len(figures.verdicts({cell: values for cell, values in scores().items() if cell[1] in (0, 8)})) == 6
    assert len(figures.verdicts({cell: values for cell, values in scores().items() if cell[0] == "ppo"})) == 1
    one_seed = {cell: values[:1] for cell, values in scores().items()}
    assert held(figures, one_seed)[0] is False  # one seed has no interval


def test_an_interval_is_students(figures: Any) -> None:
    mean = figures.mean_of([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * (2.5**0.5) / 5**0.5
    assert (mean.mean, mean.low, mean.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))


def test_cells_become_a_file_a_table_and_a_picture(
    benchmark: Callable[[str], Any], parts: Any, figures: Any, tmp_path: Path
) -> None:
    def made(method: str, age: int) -> Any:
        returns = torch.arange(6, dtype=torch.float64).reshape(3, 2) + age
        seconds = {parts.SAMPLING: 1.0, parts.UPDATE: 2.0, parts.EVALUATION: 0.5}
        return parts.Cell(method, age, (0, 2, 4), returns, {"clip_fraction": 0.25}, seconds, seconds)

    cells = [made(method, age) for age in (0, 1) for method in parts.METHODS]
    written: dict[str, Any] = json.loads(json.dumps(figures.described(cells, 16), allow_nan=False))
    row = written["cells"]["recomputed-1"]
    assert row["curve"]["steps"] == [0, 32, 64]
    assert row["final of each seed"] == [5.0, 6.0]
    assert row["along"]["mean"] == 4.5  # of 3, 4, 5 and 6
    assert set(written["verdicts"]) == {"final", "along"}
    assert figures.at_the_top(cells).endswith("in 0 of 6 cells")
    assert figures.at_the_top([evolve(cells[0], returns=torch.full((1, 2), 500.0))]).endswith("in 1 of 1 cells")
    assert len(figures.table(cells).splitlines()) == 1 + len(cells)
    assert benchmark("parts.staleness_picture").picture(cells, tmp_path / "a.png", 16).stat().st_size > 10_000


def test_any_other_setting_is_a_small_run(benchmark: Callable[[str], Any]) -> None:
    program = benchmark("staleness")
    assert set(program.parse([]).only) == set(program.CELLS)
    assert len(program.CELLS) == 12
    assert program.parse(["--only", "ppo-4", "--seeds", "2"]).only == ["ppo-4"]


def test_a_diverged_run_is_no_result(parts: Any, setup: Any) -> None:
    ready = parts.parts(setup, compile=plainly, methods=("ppo",))

    def spoilt(learner: Any, played: Any, key: Tensor) -> Any:
        after, metrics = ready.update["ppo"](learner, played, key)
        return replace(after, params=after.params * torch.nan), metrics

    with pytest.raises(ArithmeticError, match="ppo at staleness 1: NaN"):
        parts.cell(setup, evolve(ready, update={"ppo": spoilt}), "ppo", 1)
