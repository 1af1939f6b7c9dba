"""Faults that befall a run: a missing folder, a signal, errors that a thread would hide; what `benchmarks.faults` notices."""

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core.errors import CheckpointError
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.checkpoint.atomic_files import INSIDE
from purestep.runtime.effects.reporting.metrics import tensorboard


def test_a_run_whose_folder_is_gone_is_told_so_and_makes_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    single.save(run, 1, {"w": torch.ones(1)}, files=INSIDE)
    shutil.rmtree(run)
    with pytest.raises(CheckpointError, match=r"in a folder that is gone, .*; bring it back"):
        single.save(run, 2, {"w": torch.ones(1)}, files=INSIDE)
    assert not run.exists()


def test_rows_of_tensorboard_are_written_by_nobody_else(tmp_path: Path) -> None:
    before = threading.active_count()
    with tensorboard(tmp_path / "board") as sink:
        assert threading.active_count() == before
        sink({"steps": 1.0, "loss": 0.5})
        (path,) = (tmp_path / "board").iterdir()
        size = path.stat().st_size
        sink({"steps": 2.0, "loss": 0.25})
        assert path.stat().st_size > size


@pytest.fixture
def faults(benchmark: Callable[[str], Any]) -> Any:
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    return benchmark("parts.faults_cases")


def test_bare_errors_and_wrong_codes_are_seen(faults: Any) -> None:
    wrong = faults.faults_outside.faults_of
    assert wrong(0, (0,), "evaluation: return 3\n") == []
    assert wrong(1, (1,), "12 of 40 steps\npurestep: save: a full disk\n") == []
    assert wrong(130, (130,), "interrupted after 3 steps and saved; go on with: purestep resume run\n") == []
    assert len(wrong("hung", (0,), "")) == 1
    assert len(wrong(1, (1,), "purestep: one\npurestep: two\n")) == 1
    assert len(wrong(0, (0,), "purestep: a full disk\n")) == 1
    assert len(wrong(-2, (130,), "stopped at once\n")) == 1
    assert len(wrong(130, (130,), "Exception ignored in: <function f>\nstopped at once; nothing was saved yet\n")) == 1


@pytest.mark.slow
def test_a_run_goes_on_after_each_fault_as_if_there_had_been_none(
    faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults.faults_outside, "MEMORY", tmp_path / "none")  # that of this machine is others' too
    place = faults.Place(tmp_path, seed=0, kills=1)
    (tmp_path / "logs").mkdir()
    whole = faults.whole(place, "ppo")
    for fault in ("SIGINT twice", "SIGTERM", "a folder moved away"):
        row = faults.performed(place, "ppo", fault, 0, whole)
        assert row["wrong"] == [], fault
        assert row["hits"] == row["gone_on"] == 1, fault
    run, kind = tmp_path / "ppo-whole", faults.RECIPES["ppo"]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"iteration":41.0}\n')
    assert faults.faults_outside.unlike(run, whole.portrait, kind) == ["differs: metrics.jsonl"]
