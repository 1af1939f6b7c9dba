"""Evidence says where it comes from, and nothing of the machine's own paths."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.core.tree import leaves
from purestep.runtime.logic.recycle import FinishedProofs, empty_proof_slots, play, proven_all

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_every_program_can_be_started() -> None:
    """Nothing else imports them, so that nobody would notice where a name they use is gone."""
    pytest.importorskip("transformers", reason="the extra llm is not installed")
    folder = ROOT / "benchmarks"
    names = sorted(path.stem for path in folder.glob("*.py")) + [
        f"{package}.{path.stem}"
        for package in ("machines", "parts", "proofs")
        for path in sorted(folder.glob(f"{package}/*.py"))
    ]
    program = "import importlib\n" + "\n".join(f"importlib.import_module('benchmarks.{name}')" for name in names)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)


def test_the_page_has_a_row_for_each_program() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| `", "| [`"))]
    named = [name for row in rows for name in dict.fromkeys(re.findall(r"python -m benchmarks\.([\w.]+)", row))]
    paths = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/*.py")]
    programs = {
        ".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts).removesuffix(".__main__")
        for path in paths
        if '__name__ == "__main__"' in path.read_text() and path.parent.name != "peers" and path.stem != "evidence"
    }
    sides = {name for name in programs if name.startswith("parts.")} | {"wild.trials"}  # called by others
    assert programs - sides <= set(named) <= programs
    assert len(named) == len(set(named))


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


def test_sides_take_turns_and_the_first_call_does_not_count(benchmark: Callable[[str], Any]) -> None:
    called = list[str]()
    sides = {name: (lambda name=name: called.append(name)) for name in "ab"}
    spent = benchmark("parts.timing").turns(sides, 2)
    assert called == ["a", "b", "a", "b", "b", "a"]
    assert {name: len(seconds) for name, seconds in spent.items()} == {"a": 2, "b": 2}


@pytest.mark.slow
def test_parts_together_are_the_rollout(benchmark: Callable[[str], Any]) -> None:
    timing, parts = benchmark("parts.timing"), benchmark("proofs.step_costs")
    made, model = timing.made_of("family:30")
    acting = timing.acting(made, model, slots=3, compiled=False)
    given = parts.recorded(parts.Parts(made, model, 3), acting)
    _, trajectory = acting()
    told = given["copies"][1]
    assert all(torch.equal(a, b) for a, b in zip(leaves(told), leaves(trajectory), strict=True))
    assert trajectory.terminated.any()  # so that resets are among what was compared


@pytest.mark.slow
def test_parts_that_differ_from_the_step_are_refused(benchmark: Callable[[str], Any]) -> None:
    timing, parts = benchmark("parts.timing"), benchmark("proofs.step_costs")
    made, model = timing.made_of("family:30")
    acting = timing.acting(made, model, slots=3, compiled=False)
    with pytest.raises(RuntimeError, match="bring step_costs up to date"):
        parts.recorded(parts.Parts(made, model, 3, lambda reset, moved, key: moved), acting)


def test_batches_that_wait_prove_what_recycled_slots_prove(benchmark: Callable[[str], Any]) -> None:
    feeding = benchmark("proofs.feeding")
    made, model = benchmark("parts.timing").made_of("family:30")
    game, params, queries, slots = made.game, model.init(keys.key(0)), made.world.queries[:10], 4
    few, calls = play(game, model, 2, feeding="batches"), list[int]()

    def counted(*given: Any) -> Any:
        calls.append(1)
        return few(*given)

    def proven(run: Any, feed: int) -> FinishedProofs:
        return proven_all(run, params, made.world.base, empty_proof_slots(game, slots), queries, feed=feed)

    wanted = proven(play(game, model, 8), slots * 8)
    count = dict[bool, int]()
    for for_all in (False, True):
        calls.clear()
        told = proven(feeding.waiting(counted, 5, for_all=for_all), slots)
        assert torch.equal(told.number, torch.arange(10))
        assert torch.equal(told.depth, wanted.depth)
        torch.testing.assert_close(told.score, wanted.score)
        count[for_all] = len(calls)
    batches = wanted.depth.tolist()[:4], wanted.depth.tolist()[4:8], wanted.depth.tolist()[8:]
    assert count == {True: 3 * 5, False: sum(-(-max(batch) // 2) for batch in batches)}


def test_memory_of_a_large_world_must_be_asked_for(
    benchmark: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = benchmark("proofs.speed")
    monkeypatch.setattr(speed, "elsewhere", lambda data, rules, kept: {f"{rules} {kept}": Path(data).name})
    told = speed.memory_of({"here": 1}, "", Path("a"))
    assert told == {speed.USUAL: {"own a": speed.USUAL, "here": 1}, "a large data set": told["a large data set"]}
    assert "--large FOLDER" in told["a large data set"]
    assert speed.memory_of({}, "/data/big", Path("a"))["big"] == {"mine large": "big"}


def test_the_speed_of_proofs_is_drawn(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    row = {"median": 2.0, "lower quartile": 1.5, "upper quartile": 3.0}
    figures = {
        "microseconds a step": {"parts": {"policy": row}, "sum of the parts": row, "whole": row},
        "growth": {
            "microseconds a step, by facts": {"1000": row, "10000": row},
            "microseconds a slot and step, by slots": {"16": row, "128": row},
        },
    }
    out = benchmark("proofs.picture").picture(figures, tmp_path / "new" / "speed.png")
    assert out.read_bytes().startswith(b"\x89PNG")
