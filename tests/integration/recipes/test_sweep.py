"""purestep sweep: a member is the run that it would be alone, a stopped sweep goes on, and changed numbers compile nothing."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.core.errors import CheckpointError
from purestep.runtime.cli.main import main
from purestep.runtime.compile import artefact_name
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.pipeline import actor_critic_pipeline
from purestep.runtime.recipes.shared_settings import loop_of
from purestep.runtime.recipes.sweep_results import Trial, rank_settings
from purestep.runtime.recipes.sweep_settings import Sweep, axis_of, points
from purestep.runtime.recipes.sweep_trials import trials
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import folded

SMALL: dict[str, Any] = {
    "steps": 64,
    "envs": 2,
    "horizon": 16,
    "hidden": (4,),
    "epochs": 1,
    "minibatches": 2,
    "backend": "none",
}
AXES = (axis_of("learning_rate", "0.001,0.01"), axis_of("gamma", "0.9,0.99"))


def settings(**more: Any) -> Any:
    return changed(RECIPES["ppo"].defaults(), {**SMALL, **more})


def silent(text: str) -> None:
    del text


def swept(run: Path, **options: Any) -> list[Trial]:
    return list(trials(settings(), AXES, Sweep(**{"seeds": 2, "episodes": 2, **options}), run, notice=silent))


def test_members_are_the_runs_they_would_be_alone(tmp_path: Path) -> None:
    found = swept(tmp_path / "sweep", members=8)
    assert [(one.point["learning_rate"], one.point["gamma"], one.seed) for one in found[:3]] == [
        (0.001, 0.9, 0),
        (0.001, 0.9, 1),
        (0.001, 0.99, 0),
    ]
    chosen = found[-1]
    own: dict[str, Any] = {**SMALL, **chosen.point, "seed": chosen.seed}
    alone = runs.train("ppo", tmp_path / "alone", **own, notice=silent)
    rows = [json.loads(line) for line in (tmp_path / "alone" / "metrics.jsonl").read_text().splitlines()]
    assert alone.loop.iteration == len(rows) == 2
    returns = {row["steps"]: row["episode_return"] for row in rows if row["episodes"]}
    assert returns
    assert dict(chosen.curve) == pytest.approx(returns)


def test_a_run_that_became_nan_is_named(tmp_path: Path) -> None:
    (tmp_path / "nan.py").write_text(
        "import attrs, torch\nimport purestep as ps\nCART = ps.make('cartpole')\n"
        "def step(params, state, action, key):\n"
        "    after, told = CART.step(params, state, action, key)\n"
        "    late = after.elapsed > 3\n"
        "    return after, ps.replace(told, reward=torch.where(late, torch.nan, told.reward))\n"
        "NAN = attrs.evolve(CART, step=step, hoisted=None)\n"
    )
    said: list[str] = []
    numbers = settings(env=f"{tmp_path / 'nan.py'}:NAN")
    axes = (axis_of("learning_rate", "0.001,0.01"),)
    found = list(trials(numbers, axes, Sweep(seeds=1, episodes=2), tmp_path / "sweep", notice=said.append))
    assert [one.score for one in found] == [-math.inf, -math.inf]
    line = "the run of learning_rate 0.01, seed 0 became NaN or infinite after step 0; it counts as the worst"
    assert line in said


@pytest.mark.parametrize("name", ["sweep.json", "sweep.jsonl"])
@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", '{"point": 1}\n', "\\xff\n", "FIFO"])
def test_a_file_of_a_sweep_that_is_damaged_is_refused_at_once(name: str, text: str, tmp_path: Path) -> None:
    run = tmp_path / "sweep"
    trial = trials(settings(), AXES, Sweep(seeds=1, episodes=2), run, notice=silent)
    if name == "sweep.jsonl":
        next(trial)
    else:
        run.mkdir()
    trial.close()  # type: ignore[attr-defined]
    (run / name).unlink(missing_ok=True)
    if text == "FIFO":
        os.mkfifo(run / name)
    else:
        (run / name).write_text(text)
    if (name, text) == ("sweep.jsonl", ""):
        return
    with pytest.raises(CheckpointError):
        next(trials(settings(), AXES, Sweep(seeds=1, episodes=2), run, notice=silent))


def test_a_sweep_that_was_stopped_goes_on_behind_its_last_part(tmp_path: Path) -> None:
    whole = swept(tmp_path / "whole", members=3, seeds=1)
    part = trials(settings(), AXES, Sweep(seeds=1, episodes=2, members=3), tmp_path / "part", notice=silent)
    first = [next(part) for _ in range(3)]
    part.close()  # type: ignore[attr-defined]
    with (tmp_path / "part" / "sweep.jsonl").open("a") as file:
        file.write('{"point": {"lear')  # as a kill leaves it
    assert first == whole[:3]
    assert swept(tmp_path / "part", members=3, seeds=1) == whole
    assert swept(tmp_path / "part", members=3, seeds=1) == whole
    with pytest.raises(CheckpointError, match="is another sweep, wanted this one"):
        swept(tmp_path / "part", members=2, seeds=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(CheckpointError, match="is not empty, wanted a new folder"):
        swept(tmp_path / "mine")


def test_drawn_settings_lie_within_their_ranges() -> None:
    axes = axis_of("learning_rate", "log:1e-4:1e-2"), axis_of("gamma", "0.9,0.99"), axis_of("clip", "linear:0.1:0.3")
    drawn = points(axes, Sweep(samples=200))
    assert drawn == points(axes, Sweep(samples=200)) != points(axes, Sweep(samples=200, draw=1))
    rates = [point["learning_rate"] for point in drawn]
    assert 1e-4 <= min(rates) < 2e-4 < 5e-3 < max(rates) <= 1e-2
    assert 0.3 < sum(rate < 1e-3 for rate in rates) / 200 < 0.7
    assert {point["gamma"] for point in drawn} == {0.9, 0.99}
    assert all(0.1 <= point["clip"] <= 0.3 for point in drawn)


def test_a_setting_with_a_member_that_diverged_is_last() -> None:
    bad, good = {"gamma": 0.9}, {"gamma": 0.5}
    rows = rank_settings([Trial(bad, 0, 500.0, ()), Trial(bad, 1, float("-inf"), ()), Trial(good, 0, 1.0, ())])
    assert [row.point for row in rows] == [good, bad]


def test_the_command_prints_the_best_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "reinforce", "--learning-rate=log:1e-3:1e-2:2", "--seeds", "1", "--episodes", "2"]
    shared = ["--steps=64", "--envs", "2", "--horizon", "16", "--hidden", "4", "--backend", "none"]
    assert main([*words, *shared, "--run", str(tmp_path / "sweep")]) == 0
    out = capsys.readouterr().out
    assert "mean return  lowest  highest  seeds" in out
    best = out.splitlines()[-1]
    assert best.startswith(
        "best: purestep train reinforce --steps 64 --envs 2 --horizon 16 --hidden 4 --backend none --lea"
    )
    assert (tmp_path / "sweep" / "sweep.png").exists()
    rows = [json.loads(line) for line in (tmp_path / "sweep" / "sweep.jsonl").read_text().splitlines()]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--gamma", "0.9,1.5"], "--gamma is 1.5, wanted a number from 0.0 to 1.0"),
        (["--gamma", "log:0:1"], "--gamma is 'log:0:1', wanted values"),
        (["--learning-rate", "log:1e-2:1e-4"], "--learning-rate is 'log:1e-2:1e-4', wanted values"),
        (["--gamma", "linear:1:0:3"], "--gamma is 'linear:1:0:3', wanted values"),
        (["--gamma", "0.9,x"], "--gamma is '0.9,x', wanted values"),
        (["--hidden", "8,16"], "purestep sweep: number is '--hidden', wanted one of"),
        ([], "purestep sweep: numbers is none, wanted one or more"),
        (["--gamma", "0.9,0.99", "--seeds", "0"], "--seeds is 0, wanted at least 1"),
        (["--gamma", "linear:0.9:1.5"], "--gamma is 1.5, wanted a number from 0.0 to 1.0"),
        (["--gamma", "0.9,0.99", "--halving", "1"], "--halving is 1, wanted at least 2"),
        (["--gamma", "0.9,0.99", "--rungs", "2"], "--rungs is without --halving, wanted with it; add it"),
        (["--gamma", "0.9,0.99", "--halving", "2", "--rungs", "3"], "--rungs is 3, wanted at most 2 for 2 settings"),
        (
            ["--gamma", "linear:0.9:0.99:8", "--halving", "2", "--steps", "1024"],
            "--halving 2: first of 4 rungs is 2/8 of a chunk, wanted one chunk or more; give --rungs 2, or more --steps",
        ),
        (["--gamma", "0.9,0.99", "--sampler", "tpe"], "--sampler is 'tpe', wanted one of ['optuna', 'random']"),
        (["--gamma", "0.9,0.99", "--sampler", "optuna"], "--sampler optuna is without a range, wanted one or more"),
        (
            ["--gamma", "linear:0.9:0.99", "--sampler", "optuna", "--halving", "2"],
            "--sampler optuna is with --halving, wanted without",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_line(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "ppo", *words, "--run", str(tmp_path / "sweep")]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert fault in errors[0]
    assert not (tmp_path / "sweep").exists()


# --- artefacts ---


def name_of(**more: Any) -> str:
    arguments = settings(**{"steps": 100_000, **more})
    pipeline = actor_critic_pipeline(arguments)
    chunk = folded(pipeline.trainer, loop_of(arguments.experience, arguments.process).chunk)
    return artefact_name(chunk, "inductor", pipeline.trainer.init(keys.key(0)))


NUMBERS = {
    "learning_rate": 0.123,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "clip": 0.1,
    "value_coefficient": 0.1,
    "entropy_coefficient": 0.1,
    "max_gradient_norm": 0.1,
    "steps": 200_000,
    "seed": 5,
}
OTHERS: dict[str, Any] = {
    "epochs": 2,
    "hidden": (8,),
    "envs": 4,
    "activation": "relu",
    "anneal": False,
    "value_clip": 0.5,
    "env": "acrobot",
    "advantages": "batch",
}


def test_one_artefact_serves_all_numbers() -> None:
    usual = name_of()
    assert {name: name_of(**{name: value}) for name, value in NUMBERS.items()} == dict.fromkeys(NUMBERS, usual)
    assert len({usual, *(name_of(**{name: value}) for name, value in OTHERS.items())}) == 1 + len(OTHERS)
    assert name_of(value_clip=0.5) == name_of(value_clip=0.25)


@pytest.mark.slow
def test_changed_numbers_compile_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run loads the first one's program, and ends with the bits of one without a compiled form to load."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    compiled: dict[str, Any] = {**SMALL, "backend": "inductor"}
    runs.train("ppo", tmp_path / "one", **compiled, notice=told.append)
    other: dict[str, Any] = {"learning_rate": 0.01, "gamma": 0.9, "clip": 0.1}
    loaded = runs.train("ppo", tmp_path / "two", **compiled, **other, notice=told.append)
    assert [text.split(" ")[0] for text in told if "program" in text] == ["compiling", "loading"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    anew = runs.train("ppo", tmp_path / "three", **compiled, **other, notice=silent)
    one, two = (runs.restore_run(tmp_path / name).state.learner.params for name in ("two", "three"))
    assert torch.equal(one, two)
    assert loaded.loop == anew.loop


@pytest.mark.slow
def test_all_parts_of_a_sweep_share_their_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    options, given = Sweep(seeds=2, episodes=2, members=3), changed(settings(), {"backend": "inductor"})
    one, two = (list(trials(given, AXES, options, tmp_path / name, notice=told.append)) for name in ("one", "two"))
    programs = [text.split(",")[0].split(" ", 1) for text in told if "program" in text]
    once = ["training program", "evaluation program"]
    assert programs == [["compiling", f"the {name}"] for name in once] + [
        ["loading", f"the compiled {name}"] for name in once
    ]
    assert len(one) == 8
    assert one == two
