"""Bugs from public threads: each differs from its twin, and comes from a thread of its own family."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")
sys.path.insert(0, str(Path(__file__).parents[3]))
check: Any = importlib.import_module("benchmarks.own_bugs.check")
ALL: list[Any] = importlib.import_module("benchmarks.own_bugs.registry").ALL

sys.path.pop(0)


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: str(bug.name))
def test_a_bug_differs_from_its_twin_on_the_input_that_shows_it(bug: Any) -> None:
    got, wanted = check.outcome(bug.shown, bug.bug), check.outcome(bug.shown, bug.twin)
    assert not check.same(got, wanted)
    assert not str(wanted).startswith("raises")


def test_a_bug_has_a_name_of_its_own_and_a_link_to_a_thread() -> None:
    assert len({bug.name for bug in ALL}) == len(ALL)
    for bug in ALL:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", bug.link)
