"""The command line: what it prints, what it leaves on the disk, and the one line it says when something is wrong."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from purestep.core.errors import ChoiceError, NonFiniteError
from purestep.runtime.cli import main
from purestep.runtime.cli import run as commands
from purestep.runtime.cli.chat import typed_lines
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint.atomic_files import lock
from purestep.runtime.effects.checkpoint.manifest import describe, manifest_bytes
from purestep.runtime.effects.layout import COMMON, PAGE
from purestep.runtime.runs import loop_state
from purestep.runtime.runs.arguments import flag, flatten, option
from purestep.runtime.runs.recipe import HIDDEN, find, own

from ...support.programs import last_words, until
from ...support.run_folders import begun

TINY = ["--steps", "96", "--envs", "2", "--horizon", "8", "--hidden", "8", "--backend", "none", "--episodes", "4"]
PNG = b"\x89PNG"
Said = pytest.CaptureFixture[str]


def train(run: Path, *words: str, recipe: str = "ppo") -> int:
    return main.main(["train", recipe, "--run", str(run), *TINY, *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "one"
    assert train(run) == 0
    return run


# --- help ---


def test_help_names_every_command_and_those_of_other_packages(capsys: Said) -> None:
    assert main.main(["--help"]) == main.main([]) == 0
    text = capsys.readouterr().out
    for name in ("train", "evaluate", "resume", "plot", "verify", "--debug"):
        assert name in text


def test_help_of_train_names_the_recipes(capsys: Said) -> None:
    assert main.main(["train"]) == main.main(["train", "-h"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in own() if name not in HIDDEN)


@pytest.mark.parametrize("recipe", own())
def test_help_of_a_recipe_explains_every_flag(recipe: str, capsys: Said) -> None:
    assert main.main(["train", recipe, "--help"]) == 0
    text = capsys.readouterr().out
    chosen = find(recipe)
    names = [*flatten(chosen.defaults()), *flatten(chosen.options.train), "run", "overwrite"]
    assert [name for name in names if flag(name) not in text] == []
    assert "learning_rate" not in text


@pytest.mark.parametrize("recipe", own())
def test_no_flag_is_without_words(recipe: str, capsys: Said) -> None:
    assert main.main(["train", recipe, "--help"]) == 0
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    told = re.findall(
        r"(--[a-z-]+)(?:, --no-[a-z-]+)? (?:[A-Z]+(?:\|\{[^}]*\})?|\{[^}]*\}|\[[^]]*\])?(.*?)\(default:", words
    )
    assert len(told) > 15
    assert [name for name, said in told if not said.strip()] == []


def test_help_shows_the_defaults_of_the_env_that_is_asked_for(capsys: Said) -> None:
    assert main.main(["train", "ppo", "--env", "pendulum", "--seed=3", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--gamma FLOAT" in text
    assert "(default: 0.9)" in text
    assert "runs/pendulum-ppo-3" in text


@pytest.mark.parametrize("command", ["evaluate", "resume", "plot"])
def test_the_other_commands_have_help_too(command: str, capsys: Said) -> None:
    assert main.main([command, "--help"]) == 0
    assert f"usage: purestep {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "value"),
    [([], "d"), (["--env", "a"], "a"), (["--env=a", "--env", "b"], "b"), (["--envs", "4"], "d"), (["--env"], "")],
)
def test_an_option_is_found_wherever_it_stands(words: list[str], value: str) -> None:
    assert option(words, "--env", "d") == value


# --- whole runs ---


def test_train_evaluates_draws_and_says_what_it_took(tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    assert train(run) == 0
    out = capsys.readouterr().out
    for word in ("evaluation: 4 episodes: return", "learning curve: ", "compile 0.0 s", "train ", "steps/s"):
        assert word in out
    assert (run / "learning_curve.png").read_bytes().startswith(PNG)
    assert json.loads((run / "evaluation.json").read_text())["episodes"] == 4
    assert {path.name for path in run.iterdir()} >= {folder.MARKER, *COMMON} - {PAGE}


@pytest.mark.parametrize(("recipe", "env"), [("a2c", "gridworld"), ("reinforce", "probe_both")])
def test_the_other_recipes_train(recipe: str, env: str, tmp_path: Path) -> None:
    assert train(tmp_path, "--env", env, "--steps", "400", recipe=recipe) == 0
    assert (tmp_path / "learning_curve.png").exists()


@pytest.mark.slow
def test_a_run_in_which_no_episode_ended_has_no_picture(tmp_path: Path, capsys: Said) -> None:
    assert train(tmp_path, "--env", "pendulum") == 0
    said = capsys.readouterr()
    assert "no picture: " in said.err
    assert "evaluation: 4 episodes:" in said.out
    assert main.main(["plot", str(tmp_path)]) == 1
    assert "without any finite 'episode_return'" in one_line(capsys)


def test_observations_and_rewards_can_be_normalised(tmp_path: Path) -> None:
    assert train(tmp_path, "--normalize", "both") == 0
    assert main.main(["evaluate", str(tmp_path), "--episodes", "2", "--action", "sample"]) == 0


def test_evaluate_is_the_same_for_one_seed_and_differs_for_another(trained: Path, capsys: Said) -> None:
    said = []
    for seed in ("1", "1", "2"):
        assert main.main(["evaluate", str(trained), "--episodes", "5", "--seed", seed, "--action", "sample"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    written = json.loads((trained / "evaluation.json").read_text())
    assert written["seed"] == 2
    assert written["lowest_return"] <= written["mean_return"] <= written["highest_return"]


@pytest.mark.slow
def test_plot_of_one_run_goes_into_it_and_of_several_where_it_is_told(
    trained: Path, tmp_path: Path, capsys: Said
) -> None:
    (trained / "learning_curve.png").unlink(missing_ok=True)
    assert main.main(["plot", str(trained)]) == 0
    assert (trained / "learning_curve.png").read_bytes().startswith(PNG)
    assert train(tmp_path / "two", "--seed", "1") == 0
    out = tmp_path / "curve.png"
    assert main.main(["plot", str(trained), str(tmp_path / "two"), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(PNG)
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
    ids=["ctrl_c", "ended_by_a_cluster"],
)
def test_whoever_stops_it_it_saves_tells_how_to_go_on_and_resume_does(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    inner, calls = loop_state.LoopState.train, iter(range(1, 100))

    def interrupted(self: loop_state.LoopState, command: Any) -> Any:
        if next(calls) == 2:
            signal.raise_signal(number)
        return inner(self, command)

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(loop_state.LoopState, "train", interrupted)
        assert train(run) == 130
    assert f"interrupted after 32 steps and saved; go on with: purestep resume {run}" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not (run / "evaluation.json").exists()
    assert main.main(["resume", str(run), "--episodes", "2"]) == 0
    assert "evaluation: 2 episodes:" in capsys.readouterr().out
    assert main.main(["resume", str(run), "--episodes", "2"]) == 0
    assert "nothing was left to train" in capsys.readouterr().out


def cut(run: Path) -> None:
    """Remove the newest checkpoint, as if the run had been stopped before it, and its evaluation."""
    folders = sorted((run / "checkpoints").glob("step_*"))
    shutil.rmtree(folders[-1])
    (run / "checkpoints" / "latest").write_text(folders[-2].name)
    (run / "evaluation.json").unlink()


def as_if_on(device: str, run: Path) -> None:
    """Name another device in the run's record and checkpoints."""
    for folder_ in (run / "checkpoints").glob("step_*"):
        held = describe(folder_)
        metadata = {**held.metadata, "device": device}
        (folder_ / "manifest.json").write_bytes(manifest_bytes(evolve(held, metadata=metadata)))
    record = json.loads((run / "arguments.json").read_text())
    (run / "arguments.json").write_text(json.dumps({**record, "device": device}))


@pytest.mark.parametrize("recipe", ["ppo", "a2c", "reinforce"])
@pytest.mark.slow
def test_a_run_goes_on_on_another_device(recipe: str, tmp_path: Path, capsys: Said) -> None:
    far, run = f"cuda:{torch.cuda.device_count()}", tmp_path / "run"  # a GPU that is not there
    assert train(run, recipe=recipe) == 0
    whole = (run / "checkpoints" / "step_000006" / "state.safetensors").read_bytes()
    cut(run)
    as_if_on(far, run)
    capsys.readouterr()
    assert main.main(["resume", str(run)]) == 1
    assert re.match(f"purestep: --device is '{far}', wanted .*; name another one, e.g. --device cpu$", one_line(capsys))
    assert main.main(["resume", str(run), "--device", "gpu"]) == 1
    assert one_line(capsys) == "purestep: --device is 'gpu', wanted cpu, cuda or cuda:N; name one of them"
    assert main.main(["resume", str(run), "--device", "cpu", "--episodes", "2"]) == 0
    assert "evaluation: 2 episodes:" in capsys.readouterr().out
    assert (run / "checkpoints" / "step_000006" / "state.safetensors").read_bytes() == whole
    assert describe(run / "checkpoints" / "step_000006").metadata["device"] == "cpu"
    assert main.main(["resume", str(run), "--episodes", "2"]) == 0  # the newest checkpoint's device is the run's own


def test_help_of_resume_names_the_device(trained: Path, capsys: Said) -> None:
    assert main.main(["resume", str(trained), "--help"]) == 0
    assert "--device" in capsys.readouterr().out
    moving = {name for name in own() if "device" in flatten(find(name).options.changes)}
    assert moving == {name for name in own() if "device" in flatten(find(name).defaults())} >= {"ppo", "prove"}
    assert main.main(["evaluate", str(trained), "--help"]) == 0
    assert "--device" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--device", "cpu"], ["--device=cpu"]])
def test_a_recipe_without_a_device_refuses_one(words: list[str], tmp_path: Path, capsys: Said) -> None:
    begun(tmp_path, {"recipe": "zorplex"})
    assert main.main(["resume", str(tmp_path), *words]) == 1
    said = "--device of a run of zorplex is cpu, wanted none: it has no such setting; leave it out"
    assert one_line(capsys) == f"purestep: purestep resume: {said}"


def test_ctrl_c_while_compiling_stops_at_once(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiling(self: loop_state.LoopState, notice: Callable[[str], None]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_state.LoopState, "warm", compiling)
    assert train(tmp_path) == 130
    assert "stopped at once; nothing was saved yet" in capsys.readouterr().err


def test_the_time_line_names_the_parts() -> None:
    assert commands.spent(
        ["compile 2.0 s (loaded from the cache)", "train 4.0 s", "100 environment steps/s"], 95.0
    ) == ("time: install 95 s, compile 2.0 s (loaded from the cache), train 4.0 s, 100 environment steps/s")


# --- errors ---


def one_line(capsys: Said) -> str:
    said = capsys.readouterr().err.splitlines()
    faults = [line for line in said if line.startswith("purestep: ")]
    assert len(faults) == 1, said
    assert said[-1] == faults[0]
    return faults[0]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["trian"], "purestep: command is 'trian', wanted one of .*; did you mean 'train'?"),
        (["train", "pppo"], "purestep train is 'pppo', wanted one of .*; did you mean 'ppo'?"),
        (["train", "ppo", "--env", "cartpol"], "--env is 'cartpol', wanted one of .*; did you mean 'cartpole'?"),
        (
            ["train", "ppo", "--envs", "3", "--horizon", "5"],
            "15 steps an iteration, wanted a multiple of --minibatches 4",
        ),
        (
            ["train", "ppo", "--envs", str(10**30)],
            "--envs is a number of 31 digits, wanted at most 9223372036854775807; change it",
        ),
        (["train", "ppo", "--run", "a/" * 2000], "lock: a/a/a/... is a path through 2000 folders, wanted at most 256"),
        (["train", "ppo", "--gamma", "1.1"], "--gamma is 1.1, wanted a number from 0.0 to 1.0"),
        (["train", "ppo", "--episodes", "0"], "--episodes is 0, wanted at least 1"),
        (["evaluate", "nowhere"], "nowhere is no folder, wanted that of a run; check the path"),
        (["resume", "nowhere"], "nowhere is no folder"),
        (["plot", "nowhere"], "nowhere is no folder"),
        (["plot"], "purestep plot: RUN is absent"),
        (
            ["plot", "run\udcff"],
            "a word of the command line is 'run\\udcff', wanted text in UTF-8; rename what it names",
        ),
    ],
)
def test_an_error_is_one_line_with_a_remedy(
    words: list[str], wanted: str, capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(words) == 1
    line = one_line(capsys)
    parts = wanted.split(".*")
    assert all(part in line for part in parts), line
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_exists_or_is_in_use_is_refused(trained: Path, capsys: Said) -> None:
    assert train(trained) == 1
    assert f"purestep resume {trained}; or pass --overwrite" in one_line(capsys)
    with lock(trained):
        assert main.main(["resume", str(trained)]) == 1
    assert "in use by process" in one_line(capsys)


def test_an_empty_folder_is_no_run(tmp_path: Path, capsys: Said) -> None:
    for command in ("evaluate", "resume"):
        assert main.main([command, str(tmp_path)]) == 1
        assert "no run of purestep, wanted that of a run" in one_line(capsys)
    assert main.main(["plot", str(tmp_path)]) == 1
    assert "name the folder of a run" in one_line(capsys)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({}, "is without a checkpoint, wanted a run with one"),
        ({"recipe": "ppo"}, "arguments.json is without its env, wanted"),
        ({"recipe": ["ppo"]}, "recipe is \"('ppo',)\", wanted one of"),
        ({"recipe": "prove", "env": "a"}, "arguments.json is without its data, wanted"),
    ],
    ids=str,
)
def test_arguments_that_name_no_world_are_no_run_to_be_drawn(
    held: dict[str, Any], wanted: str, tmp_path: Path, capsys: Said
) -> None:
    folder.mark(tmp_path, "ppo")
    (tmp_path / "arguments.json").write_text(json.dumps(held))
    assert main.main(["plot", str(tmp_path)]) == 1
    assert wanted in one_line(capsys)


def test_words_that_are_no_command_line_are_explained(capsys: Said) -> None:
    assert main.main(["train", "ppo", "--learning-rat", "1"]) == 2
    assert "--learning-rate" in capsys.readouterr().err
    assert main.main(["train", "ppo", "--envs", "many"]) == 2


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (NonFiniteError("train: iteration 3 is NaN"), "purestep: train: iteration 3 is NaN"),
        (
            OSError(28, "No space left on device", "runs/x/metrics.jsonl"),
            "purestep: runs/x/metrics.jsonl is not usable (No space left",
        ),
        (OSError(13, "Permission denied", "a\nb"), "purestep: "),
        (RuntimeError("Storage size calculation overflowed"), "purestep: this process is out of memory"),
        (ZeroDivisionError("by zero\nand more"), "purestep: ZeroDivisionError: by zero (--debug shows where)"),
    ],
)
def test_whatever_is_raised_becomes_one_line_unless_debug(
    error: Exception, wanted: str, capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(self: loop_state.LoopState, command: Any) -> Any:
        raise error

    monkeypatch.setattr(loop_state.LoopState, "train", fails)
    assert train(tmp_path) == 1
    assert one_line(capsys).startswith(wanted)
    with pytest.raises(type(error)):
        train(tmp_path, "--debug")


def test_a_chat_in_another_encoding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xed\n"), "utf-8"))
    with pytest.raises(
        ChoiceError, match=r"standard input is bytes that are none .*, wanted text in UTF-8; convert it"
    ):
        list(typed_lines(False))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xed\n"), "utf-8", "surrogateescape"))
    with pytest.raises(ChoiceError, match=r"standard input is .*, wanted text in UTF-8; convert it"):
        list(typed_lines(False))


def test_a_word_with_a_nul_byte_is_no_path(capsys: Said) -> None:
    for words in (["plot", "run\0"], ["train", "ppo", "--run", "a\0b"], ["evaluate", "\0"], ["verify", "a\0:b"]):
        assert main.main(words) == 1
        assert ", wanted text without a NUL byte; rename what it names" in one_line(capsys)


def test_errors_of_libraries_about_sizes_and_the_system_are_lines() -> None:
    for text, said in (
        ("IntArrayRef contains an int that cannot be represented as a SymInt: -9", "a number is too large"),
        ("Error while serializing: I/O error: File too large (os error 27)", "a file is not usable (File too large)"),
        ("I/O error: No space left on device (os error 28)", "a file is not usable (No space left on device)"),
    ):
        assert main.error_line(RuntimeError(text)).startswith(said)
        assert "(--debug" not in main.error_line(RuntimeError(text))


def test_a_word_that_would_fill_the_screen_is_refused(capsys: Said) -> None:
    assert main.main(["train", "ppo", "--steps", "a" * 70_000]) == 1
    assert "'... is 70,000 characters long, wanted at most 8,192; shorten it" in one_line(capsys)


def test_a_package_that_is_absent_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {
        package.replace("_", "-").replace("monarch", "torchmonarch")
        for each in main.EXTRAS.values()
        for package in each
    }
    assert names == {re.split("[><=]", one)[0] for name, each in extras.items() if name != "dev" for one in each}
    monkeypatch.setitem(sys.modules, "pykeen.datasets", None)
    assert main.main(["train", "prove", "--data", "pykeen:nations", "--run", "nowhere"]) == 1
    assert one_line(capsys).endswith("pip install 'purestep[kg]'")
    assert not Path("nowhere").exists()
    assert "(--debug" not in main.error_line(ModuleNotFoundError("No module named 'a.b'", name="a.b"))


CLOSED = (
    "import os, sys; os.close({0}); os.execv(sys.executable, [sys.executable, '-m', 'purestep.runtime.cli.main', *{1}])"
)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_fault(closed: int, tmp_path: Path) -> None:
    for words, code in ((["laws", "scan"], 0), (["plot", "nowhere"], 1)):
        program = [sys.executable, "-c", CLOSED.format(closed, words)]
        ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == code
        assert "Error" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_output_that_is_full_is_said_in_one_line() -> None:
    program = [sys.executable, "-m", "purestep.runtime.cli.main", "laws"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "free some space" in ended.stderr


# --- commands of other packages ---


def test_a_command_of_another_package_gets_its_words(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    points = [
        EntryPoint("words", "builtins:len", main.GROUP),
        EntryPoint("broken", "nowhere_at_all.x:command", main.GROUP),
    ]
    monkeypatch.setattr(main, "entry_points", lambda group: points)
    assert main.main(["words", "a", "b", "--c"]) == 3
    assert main.main(["--help"]) == 0
    assert "nowhere_at_all.x" in capsys.readouterr().out
    assert main.main(["broken"]) == 1
    assert "nowhere_at_all is not installed, wanted it installed; install the package's extras" in one_line(capsys)


# --- the program itself ---


@pytest.mark.slow
def test_the_program_compiles_is_stopped_by_ctrl_c_and_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-c", "from purestep.runtime.cli.main import main; raise SystemExit(main())"]
    numbers = ["--steps", "200000", "--checkpoints", "2"]

    def words(name: str) -> list[str]:
        return [*program, "train", "ppo", "--run", name, *numbers]

    pipes: dict[str, Any] = {"cwd": tmp_path, "env": environment, "text": True, "capture_output": True}
    whole = subprocess.run(words("whole"), **pipes)
    assert whole.returncode == 0, whole.stderr
    assert "compiling the program" in whole.stderr
    running = subprocess.Popen(
        words("cut"), cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    metrics = tmp_path / "cut" / "metrics.jsonl"
    until(
        lambda: metrics.exists() and metrics.stat().st_size > 0,
        "the first row is there",
        alive=lambda: running.poll() is None,
        said=lambda: last_words(running),
    )
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130, said
    assert "go on with: purestep resume cut" in said
    resumed = subprocess.run([*program, "resume", "cut"], **pipes)
    assert resumed.returncode == 0, resumed.stderr
    assert "loaded from the cache" in resumed.stdout
    for name in ("metrics.jsonl", "evaluation.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
