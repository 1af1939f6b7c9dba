"""The evidence of runs on hosts can say no: its verdicts, what it holds against each other, its picture, its hosts."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    pytest.importorskip("transformers", reason="the extra llm is not installed")
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def told(right: int, tasks: int = 256) -> Row:
    from purestep.runtime.language.evaluate import wilson

    low, high = wilson(right, tasks)
    return {"attempts": tasks, "accuracy": right / tasks, "accuracy_low": low, "accuracy_high": high}


def row(**changes: Any) -> Row:
    """A run in which all went as asked."""
    killed = [{"processes killed": 2, "after updates": 1, "back after updates": 2} for _ in range(2)]
    fine = {
        "last updates that learned from replaced hosts alone": 30,
        "generators lost": 3,
        "generators seen": 5,
        "left": 0,
        "wrong": [],
        "seconds at each update": [1.0, 2.0, 4.0],
    }
    return {"before": told(90), "after": told(240), "hosts killed and replaced": killed, **fine, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"after": told(95)}, "no better: at least 0.314 afterwards, at most 0.412 before"),
        ({"generators lost": 1}, "1 generators lost, at least 2 were on the hosts"),
        ({"generators seen": 3}, "3 generators seen, wanted at least 4"),
        (
            {"last updates that learned from replaced hosts alone": 0},
            "the last update learned from samples that may be of hosts before they were replaced",
        ),
        ({"hosts killed and replaced": [{"processes killed": 2}]}, "1 hosts killed and replaced, wanted 2"),
        ({"left": 2}, "2 processes were left on the hosts"),
        ({"wrong": ["update 3 is missing"]}, "what was learned from: ['update 3 is missing']"),
        (
            {"hosts killed and replaced": [{"processes killed": 1}, {"processes killed": 4}]},
            "[1, 4] processes killed on the hosts, wanted a host and a generator on each",
        ),
    ],
)
def test_what_is_not_as_asked_is_named(benchmark: Callable[[str], Any], changes: Row, said: str) -> None:
    verdicts = benchmark("engine_verdicts")
    assert verdicts.faults(row()) == []
    assert verdicts.faults(row(**changes)) == [said]


def test_what_replaced_hosts_sampled_is_told_by_its_version(benchmark: Callable[[str], Any]) -> None:
    alone = benchmark("engine_verdicts").replaced_alone
    rows = [{"samples": [[0, 0, 0, 9, head, head, 7]]} for head in (0, 1, 2, 3, 4, 5)]
    assert [alone(rows, updates) for updates in range(6)] == [4, 3, 2, 1, 0, 0]
    assert alone([*rows, {"samples": [[0, 0, 0, 9, 1, 6, 7]]}], 2) == 0
    assert alone([], 0) == 0


def test_engines_that_end_otherwise_are_named(benchmark: Callable[[str], Any]) -> None:
    verdicts = benchmark("engine_verdicts")
    pairs = verdicts.compared({"one": row(), "other": row(after=told(238)), "third": row(after=told(150))})
    assert [*pairs] == ["one less other", "one less third", "other less third"]
    assert [line.partition(" is ")[0] for line in verdicts.unlike(pairs)] == ["one less third", "other less third"]
    assert verdicts.unlike(verdicts.compared({"one": row()})) == []


def test_the_picture_is_drawn(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    drawn = benchmark("engine_zorplex_picture").picture({"processes": row(), "ray": row()}, tmp_path / "it.png")
    assert drawn.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_host_is_started_and_killed(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    """Without a namespace: a process of this machine."""
    hosts = benchmark("engine_hosts")
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    own = ("processes", tmp_path / "key", "127.0.0.1:0", "")
    host = hosts.Host(*own, tmp_path / "log")
    host.start()
    try:
        assert (host.left(), len(host.running())) == (0, 1)
        (pid,) = host.running()
    finally:
        assert host.kill() == 1
    assert host.running() == set()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="no host at nowhere"):
        hosts.Host("processes", tmp_path / "key", "nowhere", "", tmp_path / "log").start()
