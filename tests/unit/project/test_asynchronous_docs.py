"""The page on training at once tells the truth: its code runs, its flags are those there are, its commands and files exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

pytest.importorskip("transformers")

from purestep.core.machine import Started
from purestep.runtime.async_rl import checkpoint, replay, report
from purestep.runtime.async_rl import run as session
from purestep.runtime.cli import main
from purestep.runtime.effects import cluster, folder
from purestep.runtime.effects.layout import GENERATORS
from purestep.runtime.recipes import text_run
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import flag
from purestep.runtime.text import report as turns_report
from purestep.runtime.text import run as zorplex_session
from purestep.runtime.text.async_config import AsyncConfig

from ...support.run_folders import begun

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "asynchronous.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    (code,) = blocks("python")
    exec(compile(code, "asynchronous.md", "exec"), names)
    assert re.fullmatch(r"version 5, 40 samples learned from, \d+ wait\n", capsys.readouterr().out)
    assert names["scheduler"](names["rules"]).step(names["state"], Started())[0].version == 5


def test_the_table_has_every_flag_with_its_default() -> None:
    cells = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `--")]
    rows = {cell[1].strip(" `"): cell[2].strip() for cell in cells}
    defaults = {flag(one.name): str(one.default) for one in fields(AsyncConfig)}
    assert rows == defaults


def test_the_commands_are_ones_we_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted: list[str] = []

    def note(name: str) -> Any:
        def work(*given: Any, **named: Any) -> Any:
            noted.append(name)
            raise KeyboardInterrupt

        return work

    monkeypatch.chdir(tmp_path)
    for run in ("both", "four", "hosts"):
        begun(Path("runs") / run, {"recipe": "zorplex", "mode": "async", "generators": -1})
        (Path("runs") / run / "sync").mkdir()
        (Path("runs") / run / "sync" / folder.METRICS).write_text("")
    monkeypatch.setattr(cluster, "serve_host", note("host"))
    monkeypatch.setattr(runs, "start", note("train"))
    monkeypatch.setattr(zorplex_session, "resume", note("resume"))
    monkeypatch.setattr(session, "arguments_in", note("evaluate"))
    monkeypatch.setattr(replay, "replay_phase", note("replay"))
    monkeypatch.setattr(text_run, "learning_curve", note("plot"))
    monkeypatch.setattr(turns_report, "success_column", lambda paths: ("accuracy", "accuracy"))
    words = [shlex.split(line, comments=True)[1:] for block in blocks("bash") for line in block.splitlines()]
    assert {main.main(one) for one in words} == {130}
    assert noted == ["train", "train", "train", "resume", "replay", "evaluate", "plot", "host", "train", "resume"]


def test_the_files_are_those_that_are_written() -> None:
    (tree,) = re.findall(r"```\n(RUN/.*?)```", PAGE, re.DOTALL)
    names = {
        checkpoint.EVENTS,
        checkpoint.LEDGER,
        checkpoint.TIMELINE,
        checkpoint.TOTALS,
        folder.METRICS,
        folder.EVALUATION,
    }
    names |= {report.COMPARISON, report.TABLE, report.TIMES, report.AGES, folder.PICTURE, folder.ARGUMENTS}
    names |= {*(f"{phase}/" for phase in folder.PHASES), f"{folder.CHECKPOINTS}/", f"{folder.TENSORBOARD}/"}
    words = set(tree.replace("RUN/", "").split())
    assert names <= words
    assert set(GENERATORS) <= {word.rstrip("/") for word in words}
    assert (session.WARM, session.SYNC, session.ASYNC) == folder.PHASES
    assert zorplex_session.TOKENIZER not in tree, "that is of every such run"
