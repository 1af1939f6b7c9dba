"""purestep sweep --halving: members that go on are those that never stopped, and a stopped sweep ends as one that never was.

Each law takes the function that runs a sweep, holds for the library's, and fails for a mutant of it. Scores are digests of the
parameters, so that equal scores are equal parameters, bit for bit.
"""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core.errors import CheckpointError, ChoiceError
from purestep.core.record import replace, take
from purestep.runtime.cli.main import main
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.recipes import sweep_members, sweep_trials
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.sweep_results import Trial, mean_score, rank_settings
from purestep.runtime.recipes.sweep_settings import Sweep, axis_of
from purestep.runtime.recipes.sweep_stages import Stage, rungs
from purestep.runtime.runs.arguments import changed

from .test_sweep import SMALL as LEAST

SMALL: dict[str, Any] = {**LEAST, "steps": 128}  # four chunks
AXES = (axis_of("learning_rate", "0.001,0.003,0.01,0.03"),)
Sweeping = Callable[..., Iterator[Trial]]  # as `trials`


def digests(episodes: Any, state: Any) -> list[float]:
    del episodes
    bits = state.learner.params.view(torch.int32).to(torch.int64)
    digest = (bits * torch.arange(1, bits.shape[1] + 1)).sum(-1) % 10_007
    return [float(one) for one in digest]


@pytest.fixture(autouse=True)
def scored_by_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_members, "greedy_scores", digests)


def swept(trials: Sweeping, run: Path, *, changes: Any = (), **options: Any) -> Iterator[Trial]:
    given = changed(RECIPES["ppo"].defaults(), {**SMALL, **dict(changes)})
    return trials(given, AXES, Sweep(**{"seeds": 1, **options}), run, notice=lambda text: None)


# --- laws ---


def one_rung_is_the_plain_sweep(trials: Sweeping, folder: Path) -> None:
    plain = list(swept(trials, folder / "plain"))
    assert list(swept(trials, folder / "halved", halving=5)) == plain
    assert (folder / "halved" / "sweep.jsonl").read_bytes() == (folder / "plain" / "sweep.jsonl").read_bytes()


def members_that_go_on_are_those_that_never_stopped(
    trials: Sweeping, folder: Path, members: int, seeds: int, backend: str = "none"
) -> None:
    """In parts of one whatever the lowering; in larger ones where a result does not depend on its position in a batch."""
    options: dict[str, Any] = {"members": members, "seeds": seeds, "changes": {"backend": backend}}
    plain = {(one.point["learning_rate"], one.seed): one for one in swept(trials, folder / "plain", **options)}
    halved = list(swept(trials, folder / "halved", halving=2, **options))
    assert [sum(one.rung == rung for one in halved) for rung in (1, 2, 3)] == [4 * seeds, 2 * seeds, seeds]
    for one in halved:
        alone = plain[one.point["learning_rate"], one.seed]
        assert one.curve == alone.curve[: len(one.curve)]
        assert one.rung < 3 or (one.score, one.curve) == (alone.score, alone.curve)


def the_best_of_a_rung_goes_on(trials: Sweeping, folder: Path) -> None:
    halved = list(swept(trials, folder / "h", seeds=2, halving=2))
    for rung in (1, 2):
        best = rank_settings([one for one in halved if one.rung == rung])[0]
        assert best.mean() == mean_score(best.scores)
        assert [one.seed for one in halved if one.rung == rung + 1 and one.point == best.point] == [0, 1]


def a_stopped_sweep_ends_as_one_that_never_stopped(trials: Sweeping, folder: Path) -> None:
    whole = list(swept(trials, folder / "whole", halving=2, rungs=2))
    rows = (folder / "whole" / "sweep.jsonl").read_bytes()
    assert {path.name for path in (folder / "whole").iterdir()} == {"sweep.json", "sweep.jsonl"}
    for done in range(1, len(whole)):
        part = swept(trials, folder / str(done), halving=2, rungs=2)
        first = [next(part) for _ in range(done)]
        part.close()  # type: ignore[attr-defined]
        assert first == whole[:done]
        assert list(swept(trials, folder / str(done), halving=2, rungs=2)) == whole
        assert (folder / str(done) / "sweep.jsonl").read_bytes() == rows


@pytest.mark.slow
def test_a_factor_above_the_settings_gives_the_plain_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_rung_is_the_plain_sweep(sweep_trials.trials, tmp_path)
    two = lambda axes, options, chunks: (Stage(4, 2), Stage(1, 4)) if options.halving else (Stage(4, 4),)  # noqa: E731
    monkeypatch.setattr(sweep_trials, "stages", two)
    with pytest.raises(AssertionError):
        one_rung_is_the_plain_sweep(sweep_trials.trials, tmp_path / "mutant")


@pytest.mark.slow
def test_compiled_members_go_on_from_their_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members_that_go_on_are_those_that_never_stopped(sweep_trials.trials, tmp_path, 3, 3, "inductor")


@pytest.mark.parametrize(
    ("members", "seeds"),
    [
        pytest.param(1, 1, marks=pytest.mark.slow),
        (2, 2),
        pytest.param(2, 3, marks=pytest.mark.slow),
    ],
)
def test_members_go_on_from_their_states(
    members: int, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_other_keys(states: Any, index: torch.Tensor) -> Any:
        own = take(states, index)
        return replace(own, state=replace(own.state, key=own.state.key ^ 1))

    members_that_go_on_are_those_that_never_stopped(sweep_trials.trials, tmp_path, members, seeds)
    monkeypatch.setattr(sweep_trials, "take", with_other_keys)
    with pytest.raises(AssertionError):
        members_that_go_on_are_those_that_never_stopped(sweep_trials.trials, tmp_path / "mutant", members, seeds)


def test_the_best_of_a_rung_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the_best_of_a_rung_goes_on(sweep_trials.trials, tmp_path)
    lowest = lambda scores, number: sorted(sorted(range(len(scores)), key=lambda i: scores[i])[:number])  # noqa: E731
    monkeypatch.setattr(sweep_trials, "survivors", lowest)
    with pytest.raises(AssertionError):
        the_best_of_a_rung_goes_on(sweep_trials.trials, tmp_path / "mutant")


@pytest.mark.slow
def test_a_stopped_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_stopped_sweep_ends_as_one_that_never_stopped(sweep_trials.trials, tmp_path)
    memory: dict[Path, Any] = {}  # states that no process after this one finds

    def forgetful(*given: Any, **named: Any) -> Iterator[Trial]:
        memory.clear()
        return sweep_trials.trials(*given, **named)

    monkeypatch.setattr(single, "save", lambda run, step, tree, keep: memory.update({run: tree}))
    monkeypatch.setattr(sweep_trials, "_saved", lambda run, like: memory[run])
    with pytest.raises(KeyError):
        a_stopped_sweep_ends_as_one_that_never_stopped(forgetful, tmp_path / "mutant")


# --- cases ---


@pytest.mark.slow
def test_a_crash_before_the_rows_of_a_part_or_without_its_states(tmp_path: Path) -> None:
    whole = list(swept(sweep_trials.trials, tmp_path / "whole", halving=2))
    part = swept(sweep_trials.trials, tmp_path / "part", halving=2)
    for _ in range(5):  # all of rung 1, and a part of rung 2, whose states were saved and whose row gets lost
        next(part)
    rows = (tmp_path / "part" / "sweep.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part" / "sweep.jsonl").write_text("".join(rows[:4]) + rows[4][:20])
    assert list(swept(sweep_trials.trials, tmp_path / "part", halving=2)) == whole
    part = swept(sweep_trials.trials, tmp_path / "lost", halving=2)
    for _ in range(4):
        next(part)
    part.close()  # type: ignore[attr-defined]
    (tmp_path / "lost" / "rung_1" / "part_2").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="part_2 is without a checkpoint, wanted states of a rung; bring it back"):
        list(swept(sweep_trials.trials, tmp_path / "lost", halving=2))


@pytest.mark.slow
def test_a_learning_rate_anneals_over_the_whole_run(tmp_path: Path) -> None:
    """The short run has the steps of rung 1, and a learning rate that has fallen to 0 by its end."""
    halved = list(swept(sweep_trials.trials, tmp_path / "halved", halving=2, rungs=2, members=1))
    short = list(swept(sweep_trials.trials, tmp_path / "short", members=1, changes={"steps": 64}))
    assert all(one.score != other.score for one, other in zip(halved[:4], short, strict=True))


def test_budgets_and_numbers_of_rungs() -> None:
    for settings in range(1, 30):
        for factor in (2, 3, 4):
            planned = rungs(settings, 1000, factor=factor)
            assert planned[0].settings == settings
            assert planned[-1].chunks == 1000
            assert 1 <= planned[-1].settings < factor
            for one, following in pairwise(planned):
                assert following.settings == one.settings // factor
                assert 0 <= following.chunks - factor * one.chunks < factor
    assert [one.settings for one in rungs(100, 20, factor=3, number=2)] == [100, 33]
    with pytest.raises(ChoiceError, match="--rungs is 6, wanted at most 5 for 100 settings, of which 1/3 go on"):
        rungs(100, 1000, factor=3, number=6)
    with pytest.raises(
        ChoiceError, match="first of 5 rungs is 20/81 of a chunk, wanted one chunk or more; give --rungs 3"
    ):
        rungs(100, 20, factor=3)


def test_the_command_names_the_rungs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "reinforce", "--learning-rate=log:1e-3:1e-2:4", "--gamma", "0.9,0.99", "--seeds", "1"]
    shared = ["--steps=96", "--envs", "2", "--horizon", "16", "--hidden", "4", "--backend", "none"]
    run = ["--halving", "3", "--run", str(tmp_path / "sweep")]
    assert main([*words, *shared, *run]) == 0
    out, said = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].endswith("mean return  lowest  highest  seeds  rung")
    assert [line.split()[-1] for line in lines[1:9]] == ["2"] * 2 + ["1"] * 6
    assert "rungs: 8 settings to 32 steps, 2 settings to 96 steps" in said
    assert "--halving" not in lines[-1]
    assert (tmp_path / "sweep" / "sweep.png").exists()


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a sweep that was stopped goes on with another number."""
    monkeypatch.setattr(sweep_trials, "PART", 2)
    advanced, seen = sweep_members.Members._advanced, set[str]()

    def recorded(members: Any, cohort: Any) -> Any:
        seen.add(threading.current_thread().name.rpartition("_")[2])
        time.sleep(0.05)  # longer than the pool takes to begin another thread
        return advanced(members, cohort)

    monkeypatch.setattr(sweep_members.Members, "_advanced", recorded)

    def run(name: str, threads: int) -> Iterator[Trial]:
        changes = {"backend": "inductor", "threads": threads}
        return swept(sweep_trials.trials, tmp_path / name, members=4, seeds=2, halving=2, changes=changes)

    one = list(run("one", 1))
    assert seen == {"MainThread", "0"}  # the first call, and a pool of one
    assert list(run("two", 2)) == one
    assert seen == {"MainThread", "0", "1"}
    part = run("part", 2)
    assert [next(part) for _ in range(3)] == one[:3]
    part.close()  # type: ignore[attr-defined]
    assert list(run("part", 1)) == one
