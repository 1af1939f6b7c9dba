"""Runs that wait for a server or a judge: they say so at once, and SIGTERM or Ctrl-C ends them, saved."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint.atomic_files import lock
from purestep.runtime.text import report, sampling
from purestep.runtime.text import run as session

from ...support.programs import until
from ...support.stand_in_server import stood_in
from .test_prompt_recipe import given as given
from .test_prompt_recipe import words
from .test_zorplex_recipe import WORDS, silent, tiny

pytest.importorskip("transformers")

NOWHERE = "http://127.0.0.1:9/v1"  # refuses connections
AT_ONCE = 60.0  # seconds, of a busy machine; the waits have ten minutes
JUDGE = """
import pathlib, time

def slow(completions, **columns):
    pathlib.Path(__file__).with_name("asked").touch()
    time.sleep(600)
    return [0.0] * len(completions)
"""
Said = pytest.CaptureFixture[str]


def begun(told: Path, *given_words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "purestep", *given_words]
    with told.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ})


def ended_by(number: signal.Signals, told: Path, ready: Callable[[], bool], *given_words: str) -> str:
    """Return what a run says that gets a signal when it is ready, and ends at once."""
    going = begun(told, *given_words)
    try:
        until(ready, "it waits", alive=lambda: going.poll() is None, said=told.read_text)
        going.send_signal(number)
        begin = time.monotonic()
        assert going.wait(AT_ONCE) == 130
        assert time.monotonic() - begin < AT_ONCE
    finally:
        going.kill()
        going.wait()
    return told.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_waits_for_its_server_says_so_and_ends_at_once(
    tmp_path: Path, number: signal.Signals, capsys: Said
) -> None:
    run, told = tmp_path / "run", tmp_path / "told"
    where = ["--run", str(run), "--server", NOWHERE, "--server-seconds", "900"]
    own = ["train", "zorplex", *WORDS, "--warm-steps", "2", "--demonstrations", "8", *where]
    text = ended_by(number, told, lambda: told.read_text().count("no server at") >= 2, *own)
    line = (
        f"no server at {NOWHERE} yet: waiting for it up to 900 s when it has to sample; --server-seconds changes that"
    )
    assert line in text
    assert "before reinforcement" not in text
    saved = r"interrupted after \d+ iterations and saved; go on with: "
    assert re.search(saved + re.escape(f"purestep resume {run}"), text)
    assert "Traceback" not in text
    assert main.main(["resume", str(run), "--server-seconds", "0"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"purestep: {NOWHERE}: answer is none (")


@pytest.mark.slow
def test_a_run_that_waits_for_its_judge_ends_at_once_and_is_saved(given: Path, tmp_path: Path) -> None:
    judge, told, run = tmp_path / "judge.py", tmp_path / "told", tmp_path / "run"
    judge.write_text(JUDGE)
    own = words(given, run, "--reward", f"{judge}:slow", "--steps", "2", "--reward-seconds", "900")
    text = ended_by(signal.SIGTERM, told, (tmp_path / "asked").exists, *own)
    assert "purestep resume" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_evaluations_are_sampled_by_the_server_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    run = tmp_path / "run"
    own = tiny(server=NOWHERE, warm_steps=2, demonstrations=8, steps=1)

    def here(*given: Any, **named: Any) -> None:
        raise AssertionError("sampled in this process")

    with monkeypatch.context() as patch:
        published = stood_in(patch, run, capacity=64, max_new_tokens=8)
        patch.setattr(report, "sampler", here)
        session.start(run, own, overwrite=False, notice=silent)
        before = folder.read_json(run / "before.json")
        assert before["sampled"]["attempts"] == before["greedy"]["attempts"] == 6
        assert published[0] == (NOWHERE, 0)
        patch.setattr(sampling, "wait_for", lambda where, within: None)
        assert main.main(["evaluate", str(run)]) == 0
        assert len(published) >= 2
        with lock(run):
            assert main.main(["evaluate", str(run)]) == 1
        assert "in use by process" in capsys.readouterr().err
    assert main.main(["evaluate", str(run)]) == 1
    out, err = capsys.readouterr()
    assert "evaluation:" not in out
    (line,) = [text for text in err.splitlines() if NOWHERE in text]
    assert line.startswith(f"purestep: {NOWHERE} is not there (")
    assert f"wanted a server of {run / 'served' / 'served'} as 'current'; start it, name another" in line
    assert main.main(["evaluate", str(run), "--server", ""]) == 0
    assert "evaluation:" in capsys.readouterr().out
    assert main.main(["evaluate", str(run), "--server", "nowhere"]) == 1
