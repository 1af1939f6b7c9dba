"""Help, refusals and the first line of a command come at once: what takes seconds to import is imported after them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from purestep import properties
from purestep.core.envs import ENVS
from purestep.runtime.cli.main import commands
from purestep.runtime.deferred import Package
from purestep.runtime.recipes.shared_settings import env_names
from purestep.runtime.runs.recipe import own

from ...support import run_folders

ROOT = Path(__file__).parents[3]
HEAVY = (
    "torch",
    "tensordict",
    "numpy",
    "matplotlib",
    "tensorboard",
    "transformers",
    "safetensors",
    "hypothesis",
    "pytest",
)
HELP = [["--help"], *([name, "--help"] for name in commands())]
HELP += [["train", recipe, "--help"] for recipe in own()]
# Runs command lines one after the other, where the heavy libraries cannot be imported; a row of JSON for each.
PROGRAM = """
import contextlib, io, json, sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ImportError("heavy: " + name)

HEAVY, LINES = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.meta_path.insert(0, Wall())
from purestep.runtime.cli import main
for words in LINES:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(words)
    print(json.dumps([code, out.getvalue(), err.getvalue(), len(sys.modules)]))
"""


def behind_the_wall(lines: list[list[str]], folder: Path) -> list[tuple[int, str, str, int]]:
    """Exit code, both outputs and the number of modules of each command line, in a process that can import nothing heavy."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(HEAVY), json.dumps(lines)]
    run = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=True)
    rows = [json.loads(row) for row in run.stdout.splitlines()]
    assert len(rows) == len(lines)
    return [tuple(row) for row in rows]


def test_help_needs_nothing_heavy(tmp_path: Path) -> None:
    rows = behind_the_wall(HELP, tmp_path)
    for words, (code, out, err, _) in zip(HELP, rows, strict=True):
        assert (code, err) == (0, ""), words
        assert out.startswith("usage: purestep"), words
    assert rows[-1][3] < 800  # modules, for all of them together; torch alone has 1,500


REFUSED: dict[str, str] = {
    "trian": "purestep: command is 'trian'",
    "train nothing": "purestep train is 'nothing', wanted one of",
    "train ppo --env cartpol": "--env is 'cartpol', wanted one of",
    "train ppo --envs 0": "--envs is 0, wanted at least 1",
    "train ppo --gamma 2": "--gamma is 2.0, wanted a number from 0.0 to 1.0",
    "train ppo --minibatches 3": "--envs x --horizon is 512 steps an iteration",
    "train ppo --episodes 0": "--episodes is 0",
    "train a2c --gae-lambda 2": "--gae-lambda is 2.0",
    "train reinforce --seed -1": "--seed is -1",
    "train prove --size 3 --form complex": "--size is 3, wanted an even number",
    "train prove --candidates 0": "--candidates is 0",
    "train zorplex --algorithm grop": "--algorithm is 'grop'",
    "train zorplex --top-p 2": "--top-p is 2.0",
    "train zorplex --config nowhere.yaml": "--config is nowhere.yaml",
    "train zorplex --mode async --patience 0": "--patience is 0.0",
    "train cache --shortest 9 --longest 4": "lists: shortest and longest is (9, 4)",
    "train cache --reasoning-prompt-template x": "settings: reasoning_prompt_template is",
    "evaluate nowhere": "nowhere is no folder",
    "export nowhere policy --to torch": "nowhere is no folder",
    "export played policy --to torch --batch -1": "--batch is -1",
    "evaluate played --episodes 0": "--episodes is 0",
    "resume nowhere": "nowhere is no folder",
    "explain in(a,b) --run nowhere": "nowhere is no folder",
    "chat nowhere": "nowhere is no run of a language model",
    "chat . --task -2": "--task is -2",
    "replay nowhere": "nowhere is no folder",
    "view nowhere": "nowhere is no folder",
    "view played --steps x": "--steps is 'x', wanted a step, or a range",
    "plot": "purestep plot: RUN is absent",
}


def test_what_is_refused_is_refused_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    begun(tmp_path / "played", recipe="ppo")
    rows = behind_the_wall([words.split() for words in REFUSED], tmp_path)
    for (words, said), (code, out, err, _) in zip(REFUSED.items(), rows, strict=True):
        assert (code, out, err.count("\n")) == (1, "", 1), (words, err)
        assert err.startswith("purestep: "), words
        assert said in err, words


def test_flags_that_there_are_not_are_refused_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    named = ("train", "sweep", "verify")  # of something; the name comes first
    lines = [[*words[:-1], "--nonsense"] for words in HELP[1:] if words[0] not in named or len(words) > 2]
    for words, (code, _, err, _) in zip(lines, behind_the_wall(lines, tmp_path), strict=True):
        assert code == 2, words
        assert "heavy" not in err, words


def begun(run: Path, **arguments: Any) -> str:
    """A folder that looks like that of a run."""
    run_folders.begun(run, arguments)
    (run / "checkpoints" / "step_000001").mkdir(parents=True)
    return run.name


def test_the_first_line_comes_before_anything_heavy(tmp_path: Path) -> None:
    runs = [
        begun(tmp_path / "played", recipe="ppo"),
        begun(tmp_path / "proven", recipe="prove"),
        begun(tmp_path / "turns", recipe="zorplex", mode="sync", generators=0),
        begun(tmp_path / "cycles", recipe="cache"),
        begun(tmp_path / "generated", recipe="zorplex", mode="async", generators=1),
    ]
    (tmp_path / "generated" / "async").mkdir()
    wanted = {
        "train ppo": "ppo on cartpole for 501,760 steps, into runs/cartpole-ppo-0",
        "train a2c --run here": "a2c on cartpole for 501,760 steps, into here",
        "train reinforce": "reinforce on cartpole for",
        "train prove": "prove on family:200 by its rules alone (--steps 800000 trains a policy), into runs/family:200-prove-0",
        "train zorplex": "zorplex by grpo, 100 steps, into runs/zorplex-compositional-grpo-0",
        "train cache": "cache by grpo, 40 steps, into runs/modular_sum-cache-grpo-42",
        **{f"{command} {run}": f"loading {run}" for command in ("evaluate", "resume") for run in runs},
        "chat turns": "loading turns",
        "explain in(a,b) --run proven": "loading proven",
        "replay generated": "loading generated",
    }
    rows = behind_the_wall([words.split() for words in wanted], tmp_path)
    for (words, line), (code, out, err, _) in zip(wanted.items(), rows, strict=True):
        first, second = err.splitlines()
        assert first.startswith(line), words
        assert re.match("purestep: ImportError: heavy: (torch|numpy|tensor|safe|matplotlib)", second), words
        assert (code, out) == (1, "")


def loaded_after(program: str, watched: tuple[str, ...]) -> list[str]:
    """Return the watched modules that a fresh interpreter holds after a program."""
    program += f"\nimport sys\nprint([name for name in {watched} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return re.findall(r"[\w.]+", run.stdout)


def test_public_names_need_neither_tensordict_nor_the_compiler_until_one_compiles() -> None:
    heavy = {
        "program",
        "replay_buffer",
        "rollouts",
        "language_trainer",
        "load_checkpoint",
    }  # which compile, or store tensors
    program = f"import purestep\nfor name in set(purestep.__all__) - {heavy!r}: getattr(purestep, name)"
    assert loaded_after(program, ("torch", "tensordict", "torch._dynamo", "torch._inductor", "sympy")) == ["torch"]


def test_the_option_of_pytest_needs_nothing_heavy() -> None:
    assert (
        loaded_after("import purestep.properties.framework.plugin", tuple(name for name in HEAVY if name != "pytest"))
        == []
    )


def test_names_of_envs_are_those_there_are() -> None:
    assert list(env_names()) == list(ENVS)


def test_names_of_properties_are_listed_alike_for_checkers_and_at_run_time() -> None:
    text = (ROOT / "properties" / "__init__.py").read_text()
    listed = re.findall(r"^    from \.(\S+) import (\w+) as (\w+)$", text, re.MULTILINE)
    held = [(module, name) for module, names in properties._MODULES.items() for name in names]  # type: ignore[attr-defined]
    assert [(module, name) for module, name, _ in listed] == [(module, name) for module, _, name in listed] == held
    assert len({name for _, name in held}) == len(held) <= 95
    for _, name in held:
        assert not isinstance(getattr(properties, name), ModuleType)


@pytest.mark.slow
def test_a_module_does_not_hide_the_name_of_what_it_holds() -> None:
    program = """
import types, purestep.properties.suites.env, purestep.properties.framework.cli
import pytest

from purestep import properties
assert isinstance(properties.env_laws, properties.Suite)
assert properties.env_laws is properties.suites.env.env_laws
assert isinstance(properties.framework.cli, types.ModuleType)
"""
    assert loaded_after(program, ("purestep.properties.suites.learner",)) == []


def test_a_package_keeps_what_is_set_and_is_no_module_that_its_names_hide() -> None:
    package = Package("house")
    package.__all__ = ["room"]
    package.room, package.door = ModuleType("house.room"), ModuleType("house.door")
    assert "room" not in vars(package)
    assert "door" in vars(package)
    package.room = "a name"
    assert vars(package)["room"] == "a name"


def test_the_package_is_the_command_line_too(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=tmp_path, check=False)
        return done.returncode, done.stdout, done.stderr

    for words in (["--help"], ["train", "nothing"]):
        assert run("purestep", *words) == run("purestep.runtime.cli.main", *words)


@pytest.mark.parametrize("words", [["--help"], ["laws"], pytest.param(["laws", "scan"], marks=pytest.mark.slow)])
@pytest.mark.parametrize("buffer", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_reader_that_closes_the_output_ends_a_command_without_a_word(words: list[str], buffer: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffer}
    command = [sys.executable, "-m", "purestep", *words]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
