"""Metrics to Weights & Biases, with the real library, offline."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.recipes.zorplex import zorplex_defaults
from purestep.runtime.runs.arguments import changed


def rows_of(folder: Path) -> list[dict[str, float]]:
    """The rows of an offline run's file."""
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        store = datastore.DataStore()
        store.open_for_scan(str(file))
        while data := store.scan_data():
            record: Any = records.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                found.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return found


@pytest.mark.slow
def test_rows_arrive_and_a_resumed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    from purestep.runtime.effects.reporting.wandb_sink import ID, wandb_sink

    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = []
    for first in (1, 3):
        with wandb_sink(tmp_path, "tests", name="run") as sink:
            for iteration in (first, first + 1):
                sink({"iteration": float(iteration), "episode_return": iteration / 4})
        ids.append((tmp_path / "wandb" / ID).read_text())
    assert ids[0] == ids[1]
    rows = rows_of(tmp_path)
    assert [row["episode_return"] for row in rows] == [0.25, 0.5, 0.75, 1.0]
    assert [row["_step"] for row in rows] == [1, 2, 3, 4]
    assert len({file.name.rpartition("-")[2] for file in tmp_path.glob("wandb/offline-run-*")}) == 1


def test_without_the_library_it_is_refused_before_anything_begins() -> None:
    if find_spec("wandb") is None:
        with pytest.raises(ChoiceError, match=r"the library wandb is absent, wanted installed; pip install"):
            changed(zorplex_defaults(), {"wandb": "mine"}).check()
    else:
        changed(zorplex_defaults(), {"wandb": "mine"}).check()
