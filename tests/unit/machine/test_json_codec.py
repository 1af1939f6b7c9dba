"""What JSON gives back is what it was given; what it cannot hold is refused by name."""

import json
import math
from typing import Any

import pytest
import torch
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError, StructureError
from purestep.core.language.reasoning_cache.events import EVENT_CLASSES
from purestep.core.machine import Failed, Interrupted, Stop
from purestep.runtime.async_rl.checkpoint import PendingSample, PhaseCheckpoint
from purestep.runtime.async_rl.scheduler.events import COMMANDS, EVENTS
from purestep.runtime.async_rl.scheduler.state import CLASSES
from purestep.runtime.machine.json_codec import decode, encode, json_line
from purestep.runtime.runs.training_machine import Loop


@frozen
class Point:
    x: float
    tags: tuple[str, ...] = ()
    _hidden: int = 3


@frozen
class Holder:
    inner: Any


names = st.text(max_size=4).filter(lambda key: not key.startswith("$"))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
        | st.builds(Holder, inner)
        | st.builds(Point, st.floats(allow_nan=False), st.lists(st.text(max_size=2)).map(tuple), st.integers())
    ),
    max_leaves=6,
)


@given(values)
def test_json_gives_back_the_value_and_its_types(value: Any) -> None:
    text = json_line(encode(value))
    back = decode(json.loads(text), [Point, Holder])
    assert back == value
    assert repr(back) == repr(value)
    assert "\n" not in text


def test_nan_and_infinity_survive_strict_json() -> None:
    text = json_line(encode((math.nan, math.inf, -math.inf, -0.0)))
    nan, high, low, zero = decode(json.loads(text))
    assert math.isnan(nan)
    assert (high, low) == (math.inf, -math.inf)
    assert math.copysign(1, zero) == -1


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Holder((1, torch.ones(2))), r"value\.inner\[1\] is Tensor"),
        ([1], "value is list"),
        ({"a": {1, 2}}, r"value\['a'\] is set"),
        ({"$tag": 1}, "a key of value"),
        ({3: 1}, "a key of value is 3"),
    ],
)
def test_what_has_no_json_form_is_refused_where_it_stands(value: Any, where: str) -> None:
    with pytest.raises(StructureError, match=where):
        encode(value)


def test_an_unknown_class_is_refused_by_name() -> None:
    with pytest.raises(ChoiceError, match=r"the class of value\.command is 'Point'.*\['failed', 'stop'\]"):
        decode(encode(Failed(command=Point(1.0), error="")), [Failed, Stop])


def test_changed_fields_are_refused() -> None:
    data = encode(Point(1.0))
    with pytest.raises(StructureError, match=r"Point with fields.*another version"):
        decode({**data, "y": 2}, [Point])
    del data["x"]
    with pytest.raises(StructureError, match="Point with fields"):
        decode(data, [Point])


def test_two_classes_of_one_name_are_refused() -> None:
    other = frozen(type("Point", (), {}))
    with pytest.raises(StructureError, match="change the TAG of one"):
        decode(1, [Point, other])


def test_a_class_that_was_renamed_reads_what_was_stored_under_its_tag() -> None:
    before = frozen(type("Old", (), {"TAG": "point", "__annotations__": {"x": float}}))
    after = frozen(type("New", (), {"TAG": "point", "__annotations__": {"x": float}}))
    assert decode(encode(before(1.0)), [after]) == after(1.0)


STORED = (Failed, Interrupted, Loop, *CLASSES, PhaseCheckpoint, PendingSample, *EVENTS, *COMMANDS, *EVENT_CLASSES)


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}")
def test_what_checkpoints_and_logs_hold_is_stored_under_a_tag_of_its_own(kind: type) -> None:
    assert "TAG" in vars(kind)
