"""Metrics to Weights & Biases, with the real library, offline."""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.recipes.zorplex import zorplex_defaults
from purestep.runtime.runs.arguments import changed

HEADER, BLOCK = 7, 7  # bytes before the records of a file, and before each: checksum, length, type


def rows_of(folder: Path) -> list[dict[str, float]]:
    """The rows in the files of offline runs, each of one block of records."""
    records, found = import_module("wandb.proto.wandb_internal_pb2"), []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data = file.read_bytes()
        place = HEADER
        while place + BLOCK <= len(data):
            length = int.from_bytes(data[place + 4 : place + 6], "little")
            record: Any = records.Record()
            record.ParseFromString(data[place + BLOCK : place + BLOCK + length])
            place += BLOCK + length
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                found.append({one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items})
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
