"""`--env FILE.py:NAME`: an environment of the user's own in the recipes, imported only where a command names or trusts it."""

import json
from pathlib import Path
from typing import Any

import pytest

from purestep.runtime.cli.main import main
from purestep.runtime.runs import run as runs

BOAT = """
import torch
import purestep as ps
from purestep import keys

SPEED = 0.2


def reset(wind, key):
    place = 2 * keys.uniform(key) - 1
    return place, ps.first(place[None])


def step(wind, place, action, key):
    place = place + SPEED * (action - 1) + wind * keys.normal(key)
    ps.probe("drift", place.abs())
    return place, ps.following(place[None], -place.abs(), place.abs() > 2)


BOAT = ps.time_limit(ps.Env(torch.tensor(0.05), reset, step, ps.Box(-9.0, 9.0, (1,)), ps.Discrete(3)), 20)
POLE = ps.make("cartpole")
"""
SMALL: dict[str, Any] = {"steps": 64, "envs": 2, "horizon": 16, "hidden": (4,), "minibatches": 2, "backend": "none"}
WORDS = ["--steps=64", "--envs=2", "--horizon=16", "--hidden", "4", "--backend", "none"]


@pytest.fixture
def boat(tmp_path: Path) -> Path:
    path = tmp_path / "worlds" / "boat.py"
    path.parent.mkdir()
    path.write_text(BOAT)
    return path


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_it_is_trained_like_one_of_puresteps_own(tmp_path: Path, boat: Path) -> None:
    numbers: dict[str, Any] = {"learning_rate": 2e-3, "gamma": 0.98, "gae_lambda": 0.9}  # cartpole's defaults
    runs.train("ppo", tmp_path / "own", env=f"{boat}:POLE", **SMALL, **numbers, notice=runs.silent)
    runs.train("ppo", tmp_path / "named", env="cartpole", **SMALL, notice=runs.silent)
    assert metrics(tmp_path / "own") == metrics(tmp_path / "named") != []


def test_it_is_imported_only_by_commands_that_name_or_trust_it(
    tmp_path: Path, boat: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(boat.parent)
    assert main(["train", "ppo", "--env", "boat.py:BOAT", *WORDS, "--minibatches=2", "--episodes", "2"]) == 0
    run = boat.parent / "runs" / "BOAT-ppo-0"
    assert json.loads((run / "arguments.json").read_text())["env"] == f"{boat}:BOAT"
    monkeypatch.chdir(tmp_path)
    for command in ("evaluate", "resume"):
        capsys.readouterr()
        assert main([command, str(run)]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"is a run that calls {boat}:BOAT" in said
        assert said.endswith(f"if you trust it: purestep {command} {run} --trust")
        assert main([command, str(run), "--trust", "--episodes", "2"]) == 0
    boat.write_text(BOAT.replace("SPEED = 0.2", "SPEED = 0.3"))
    assert main(["resume", str(run), "--trust"]) == 1
    assert "is a run on other files, wanted the same" in capsys.readouterr().err


def test_what_it_probes_becomes_metrics(tmp_path: Path, boat: Path) -> None:
    runs.train("a2c", tmp_path / "run", env=f"{boat}:BOAT", probes=("drift",), **_without("minibatches"))
    rows = metrics(tmp_path / "run")
    assert rows
    assert all(0.0 <= row["drift_min"] <= row["drift_mean"] <= row["drift_max"] <= 3.0 for row in rows)


def test_a_sweep_goes_on_with_the_same_file_alone(
    tmp_path: Path, boat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "reinforce", "--env", f"{boat}:BOAT", "--learning-rate", "1e-3,1e-2", "--seeds", "1", *WORDS]
    words += ["--episodes", "2", "--run", str(tmp_path / "sweep")]
    assert main(words) == 0
    assert main(words) == 0
    boat.write_text(BOAT.replace("SPEED = 0.2", "SPEED = 0.3"))
    assert main(words) == 1
    assert "is another sweep, wanted this one; give the arguments and the environment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("boat.py:SHIP", "SHIP in boat.py is absent, wanted one of ['BOAT', 'POLE']"),
        ("boat.py:step", "step in boat.py is function, wanted one of ['BOAT', 'POLE']"),
        ("ship.py:BOAT", "ship.py is FileNotFoundError"),
        ("no.where:BOAT", "no.where is ModuleNotFoundError"),
        (":BOAT", "is ':BOAT', wanted MODULE:NAME or FILE.py:NAME of an Env"),
        ("json:loads", "loads in json is function, wanted an Env: purestep.Env("),
    ],
)
def test_wrong_references_are_refused_in_one_line(
    reference: str,
    fault: str,
    tmp_path: Path,
    boat: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(boat.parent)
    assert main(["train", "ppo", "--env", reference, *WORDS, "--minibatches=2", "--run", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("purestep: --env")
    assert fault in said.replace(f"{boat.parent}/", "")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in SMALL.items() if key != name} | {"notice": runs.silent}
