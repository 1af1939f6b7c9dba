"""The evidence of runs on hosts can say no: its verdicts, what it holds against each other, its picture, its hosts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
pytest.importorskip("transformers", reason="the extra llm is not installed")


def told(right: int, tasks: int = 256) -> Row:
    from purestep.runtime.text.evaluation import wilson

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
    verdicts = benchmark("parts.engine_verdicts")
    assert verdicts.faults(row()) == []
    assert verdicts.faults(row(**changes)) == [said]


def test_what_replaced_hosts_sampled_is_told_by_its_version(benchmark: Callable[[str], Any]) -> None:
    alone = benchmark("parts.engine_verdicts").replaced_alone
    rows = [{"samples": [[0, 0, 0, 9, head, head, 7]]} for head in (0, 1, 2, 3, 4, 5)]
    assert [alone(rows, updates) for updates in range(6)] == [4, 3, 2, 1, 0, 0]
    assert alone([*rows, {"samples": [[0, 0, 0, 9, 1, 6, 7]]}], 2) == 0
    assert alone([], 0) == 0


def test_a_run_of_one_machine_has_no_hosts_to_lose(benchmark: Callable[[str], Any]) -> None:
    alone = {name: value for name, value in row(**{"generators lost": 0}).items() if not name.startswith("hosts")}
    assert benchmark("parts.engine_verdicts").faults(alone) == []


def test_engines_that_end_otherwise_are_named(benchmark: Callable[[str], Any]) -> None:
    verdicts = benchmark("parts.engine_verdicts")
    ends = {"one": 240, "other": 238, "third": 150}
    pairs = verdicts.compared({name: {"0": row(after=told(right))} for name, right in ends.items()})
    assert [*pairs] == ["one less other", "one less third", "other less third"]
    assert [line.partition(" is ")[0] for line in verdicts.unlike(pairs)] == ["one less third", "other less third"]
    assert verdicts.unlike(verdicts.compared({"one": {"0": row()}})) == []


def test_of_several_seeds_their_spread_decides(benchmark: Callable[[str], Any]) -> None:
    verdicts = benchmark("parts.engine_verdicts")

    def seeds(*rights: int) -> dict[str, Row]:
        return {str(seed): row(after=told(right)) for seed, right in enumerate(rights)}

    (apart,) = verdicts.unlike(verdicts.compared({"one": seeds(240, 236, 242), "other": seeds(220, 217, 221)}))
    assert apart.startswith("one less other is +0.078 [+0.048, +0.109] over tasks, [+0.068, +0.088] over 3 seeds")
    pairs = verdicts.compared({"one": seeds(250, 190, 240), "other": seeds(160, 200, 235)})
    assert pairs["one less other"]["over tasks"]["low"] > 0.0  # by its tasks alone it would be told apart
    assert verdicts.unlike(pairs) == []
    shared = verdicts.compared({"one": seeds(240, 100), "other": seeds(240)})
    assert shared["one less other"]["over seeds"] == {"each": [0.0], "mean": 0.0}
    assert verdicts.compared({"one": {"0": row()}, "other": {"1": row()}}) == {}


def test_the_picture_is_drawn(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    runs = {"processes": {"0": row(), "1": row()}, "ray": {"0": row()}}
    drawn = benchmark("parts.engine_zorplex_picture").picture(runs, tmp_path / "it.png")
    assert drawn.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_host_is_started_and_killed(benchmark: Callable[[str], Any], tmp_path: Path) -> None:
    """Without a namespace: a process of this machine."""
    hosts = benchmark("parts.engine_hosts")
    pytest.importorskip("monarch", reason="Monarch is an extra")
    host = hosts.Host("monarch", "127.0.0.1:0", "", tmp_path / "log")
    host.start()
    try:
        assert host.left() == 0
        pid = min(host.running())
    finally:
        assert host.kill() >= 2  # `purestep host`, and Monarch's worker loop
    assert host.running() == set()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="no host at nowhere"):
        hosts.Host("monarch", "nowhere", "", tmp_path / "log").start()


def test_ranks_that_learn_otherwise_or_nothing_are_named(benchmark: Callable[[str], Any]) -> None:
    faults, runs = benchmark("machines.ranks_recipe").faults, ("one", "ranks")
    fine = {"before": told(90), "after": told(240), "iterations": 120, "each iteration once": True}
    figures = {
        **dict.fromkeys(runs, fine),
        "recorded batches": {"largest relative difference": 0.0},
        "ranks less one process": {"low": -0.1, "high": 0.1},
    }
    wanted = dict.fromkeys(runs, 120)
    assert faults(figures, wanted, better=True) == []
    assert faults({**figures, "one": {**fine, "after": told(90)}}, wanted, better=True) == [
        "one: no better: at least 0.296 afterwards, at most 0.412 before"
    ]
    assert faults({**figures, "ranks": {**fine, "iterations": 119}}, wanted, better=True) == [
        "ranks: 119 iterations, wanted 120, each once"
    ]
    far = {"recorded batches": {"largest relative difference": 2e-6}}
    assert faults({**figures, **far}, wanted, better=True) == ["losses are 2.0e-06 apart, relative"]
    apart = benchmark("machines.ranks_agree").apart
    assert apart([1.0, 2.0], [1.0, 4.0])["largest relative difference"] == 0.5
    for losses in ([1.0, float("nan")], [1.0], []):
        with pytest.raises(RuntimeError):
            apart(losses, [1.0, 2.0] if losses else [])


def test_a_job_that_did_not_save_and_an_engine_that_is_missing_are_named(benchmark: Callable[[str], Any]) -> None:
    faults = benchmark("machines.scaling").faults
    first = {"updates at its begin": 0, "at its end": 4, "stopped by": "scancel --signal=USR1 --batch", "saved": True}
    last = {"updates at its begin": 4, "at its end": 8, "stopped by": "", "saved": False, "state": "COMPLETED"}

    def said(**changes: Any) -> list[str]:
        jobs = [{**first, "seconds to end": 3.0, **changes}, last]
        found: list[str] = faults("it", {"before": told(90), "after": told(240), "wrong": [], "jobs": jobs}, 8, 0.1)
        return found

    assert said() == []
    assert said(saved=False) == ["it: told to stop, it ended after 3.0 s, saved: False"]
    assert said(**{"at its end": 0}) == ["it: job 0 made no update"]
    assert said(**{"stopped by": "scancel"}) == ["it: no job was told to stop"]
    missing = {"ray": "ray is not installed"}
    assert benchmark("machines.engines").faults({}, {}, missing) == ["ray is missing: ray is not installed"]
