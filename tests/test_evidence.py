"""Evidence says where it comes from, and nothing of the machine's own paths."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def test_a_file_holds_commit_command_seconds_and_figures(evidence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["speed.py", "--envs", "4", str(ROOT / "runs" / "a"), "--out=/home/me/b.png"])
    monkeypatch.setattr(evidence, "git", lambda *words: "c0ffee" if words[0] == "rev-parse" else "")
    path = evidence.write("speed", seconds=1.26, figures={"steps_per_second": {"ours": 1.5}})
    assert path == evidence.RESULTS / "speed.json"
    assert json.loads(path.read_text()) == {
        "name": "speed",
        "commit": "c0ffee",
        "modified": False,
        "command": "python -m benchmarks.speed --envs 4 runs/a --out=b.png",
        "seconds": 1.3,
        "figures": {"steps_per_second": {"ours": 1.5}},
    }


def test_a_module_that_was_run_is_named(evidence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_loader("benchmarks.other", loader=None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    assert evidence.command("speed", []) == "python -m benchmarks.other"


def test_numbers_that_json_cannot_hold_are_refused(evidence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "git", lambda *words: "")
    with pytest.raises(ValueError, match="not JSON compliant"):
        evidence.write("speed", seconds=1.0, figures={"loss": float("nan")})
    assert not (evidence.RESULTS / "speed.json").exists()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked release has no commit")
def test_the_commit_is_gits(evidence: Any) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", evidence.git("rev-parse", "HEAD"))
