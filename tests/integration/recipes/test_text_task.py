"""A task that somebody else has written, trained by commands: in turns, with generators, resumed, evaluated, talked to."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.cli import main
from purestep.runtime.effects import task_reference
from purestep.runtime.effects.task_reference import load_task, trust
from purestep.runtime.runs.run import restore_run, train

pytest.importorskip("transformers")

EXAMPLE = Path(__file__).parents[3] / "examples" / "text_task.py"
SMALL = "--groups 4 --samples 4 --held-out 8 --capacity 160 --max-turns 4 --max-new-tokens 4 --width 32 --layers 2"
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def nothing_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_reference, "_trusted", set[str]())


@pytest.mark.slow
def test_a_task_in_a_file_is_trained_and_its_run_is_trusted_only_where_a_command_says_so(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(tmp_path / "run")
    assert (
        main.main(["train", f"{EXAMPLE}:SAFE", *SMALL.split(), "--warm-steps", "20", "--steps", "2", "--run", run]) == 0
    )
    assert "accuracy" in capsys.readouterr().out
    held = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert (held["recipe"], held["reference"]) == ("task", f"{EXAMPLE}:SAFE")
    monkeypatch.setattr(task_reference, "_trusted", set[str]())
    for command in (["evaluate", run], ["chat", run, "--task", "0"], ["resume", run]):
        assert main.main(command) == 1
        assert "repeat the command with --trust" in capsys.readouterr().err.splitlines()[-1]
    assert main.main(["evaluate", run, "--trust"]) == 0
    assert main.main(["chat", run, "--trust", "--task", "0"]) == 0
    assert "0-9?" in capsys.readouterr().out
    assert main.main(["chat", run, "--trust", "--question", "Which digit?"]) == 0
    assert "Which digit?" in capsys.readouterr().out


@pytest.mark.slow  # two generators import torch
def test_one_call_trains_it(tmp_path: Path) -> None:
    tiny: dict[str, Any] = {
        "groups": 2,
        "samples": 2,
        "held_out": 4,
        "width": 16,
        "layers": 1,
        "heads": 2,
        "warm_steps": 2,
    }
    room: dict[str, Any] = {"capacity": 160, "max_turns": 4, "max_new_tokens": 4, "demonstrations": 8, "warm_batch": 2}
    outcome = train(f"{EXAMPLE}:SAFE", tmp_path / "run", notice=lambda text: None, steps=1, **tiny, **room)
    assert (outcome.interrupted, outcome.loop.iteration) == (False, 2)
    assert restore_run(tmp_path / "run").arguments.reference == f"{EXAMPLE}:SAFE"
    with pytest.raises(ChoiceError, match="did you mean 'samples'"):
        train(f"{EXAMPLE}:SAFE", tmp_path / "other", sampels=2)


@pytest.mark.slow
def test_a_task_in_a_file_is_trained_with_generators_and_replayed(tmp_path: Path, capsys: Said) -> None:
    run = str(tmp_path / "run")
    more = [
        "--mode",
        "async",
        "--no-compare",
        "--generators",
        "2",
        "--generator-slots",
        "8",
        "--warm-steps",
        "0",
        "--steps",
        "3",
    ]
    assert main.main(["train", f"{EXAMPLE}:SAFE", *SMALL.split(), *more, "--run", run]) == 0
    assert main.main(["replay", run]) == 0
    assert "bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("TASK = 3", "TASK", r"task: TASK in .*tasks\.py is int, wanted a TextTask"),
        ("TASK = 3", "OTHER", r"task: OTHER in .*tasks\.py is absent, wanted the name of a TextTask in it"),
        (
            "import nowhere_at_all",
            "TASK",
            r"task: .*tasks\.py is ModuleNotFoundError: No module named 'nowhere_at_all'",
        ),
        ("def (", "TASK", r"task: .*tasks\.py is SyntaxError"),
    ],
)
def test_what_is_no_task_is_one_line(tmp_path: Path, capsys: Said, text: str, name: str, line: str) -> None:
    (tmp_path / "tasks.py").write_text(text)
    run = tmp_path / "run"
    assert main.main(["train", f"{tmp_path / 'tasks.py'}:{name}", "--run", str(run)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(line, last), last
    assert not run.exists()


def test_a_file_that_is_not_there_is_one_line() -> None:
    trust("nowhere/tasks.py:TASK")
    with pytest.raises(Exception, match=r"task: nowhere/tasks\.py is .*no such file.*; check the path"):
        load_task("nowhere/tasks.py:TASK")
