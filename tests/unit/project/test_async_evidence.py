"""The evidence of asynchronous training can say no: its verdicts, what it merges, the processes it finds and kills."""

import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
pytest.importorskip("transformers", reason="the extra llm is not installed")


@pytest.fixture
def zorplex(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("async_zorplex")


@pytest.fixture
def verdicts(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("parts.async_verdicts")


@pytest.fixture
def faults(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("async_faults")


@pytest.fixture
def outside(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("parts.async_outside")


def seed_row(before: float, sync: float, after: float, seconds: float = 600.0) -> Row:
    def told(accuracy: float) -> Row:
        return {"accuracy": accuracy, "accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05}

    wrong: Row = {"sync": [], "async": []}
    ratios: Row = {"wall seconds": seconds / 1000.0} | ({"share of age 1": 2.0} if after > 0.6 else {})
    accuracy = {"before": told(before), "sync": told(sync), "async": told(after)}
    return {"seconds": seconds, **accuracy, "wrong": wrong, "comparison": {"ratios": ratios}}


# --- seeds ---


def test_a_mean_has_students_interval(verdicts: Any) -> None:
    """1, 2, 3: s = 1, t = 4.303 with two degrees of freedom."""
    mean = verdicts.mean_of([1.0, 2.0, 3.0])
    assert mean.mean == 2.0
    assert mean.low == pytest.approx(2.0 - 4.303 / 3**0.5)
    assert mean.high == pytest.approx(2.0 + 4.303 / 3**0.5)


def test_one_seed_decides_nothing(verdicts: Any) -> None:
    told = verdicts.summary([seed_row(0.3, 0.9, 0.9)])
    assert told["async less sync"] == {"each": [0.0], "mean": 0.0}
    assert (told["async improves"], told["async is"]) == (False, "undecided")
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(
    ("after", "improves", "verdict"),
    [
        ((0.90, 0.91, 0.92), True, "no worse than in turns by more than 0.05"),
        ((0.60, 0.61, 0.62), True, "worse than in turns"),
        ((0.98, 0.99, 0.99), True, "better than in turns"),
        ((0.85, 0.95, 0.99), True, "undecided"),
        ((0.32, 0.25, 0.35), False, "worse than in turns"),
    ],
)
def test_the_verdict_follows_the_numbers(verdicts: Any, after: tuple[float, ...], improves: bool, verdict: str) -> None:
    rows = [seed_row(0.3, 0.9 + 0.01 * seed, one) for seed, one in enumerate(after)]
    told = verdicts.summary(rows)
    assert (told["async improves"], told["async is"]) == (improves, verdict)
    assert verdicts.refuted(told) == (not improves or verdict.startswith("worse"))
    assert not verdicts.refuted(verdicts.summary(rows[:2]))
    assert told["added sync"]["mean"] == pytest.approx(0.61)


def test_ratios_that_all_seeds_have_are_averaged(verdicts: Any) -> None:
    rows = [seed_row(0.3, 0.9, 0.9, seconds=500.0), seed_row(0.3, 0.9, 0.5, seconds=700.0)]
    told = verdicts.summary(rows)
    assert list(told["async / sync"]) == ["wall seconds"]
    assert told["async / sync"]["wall seconds"]["mean"] == 0.6
    assert told["seconds, the most"] == 700.0


def test_a_seed_that_is_slow_or_no_better_or_lost_something_is_not_as_asked(zorplex: Any) -> None:
    good = seed_row(0.3, 0.9, 0.9)
    assert zorplex.as_asked(good)
    assert not zorplex.as_asked(seed_row(0.3, 0.9, 0.9, seconds=901.0))
    assert not zorplex.as_asked(seed_row(0.3, 0.9, 0.39))
    assert not zorplex.as_asked({**good, "wrong": {"sync": [], "async": ["sample 3 was lost"]}})
    assert not zorplex.as_asked({**good, "wrong": {"sync": ["sample 3 was lost"], "async": []}})


def test_parts_are_merged_and_each_keeps_its_own_commit(verdicts: Any) -> None:
    one = {**seed_row(0.3, 0.9, 0.9), "commit": "a"}
    figures = verdicts.merged({}, "1", one)
    figures = verdicts.merged(figures, "killed", {"commit": "b", "kills": []})
    figures = verdicts.merged(figures, "0", {**seed_row(0.4, 0.9, 0.8), "commit": "c"})
    assert [(name, part["commit"]) for name, part in figures["parts"].items()] == [
        ("0", "c"),
        ("1", "a"),
        ("killed", "b"),
    ]
    assert figures["summary"]["seeds"] == 2
    assert figures["summary"]["before"]["each"] == [0.4, 0.3]
    again = verdicts.merged(figures, "1", {**one, "commit": "d"})
    assert again["parts"]["1"]["commit"] == "d"
    assert figures["parts"]["1"]["commit"] == "a"
    assert "summary" not in verdicts.merged({}, "killed", {"kills": []})


# --- a run that is killed ---


def kill_row(**changes: Any) -> Row:
    kill = {"signal": 9, "generators": 2, "alive afterwards": 0, "updates": 9, "resumed at": 8, "kept as it was": True}
    return {**kill, **changes}


KILLED: Row = {"kills": [kill_row(), kill_row()], "updates": 30, "wrong": {"sync": [], "async": []}}


def test_a_run_survives_its_kills(zorplex: Any) -> None:
    assert zorplex.survived(KILLED)


@pytest.mark.parametrize(
    "change",
    [
        {"signal": 0},
        {"generators": 0},
        {"alive afterwards": 1},
        {"resumed at": 3},
        {"resumed at": 10},
        {"kept as it was": False},
    ],
)
def test_a_run_that_is_not_what_it_was_before_a_kill_did_not_survive(zorplex: Any, change: Row) -> None:
    assert not zorplex.survived({**KILLED, "kills": [kill_row(), kill_row(**change)]})


def test_a_run_with_too_few_kills_or_updates_or_a_lost_sample_did_not_survive(zorplex: Any) -> None:
    assert not zorplex.survived({**KILLED, "kills": [kill_row()]})
    assert not zorplex.survived({**KILLED, "updates": 29})
    assert not zorplex.survived({**KILLED, "wrong": {"sync": [], "async": ["lost"]}})


# --- ten minutes under fire ---

FIRE: Row = {
    "kills": 6,
    "generators that were lost": 6,
    "updates": 40,
    "ended early": False,
    "longest time without an update": 9.0,
    "end": {"by itself": True, "code": 130, "seconds": 3.0, "alive afterwards": 0},
    "wrong": [],
}


def test_a_run_under_fire_that_did_all_that_is_asked_violates_nothing(faults: Any) -> None:
    assert faults.violations(FIRE, 120.0) == []


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("wrong", ["sample (3, 1) was lost"], "what was learned from"),
        ("ended early", True, "before Ctrl-C"),
        ("longest time without an update", 120.5, "it hung"),
        ("kills", 4, "4 kills, wanted 6"),
        ("generators that were lost", 5, "not every kill was noticed"),
        ("updates", 0, "nothing was learned"),
        ("end", {**FIRE["end"], "by itself": False}, "after Ctrl-C"),
        ("end", {**FIRE["end"], "code": 0}, "after Ctrl-C"),
        ("end", {**FIRE["end"], "alive afterwards": 2}, "outlived"),
    ],
)
def test_each_violation_is_named(faults: Any, where: str, value: Any, said: str) -> None:
    row = copy.deepcopy(FIRE) | {where: value}
    (found,) = faults.violations(row, 120.0)
    assert said in found


# --- a run seen from outside ---


def test_samples_that_were_learned_from_twice_are_found(outside: Any) -> None:
    rows: list[Row] = [
        {
            "version": version,
            "samples": [[4 * version + group, seat, 0, 9, 0, 0, 7] for group in range(2) for seat in range(3)],
        }
        for version in range(3)
    ]
    assert outside.twice(rows) == []
    rows[2]["samples"][4] = [1, 2, 1, 9, 1, 1, 7]
    assert outside.twice(rows) == [(1, 2)]


def test_a_ledger_is_read_by_its_whole_lines(outside: Any, tmp_path: Path) -> None:
    assert (outside.ledger(tmp_path), outside.length(tmp_path)) == ([], 0)
    (tmp_path / "ledger.jsonl").write_text('{"version": 0, "samples": []}\n{"version": 1, "sam')
    assert (outside.ledger(tmp_path), outside.length(tmp_path)) == ([{"version": 0, "samples": []}], 1)


@pytest.fixture
def parent(outside: Any, tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process with two children, one of which calls itself as workers do."""
    text = """
import subprocess, sys
sleep = "import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-c", sleep, *words]) for words in ([sys.argv[1], "worker-0"], ["another"])]
print(*(child.pid for child in children), flush=True)
children[1].wait()
"""
    command = [sys.executable, "-c", text, str(outside.PROGRAM)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
def test_generators_are_found_and_their_end_is_seen(outside: Any, parent: "subprocess.Popen[str]") -> None:
    assert parent.stdout is not None
    worker, other = map(int, parent.stdout.readline().split())
    try:
        assert outside.generators(parent.pid) == (worker,)
        assert outside.left_alive((worker, other), 0.0) == (worker, other)
    finally:
        for pid in (worker, other):
            subprocess.run(["kill", "-9", str(pid)], check=True)
    assert outside.left_alive((worker, other), 30.0) == ()
    assert outside.generators(parent.pid) == ()


def test_the_longest_wait_is_that_between_neighbours(outside: Any) -> None:
    now = time.perf_counter()
    assert outside.longest([now]) == 0.0
    assert outside.longest([0.0, 4.0, 5.0]) == 4.0
