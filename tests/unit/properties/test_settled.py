"""A law's fixed draws are fixed, whatever else is imported."""

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from purestep.properties import Law, Mutant, Seen, named_profile, run
from purestep.properties.framework.law import always
from purestep.properties.framework.settled import NAMES, settled

PROFILE = evolve(named_profile("ci"), examples=200)
known = pytest.mark.skipif(not all(hasattr(providers, name) for name in NAMES), reason="another version of Hypothesis")
ODD = [7_310_000_001 + 17 * number for number in range(100)]


def draws() -> list[Any]:
    """What a law draws."""
    drawn = list[Any]()

    def check(subject: Any, inputs: Any, seen: Seen) -> None:
        drawn.append(inputs)

    inputs = st.tuples(st.lists(st.integers()), st.text(), st.floats(allow_nan=False))
    mutant = Mutant("none", lambda subject: subject)
    law = Law(name="noted", claim="Draws.", source="", inputs=always(inputs), check=check, mutant=mutant)
    assert run(law, None, profile=PROFILE).holds
    return drawn


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of one's own that is full of odd numbers."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(name: str) -> None:
        numbers = [number + sum(map(ord, name)) for number in ODD]
        (tmp_path / f"{name}.py").write_text(f"NUMBERS = {numbers}\nWORDS = {[f'{name}{n}' for n in numbers]}\n")
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))

    return load


def test_a_law_draws_the_same_whatever_was_imported_before(odd: Any) -> None:
    before = draws()
    odd("odd_constants_of_one")
    assert draws() == before
    assert len(before) == PROFILE.examples


@known
def test_hypothesis_alone_would_draw_others(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["purestep.properties.framework.run"], "settled", nullcontext)
    before = draws()
    odd("odd_constants_of_another")
    assert draws() != before


@known
def test_everything_is_as_it_was_afterwards() -> None:
    before = {name: getattr(providers, name) for name in NAMES}
    with settled(), settled():
        assert all(getattr(providers, name) is not before[name] for name in NAMES[1:])
    assert {name: getattr(providers, name) for name in NAMES} == before


def test_a_version_without_such_constants_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(providers, "_get_local_constants")
    with settled():
        assert not hasattr(providers, "_get_local_constants")
    assert not hasattr(providers, "_get_local_constants")
