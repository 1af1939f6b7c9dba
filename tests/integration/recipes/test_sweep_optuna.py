"""purestep sweep --sampler optuna: the settings follow from the seed and the scores, also in a sweep that was stopped."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from purestep.core.errors import CheckpointError, ChoiceError
from purestep.runtime.effects.optuna_study import proposals
from purestep.runtime.recipes import sweep_members, sweep_settings, sweep_trials
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.sweep_results import Trial
from purestep.runtime.recipes.sweep_settings import Point, Sweep, axis_of
from purestep.runtime.runs.arguments import changed

from .test_sweep import SMALL as LEAST

AXES = axis_of("learning_rate", "log:1e-5:1e-1"), axis_of("gamma", "0.9,0.99")
SMALL: dict[str, Any] = {**LEAST, "steps": 16, "horizon": 8}
Asked = list[tuple[Point, float]]


@pytest.fixture(autouse=True)
def scored_by_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = lambda episodes, state: state.learner.params.double().sum(-1).tolist()  # noqa: E731
    monkeypatch.setattr(sweep_members, "greedy_scores", scores)


def swept(run: Path, **options: Any) -> Iterator[Trial]:
    given = changed(RECIPES["ppo"].defaults(), SMALL)
    usual = {"seeds": 2, "samples": 14, "members": 8, "sampler": "optuna"}
    return sweep_trials.trials(given, AXES, Sweep(**{**usual, **options}), run, notice=lambda text: None)


def asked(batches: Sequence[int], score: Callable[[Point], float], seed: int = 0) -> Asked:
    proposed, found = proposals(AXES, batches, seed=seed), list[tuple[Point, float]]()
    settings = next(proposed)
    for number in range(len(batches)):
        found += [(point, score(point)) for point in settings]
        if number + 1 < len(batches):
            settings = proposed.send([score(point) for point in settings])
    return found


def hill(point: Point) -> float:
    """The best learning rate is 1e-3."""
    return -((math.log10(point["learning_rate"]) + 3.0) ** 2) - (point["gamma"] == 0.99)


def test_settings_follow_from_the_seed_and_the_scores() -> None:
    first = asked((5, 5, 5), hill)
    assert first == asked((5, 5, 5), hill)
    assert first != asked((5, 5, 5), hill, seed=1)
    other = asked((5, 5, 5), lambda point: -hill(point))
    assert [point for point, _ in other[:10]] == [point for point, _ in first[:10]]  # of the first ten none is learned
    assert [point for point, _ in other[10:]] != [point for point, _ in first[10:]]
    assert all(1e-5 <= point["learning_rate"] <= 1e-1 and point["gamma"] in (0.9, 0.99) for point, _ in first)
    assert len({point["learning_rate"] for point, _ in first}) == 15  # also those of a batch differ


def test_later_settings_are_better_also_where_some_diverge() -> None:
    def diverging(point: Point) -> float:
        return hill(point) if point["learning_rate"] < 0.03 else -math.inf

    for seed in range(3):
        found = [max(score, -9.0) for _, score in asked((4,) * 10, diverging, seed)]
        assert fmean(found[20:]) > fmean(found[:10])


def a_stopped_sweep_ends_as_one_that_never_stopped(folder: Path) -> None:
    whole = list(swept(folder / "whole"))
    assert len(whole) == 28
    for done in (8, 16, 24):
        part = swept(folder / str(done))
        assert [next(part) for _ in range(done)] == whole[:done]
        part.close()  # type: ignore[attr-defined]
        assert list(swept(folder / str(done))) == whole
        assert (folder / str(done) / "sweep.jsonl").read_bytes() == (folder / "whole" / "sweep.jsonl").read_bytes()


def test_a_stopped_sweep_asks_for_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_stopped_sweep_ends_as_one_that_never_stopped(tmp_path)

    kept, known = sweep_trials._kept, [0]

    def counted(run: Path, recipe: str, plan: Any) -> list[Trial]:
        rows = kept(run, recipe, plan)
        known[0] = len(rows)
        return rows

    def untold(axes: Any, batches: Any, *, seed: int) -> Generator[Any, Sequence[float], None]:
        """A study that is not told what was trained before the sweep was stopped."""
        inner, left = proposals(axes, batches, seed=seed), known[0]
        settings = next(inner)
        for batch in batches[1:]:
            scores = yield settings
            settings = inner.send([0.0] * len(scores) if left > 0 else scores)
            left -= 2 * batch
        yield settings

    monkeypatch.setattr(sweep_trials, "_kept", counted)
    monkeypatch.setattr(sweep_trials, "proposals", untold)
    with pytest.raises((AssertionError, CheckpointError)):
        a_stopped_sweep_ends_as_one_that_never_stopped(tmp_path / "mutant")


def test_a_value_is_the_mean_over_the_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Sequence[float]] = []

    def noted(axes: Any, batches: Any, *, seed: int) -> Generator[Any, Sequence[float], None]:
        inner = proposals(axes, batches, seed=seed)
        settings = next(inner)
        for _ in batches[1:]:
            told.append((yield settings))
            settings = inner.send(told[-1])
        yield settings

    monkeypatch.setattr(sweep_trials, "proposals", noted)
    found = list(swept(tmp_path / "sweep", samples=5, members=5))
    assert [one.seed for one in found] == [0, 1] * 5
    assert [len(scores) for scores in told] == [2, 2]
    assert told[0][1] == fmean(one.score for one in found[2:4])


def test_rows_of_other_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(swept(tmp_path / "sweep", samples=2))
    other = lambda axes, batches, seed: proposals(axes, batches, seed=seed + 1)  # noqa: E731
    monkeypatch.setattr(sweep_trials, "proposals", other)
    with pytest.raises(
        CheckpointError, match="is of other settings, wanted those of this sweep; use the version of optuna"
    ):
        list(swept(tmp_path / "sweep", samples=2))


def test_options_that_cannot_be_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = "tpe"
    with pytest.raises(ChoiceError, match="--sampler is 'tpe', wanted one of"):
        Sweep(sampler=wrong).check(AXES)
    Sweep(sampler="optuna").check(AXES)
    monkeypatch.setattr(sweep_settings, "find_spec", lambda name: None)
    with pytest.raises(ChoiceError) as absent:
        Sweep(sampler="optuna").check(AXES)
    assert str(absent.value) == (
        "--sampler optuna: the library optuna is absent, wanted installed; pip install 'purestep[optuna]'"
    )
