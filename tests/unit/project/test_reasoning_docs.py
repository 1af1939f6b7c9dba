"""The page on the reasoning cache tells the truth: its code runs, its settings are those of the recipe, commands exist."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("transformers")

from purestep.runtime.cli import main
from purestep.runtime.recipes import text_run
from purestep.runtime.recipes.cache import cache_defaults
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import flatten
from purestep.runtime.text import report
from purestep.runtime.text import run as session
from purestep.runtime.text.config import generator_count

from ...support.run_folders import begun

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reasoning_cache.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    exec(compile(code, "reasoning_cache.md", "exec"), {})
    assert capsys.readouterr().out.count("2 + 3?") == 4


def test_the_table_has_the_settings_and_their_defaults() -> None:
    flat = flatten(cache_defaults())
    named = [cells for cells in (line.split(" | ") for line in PAGE.splitlines()) if cells[0].startswith("| `")]
    told = {name: cells[1] for cells in named for name in re.findall(r"`(\w+)`", cells[0])}
    assert [name for name in told if name not in flat and name not in ("output_dir", "llm_", "test_llm_")] == []
    numbers = {name: told[name].replace(",", "") for name in told if re.fullmatch(r"[\d,.]+", told[name])}
    assert len(numbers) > 6
    assert {name: float(value) for name, value in numbers.items()} == {name: float(flat[name]) for name in numbers}
    assert told["problem_queue_size"] == f"{flat['problem_queue_size']}, {flat['result_queue_size']}"
    assert told["max_retries"] == f"{flat['max_retries']}, {flat['retry_base_delay']}"
    sampling = ", ".join(str(flat[f"llm_{name}"]) for name in ("temperature", "max_tokens", "top_p"))
    assert sampling in PAGE


def test_the_commands_are_ones_we_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted: list[str] = []

    def note(name: str) -> Any:
        def work(*given: Any, **named: Any) -> Any:
            noted.append(name)
            raise KeyboardInterrupt

        return work

    monkeypatch.chdir(tmp_path)
    for run in ("cache", "other"):
        begun(tmp_path / "runs" / run, {"recipe": "cache"})
    in_turns, at_once = note("train"), note("at once")
    begin = lambda run, recipe, given, **named: (at_once if generator_count(given) else in_turns)()  # noqa: E731
    monkeypatch.setattr(runs, "start", begin)
    monkeypatch.setattr(session, "resume", note("resume"))
    monkeypatch.setattr(text_run, "restore_run", note("restore"))
    monkeypatch.setattr(report, "pictures", note("plot"))
    (block,) = blocks("bash")
    codes = [main.main(shlex.split(line, comments=True)[1:]) for line in block.splitlines()]
    assert codes == [130, 130, 130, 130, 130, 130, 0]
    assert noted == ["train", "resume", "restore", "plot", "at once", "train"]


# --- the benchmark ---


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.cache_cycles")


def row(untrained: list[float], trained: list[float]) -> dict[str, Any]:
    return {"untrained": {"accuracy": untrained}, "trained": {"accuracy": trained}}


def test_questions_are_answered_by_the_figures(benchmark: ModuleType) -> None:
    rising = [row([0.0, 0.1, 0.1], [0.2 + x, 0.5 + x, 0.9]) for x in (0.0, 0.01, 0.02)]
    answers = {asked: told["answer"] for asked, told in benchmark.compared(rising, 2)["answers"].items()}
    assert answers["is trained above untrained at T = 2"] == "yes"
    assert answers["does trained rise from T = 2 to T = 3"] == "yes"
    assert answers["does untrained rise from T = 2 to T = 3"] == "not decided"
    falling = [row([0.6, 0.6, 0.6], [0.2, 0.5, 0.1 + x]) for x in (0.0, 0.01, 0.02)]
    found = benchmark.compared(falling, 2)
    answers = {asked: told["answer"] for asked, told in found["answers"].items()}
    assert found["best T"] == 2
    assert answers["is trained above untrained at T = 3"] == "no"
    assert answers["does trained rise from T = 2 to T = 3"] == "no"
    assert answers["does trained fall from its best to T = 3"] == "yes"
    apart = [row([0.1, 0.1], [0.1, x]) for x in (0.0, 0.4, 0.1)]
    assert benchmark.compared(apart, 1)["answers"]["does trained rise from T = 1 to T = 2"]["answer"] == "not decided"
    assert benchmark.verdict(benchmark.interval([0.9])) == "not decided"
    assert "not decided" in benchmark.table(found | {"answers": benchmark.compared(apart, 1)["answers"]})
    json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_the_benchmark_runs_small_and_says_so(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    short = "--warm-steps 20 --demonstrations 40 --steps 1 --problems 2 --held-out 4 --cycles 4 --width 16 --layers 1 --heads 2"
    monkeypatch.setattr(sys, "argv", ["cache_cycles", "--seeds", "11", *short.split()])
    written: list[tuple[str, Any]] = []

    def write(name: str, **told: Any) -> Path:
        written.append((name, told))
        return ROOT / "benchmarks" / "x.json"

    monkeypatch.setattr(benchmark.evidence, "write", write)
    assert benchmark.main() == 0
    ((name, told),) = written
    assert name == "cache_cycles_small"
    assert len(told["figures"]["accuracy by T"]["trained"]) == 4
