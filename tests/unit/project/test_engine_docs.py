"""The page on engines tells the truth: its code runs, its commands and files exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from purestep.runtime.cli import main
from purestep.runtime.effects.cluster import ENGINES
from purestep.runtime.effects.cluster.monarch.engine import SILENCE
from purestep.runtime.effects.cluster.replicas import on as replicas_on
from purestep.runtime.effects.cluster.worker_handles import on as hands_on

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "engines.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    (code,) = blocks("python")
    exec(compile(code, "engines.md", "exec"), names)
    assert capsys.readouterr().out == "(Done(value=3),) (Done(value=3), Done(value=3), Done(value=3)) ()\n"


def test_every_command_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line, comments=True) for block in blocks("bash") for line in block.splitlines()]
    ours = [words for words in commands if words[0] == "purestep"]
    assert ours
    for _, *words in ours:
        given = {word for word in words if word.startswith("--")}
        assert main.main([words[0], "--help"]) == 0
        text = capsys.readouterr().out
        assert all(flag in text for flag in given), words


def test_what_it_says_is_so() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [*ENGINES]
    assert f"({SILENCE:g} by default)" in PAGE
    assert callable(hands_on)
    assert callable(replicas_on)
    for place in re.findall(r"\]\((\.\./[\w./]+)\)", PAGE):
        assert (ROOT / "docs" / place).resolve().is_file(), place
