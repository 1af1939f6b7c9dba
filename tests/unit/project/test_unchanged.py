"""The comparison of `benchmarks.unchanged`: what counts as a difference, and recorded files under new names."""

import doctest
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.runtime.effects.checkpoint.manifest import describe
from purestep.runtime.effects.checkpoint.single import latest, save


@pytest.fixture
def values(benchmark: Callable[[str], Any]) -> Any:
    return benchmark("parts.unchanged_values")


def held(run: Path, loss: float, weight: float, name: str = "w") -> Path:
    """A run's folder with one checkpoint and two rows of metrics."""
    save(run, 2, {name: torch.full((2,), weight)})
    rows = ({"iteration": 1, "loss": 1.0, "seconds": weight}, {"iteration": 2, "loss": loss, "seconds": weight})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def of(values: Any, run: Path) -> dict[str, Any]:
    return {"leaves": values.leaves(run), "metrics": values.columns(run / "metrics.jsonl")}


def test_the_examples_hold(values: Any) -> None:
    assert doctest.testmod(values).failed == 0


def test_names_of_leaves_times_and_new_columns_are_no_difference(values: Any, tmp_path: Path) -> None:
    was = of(values, held(tmp_path / "a", 0.5, 1.0))
    now = of(values, held(tmp_path / "b", 0.5, 1.0, name="other"))
    assert values.differences(was, now) == []
    assert values.differences(was, {**now, "metrics": {**now["metrics"], "new": [0.0, 0.0]}}) == []


def test_a_parameter_a_number_and_a_missing_column_are(values: Any, tmp_path: Path) -> None:
    was = of(values, held(tmp_path / "a", 0.5, 1.0))
    weight = of(values, held(tmp_path / "b", 0.5, 1.0 + 2**-23))
    assert values.differences(was, weight) == ["leaves: 1 of 1 differ, first float32 [2] (w)"]
    loss = of(values, held(tmp_path / "c", 0.5 + 2**-53, 1.0))
    assert values.differences(was, loss) == [f"metrics: loss, row 2: 0.5 recorded, {0.5 + 2**-53!r} now"]
    assert values.differences(was, {**was, "metrics": {"iteration": [1, 2]}}) == ["metrics: loss: none now"]
    assert values.differences(was, {"leaves": was["leaves"]}) == ["metrics: none now"]
    twice = {**was["leaves"], "copy": was["leaves"]["w"]}
    assert values.differences(was, {**was, "leaves": twice}) == ["leaves: 1 of 1 differ, first float32 [2] (w)"]


def test_a_renamed_column_is_found_by_its_name_of_before(
    values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = of(values, held(tmp_path / "a", 0.5, 1.0))
    now = {**was, "metrics": {"iteration": [1, 2], "train_loss": [1.0, 0.5]}}
    assert values.differences(was, now) == ["metrics: loss: none now"]
    monkeypatch.setattr(values, "RENAMED", {"train_loss": "loss"})
    assert values.differences(was, now) == []


def test_dtype_and_shape_count(values: Any) -> None:
    ones = torch.ones(2, 1)
    described = {values.described(each) for each in (ones, ones.reshape(1, 2), ones.int(), ones.bool(), ones.double())}
    assert len(described) == 5
    assert values.described(torch.tensor(1.0)).endswith(hashlib.sha256(struct.pack("<f", 1.0)).hexdigest()[:16])


def test_recorded_files_get_the_names_of_now_and_stay_whole(
    values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = save(tmp_path, 1, {"w": torch.ones(1)}, metadata={"a": {"b": (1, 2)}})
    log = tmp_path / "events.jsonl"
    log.write_text('{"event":{"$class":"Old","number":3}}\n')
    values.translate(tmp_path)
    assert log.read_text() == '{"event":{"$tag":"old","number":3}}\n'
    log.write_text('{"event":{"$class":"Old","number":3}}\n')
    monkeypatch.setattr(values, "TAGS", {"Old": "New"})
    monkeypatch.setattr(values, "FIELDS", {"Old.number": "count"})
    monkeypatch.setattr(values, "WRITTEN", {"manifest.json": {"metadata": {"a": {}}}})
    values.translate(tmp_path)
    assert log.read_text() == '{"event":{"$tag":"New","count":3}}\n'
    assert latest(tmp_path) == where
    assert describe(where).metadata == {"a": {}}
