"""Runs that older versions recorded: today's code evaluates, views, plots and resumes them."""

from pathlib import Path

import pytest

from purestep.runtime.runs.migrations import SCHEMA

from ...recorded_runs.record import ABSENT, HERE, RUNS
from ...support.recorded import QUICK, names, opened

SLOW = [name for name in names() if name != f"71aa3aac/{QUICK[0]}"]
FEW = [name for name in names() if name not in SLOW]


def check(name: str, where: Path) -> None:
    found = opened(name, where)
    assert found.fine(), (found.codes, found.said)
    assert "Traceback" not in found.said
    others = [line for line in found.notices if "never stopped: program: " not in line]  # the code is not that of then
    assert others == [] or found.same is None, others
    if name.startswith("schema_"):
        assert found.same in (True, None), "resumed, it is not the run that never stopped"


@pytest.mark.parametrize("name", FEW)
def test_a_recorded_run_is_opened_by_todays_code(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_recorded_run_is_opened_by_todays_code(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")


def test_a_run_of_each_recipe_is_recorded_and_they_are_small() -> None:
    kinds = (f"schema_{SCHEMA}", "schema_1", "71aa3aac", "8cec1164", "07554c1f")
    wanted = {f"{kind}/{name}" for kind in kinds for name in RUNS if name not in ABSENT.get(kind, ())}
    assert wanted - {*names()} == set(), "run: python -m tests.recorded_runs.record"
    for kind in kinds:
        assert sum(path.stat().st_size for path in (HERE / kind).rglob("*") if path.is_file()) < 5 << 18
