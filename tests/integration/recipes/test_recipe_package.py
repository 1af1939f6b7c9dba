"""A recipe in somebody's own package: the commands train, resume, evaluate and draw it once pip has installed that."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen

from purestep.core.errors import ChoiceError
from purestep.runtime.cli import main
from purestep.runtime.runs import recipe as recipe_module
from purestep.runtime.runs.recipe import Components, Context, Lines, Notice, Recipe
from purestep.runtime.runs.run import restore_run, stepped, train
from purestep.runtime.runs.training_machine import plan

PACKAGE = Path(__file__).parents[3] / "examples" / "recipe_package"
SHORT = ("--generations", "6", "--pairs", "2", "--episodes", "3")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the package."""
    source, place = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(place), str(source)], check=True, capture_output=True)
    return place


def purestep(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    command = [sys.executable, "-m", "purestep", *words]
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def whole(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run's folder, and what its training printed."""
    folder = tmp_path_factory.mktemp("whole")
    trained = purestep(installed, folder, "train", "hill", *SHORT, "--run", "whole")
    assert trained.returncode == 0, trained.stderr
    return folder / "whole", trained.stdout


@pytest.mark.slow
def test_it_is_listed_trained_resumed_evaluated_and_drawn(
    installed: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    listed = purestep(installed, tmp_path, "train", "--help")
    assert re.search(r"\n  hill +of hill_climbing\n", listed.stdout)
    helped = purestep(installed, tmp_path, "train", "hill", "--help")
    assert "Evolution strategies: a policy moves" in helped.stdout
    assert "--sigma FLOAT" in helped.stdout
    assert "runs/hill-0" in helped.stdout
    refused = purestep(installed, tmp_path, "train", "hill", "--generations", "0")
    assert refused.stderr == "purestep: --generations is 0, wanted at least 1; change it\n"

    shutil.copytree(whole[0], tmp_path / "whole")
    assert "evaluation: 3 episodes: return" in whole[1]
    assert "learning curve: whole/learning_curve.png" in whole[1]
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]

    again = purestep(installed, tmp_path, "resume", "whole", "--episodes", "2")
    assert "evaluation: 2 episodes: return" in again.stdout
    assert "nothing was left to train" in again.stdout
    looked = purestep(installed, tmp_path, "evaluate", "whole", "--episodes", "4")
    assert looked.stdout.startswith("evaluation: 4 episodes: return")
    drawn = purestep(installed, tmp_path, "plot", "whole", "--out", "curve.png")
    assert drawn.stdout == "curve.png\n"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")

    without = purestep(tmp_path, tmp_path, "evaluate", "whole")
    assert without.returncode == 1
    assert "recipe is 'hill', wanted one of" in without.stderr


@pytest.mark.slow
def test_a_run_that_was_cut_short_goes_on_with_the_same_bits(
    installed: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    for run in ("whole", "cut"):
        shutil.copytree(whole[0], tmp_path / run)
    for late in sorted((tmp_path / "cut" / "checkpoints").glob("step_*"))[1:]:
        for path in (*late.iterdir(), late):
            path.rmdir() if path.is_dir() else path.unlink()
    assert purestep(installed, tmp_path, "resume", "cut", "--episodes", "1").returncode == 0
    held = [
        sorted((tmp_path / run / "checkpoints").glob("step_*"))[-1] / "state.safetensors" for run in ("whole", "cut")
    ]
    assert held[0].read_bytes() == held[1].read_bytes()
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "cut" / "metrics.jsonl").read_text()


def points(*values: tuple[str, str]) -> list[EntryPoint]:
    return [EntryPoint(name=name, value=value, group=recipe_module.GROUP) for name, value in values]


@frozen
class Steps:
    """Count, and nothing else."""

    iterations: int = 3  # to be counted


class Least(Recipe):
    name, about = "least", "count"

    def defaults(self, choice: str | None = None) -> Steps:
        return Steps()

    def build(self, settings: Steps, context: Context) -> Components:
        count = lambda state: (state + 1.0, {"episode_return": float(state)})  # noqa: E731
        return Components(loop=plan(settings.iterations, 3), begin=lambda: torch.zeros(()), session=stepped(count))

    def evaluate(self, run: Path, options: Any, notice: Notice) -> Lines:
        yield f"evaluation: counted to {float(restore_run(run).state):.0f}"


LEAST = Least()


def test_a_recipe_of_what_is_needed_alone_goes_through_all_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe_module, "added", lambda: grouped(points(("least", f"{__name__}:LEAST"))))
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "least"]) == 0  # into runs/least: it has no seed
    assert main.main(["resume", "runs/least"]) == 0
    assert main.main(["evaluate", "runs/least"]) == 0
    assert capsys.readouterr().out.count("evaluation: counted to 3\n") == 3
    assert main.main(["plot", "runs/least"]) == 0
    assert (tmp_path / "runs" / "least" / "learning_curve.png").exists()
    assert train("least", "other", iterations=5, notice=lambda text: None).loop.iteration == 5
    for command in ("chat", "replay", "export policy --to torch"):
        name, *rest = command.split()
        assert main.main([name, "runs/least", *rest]) == 1
        assert capsys.readouterr().err.count("purestep: ") == 1


def grouped(found: list[EntryPoint]) -> dict[str, tuple[EntryPoint, ...]]:
    return {point.name: tuple(one for one in found if one.name == point.name) for point in found}


def test_recipes_that_cannot_be_had_are_named_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = points(("gone", "nowhere_at_all:RECIPE"), ("wrong", "json:dumps"), ("class", f"{__name__}:Least"))
    monkeypatch.setattr(recipe_module, "added", lambda: grouped(broken))
    with pytest.raises(
        ChoiceError, match=r"recipe 'gone' \(nowhere_at_all:RECIPE\) is not to be loaded \(ModuleNotFound"
    ):
        recipe_module.find("gone")
    with pytest.raises(ChoiceError, match=r"recipe 'wrong' \(json:dumps\) is function, wanted a .*Recipe of that name"):
        recipe_module.find("wrong")
    with pytest.raises(ChoiceError, match=r"recipe 'class' \(.*:Least\) is \w+, wanted a .*Recipe of that name"):
        recipe_module.find("class")
    with pytest.raises(ChoiceError, match=r"recipe is 'goen', wanted one of .*did you mean 'gone'"):
        recipe_module.find("goen")
    assert recipe_module.listed()["gone"] == "of nowhere_at_all"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("ppo", "mine:RECIPE")], "recipe 'ppo' is a recipe of purestep and mine:RECIPE, wanted one recipe of a name"),
        (
            [("hill", "mine:RECIPE"), ("hill", "yours:RECIPE")],
            "recipe 'hill' is a recipe of mine:RECIPE and yours:RECIPE",
        ),
    ],
)
def test_a_name_is_one_recipe(given: list[tuple[str, str]], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_module, "added", lambda: grouped(points(*given)))
    with pytest.raises(ChoiceError, match=said):
        recipe_module.find(given[0][0])
    assert recipe_module.listed()["a2c"] == "advantage actor-critic"
