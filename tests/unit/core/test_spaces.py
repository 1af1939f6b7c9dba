"""Spaces: membership at the edges, and samples that are members."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import PurestepError
from purestep.core.record import record, tensor
from purestep.core.scan import scan
from purestep.core.spaces import (
    Box,
    Discrete,
    Fields,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    clip_to_space,
    contains,
    field,
    sample,
)

INF = math.inf


@record
class Seen:
    place: Tensor = tensor("*", "int")
    speed: Tensor = tensor("* 2", "float")


@given(st.integers(1, 5), st.lists(st.integers(-3, 8), min_size=1, max_size=4))
def test_discrete_contains_0_to_n(n: int, values: list[int]) -> None:
    wanted = [value in range(n) for value in values]
    assert contains(Discrete(n), torch.tensor(values)).tolist() == wanted
    assert contains(Discrete(n), torch.tensor(values, dtype=torch.int32)).tolist() == wanted
    assert contains(Discrete(n), torch.tensor(values, dtype=torch.float32)).tolist() == [False] * len(values)


BOXES: dict[str, tuple[Box, Any, Any]] = {
    "edges belong": (Box(-1.0, 0.1, (2,)), [[-1.0, 0.1], [-1.01, 0.0], [0.0, 0.11]], [True, False, False]),
    "a bound each": (Box((0.0, -2.0), (1.0, INF), (2,)), [[1.0, 1e30], [2.0, 0.0], [0.5, -3.0]], [True, False, False]),
    "bounds of a matrix": (
        Box((0.0, 1.0, 2.0, 3.0), 3.0, (2, 2)),
        [[[0, 1], [2, 3.0]], [[0, 0.5], [2, 3]]],
        [True, False],
    ),
    "unbounded": (Box(-INF, INF, (1,)), [[3e38], [-INF], [math.nan]], [True, True, False]),
    "one number": (Box(0.0, 1.0, ()), [0.5, 1.5, -0.0], [True, False, True]),
    "whole numbers": (Box(-INF, 3.0, (1,)), [[3], [4], [-(2**40)]], [True, False, True]),
}


@pytest.mark.parametrize(("box", "values", "wanted"), BOXES.values(), ids=BOXES)
def test_a_box_contains_what_lies_between_its_bounds(box: Box, values: Any, wanted: Any) -> None:
    value = torch.tensor(values)
    assert contains(box, value).tolist() == wanted
    assert contains(box, value[None]).tolist() == [wanted]
    assert torch.vmap(lambda one: contains(box, one))(value).tolist() == wanted
    if value.is_floating_point():
        assert contains(box, value.double().to(torch.float32)).tolist() == wanted


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_another_shape_is_outside(shape: tuple[int, ...]) -> None:
    assert not contains(Box((0.0, 0.0), 1.0, (2,)), torch.full(shape, 0.5)).any()


def test_fields_contain_records_and_dicts_whose_every_field_fits() -> None:
    space = Fields((("place", Discrete(3)), ("speed", Box(-1.0, 1.0, (2,)))))
    place, speed = torch.tensor([0, 2, 3]), torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    assert contains(space, Seen(place=place, speed=speed)).tolist() == [True, False, False]
    assert contains(space, {"place": place, "speed": speed}).tolist() == [True, False, False]
    nested = Fields((("inner", space),))
    assert contains(nested, {"inner": Seen(place=place, speed=speed)}).tolist() == [True, False, False]
    assert field({"a": 1}, "a") == field(Seen(place=place, speed=speed), "place")[1] - 1


bounds = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.tuples(bounds, bounds).map(sorted), min_size=1, max_size=3), st.integers(0, 10**6))
def test_a_sample_of_a_bounded_box_is_a_member(pairs: list[list[float]], seed: int) -> None:
    box = Box(tuple(low for low, _ in pairs), tuple(high for _, high in pairs), (len(pairs),))
    samples = sample(box, keys.split(keys.key(seed), 100))
    assert contains(box, samples).all()
    assert samples.shape == (100, len(pairs))


UNBOUNDED = Box((3.0, -INF, -INF, -1.0), (INF, 2.0, INF, 1.0), (4,))


def test_samples_reach_as_far_as_their_bounds() -> None:
    samples = sample(UNBOUNDED, keys.split(keys.key(1), 4000))
    assert contains(UNBOUNDED, samples).all()
    assert samples.isfinite().all()
    up, down, free, between = samples.T
    for mean, wanted, spread in (
        (up.mean(), 4.0, 1.0),
        (down.mean(), 1.0, 1.0),
        (free.mean(), 0.0, 1.0),
        (between.mean(), 0.0, 0.58),
    ):
        assert abs(float(mean) - wanted) < 5 * spread / math.sqrt(4000)
    assert abs(float(free.var()) - 1) < 5 * math.sqrt(2 / 4000)
    assert abs(float(torch.corrcoef(samples.T).fill_diagonal_(0).abs().max())) < 5 / math.sqrt(4000)


def test_samples_of_a_discrete_space_are_all_its_members() -> None:
    assert set(sample(Discrete(4), keys.split(keys.key(2), 200)).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("space", [Discrete(3), Box(-1.0, 1.0, (2,)), Box(-INF, INF, ()), UNBOUNDED], ids=str)
def test_a_batch_of_samples_is_its_singles(space: Space) -> None:
    many = keys.split(keys.key(3), 3)
    singles = torch.stack([sample(space, one) for one in many])
    assert torch.equal(sample(space, many), singles)
    assert torch.equal(torch.vmap(lambda one: sample(space, one))(many), singles)


@pytest.mark.slow
def test_actions_can_be_sampled_and_judged_in_a_compiled_scan(compiled: Any) -> None:
    box = Box((0.0, -1.0), (1.0, 1.0), (2,))

    def program(many: Tensor) -> Any:
        return scan(lambda good, own: (good & contains(box, sample(box, own)), ()), torch.tensor(True), many)

    assert compiled(program)(keys.split(keys.key(4), 5))[0].item() is True


BLOCK = Fields((("gear", MultiDiscrete((2, 3))), ("rest", Tuple((MultiBinary(2), Box(0, 5, (2,), torch.int64))))))


def test_samples_of_a_tree_of_spaces_are_its_members_and_all_of_them() -> None:
    drawn = sample(BLOCK, keys.split(keys.key(5), 300))
    assert contains(BLOCK, drawn).all()
    gear, (lights, whole) = drawn["gear"], drawn["rest"]
    assert {tuple(row) for row in gear.tolist()} == set(itertools.product(range(2), range(3)))
    assert {tuple(row) for row in lights.tolist()} == set(itertools.product(range(2), range(2)))
    assert set(whole.flatten().tolist()) == set(range(6))
    singles = [sample(BLOCK, one) for one in keys.split(keys.key(5), 300)]
    assert torch.equal(torch.stack([one["rest"][1] for one in singles]), whole)
    assert torch.equal(torch.vmap(lambda one: sample(BLOCK, one))(keys.split(keys.key(5), 300))["gear"], gear)


OUTSIDE: dict[str, tuple[Space, Any]] = {
    "a digit too high": (MultiDiscrete((2, 3)), torch.tensor([0, 3])),
    "a negative digit": (MultiDiscrete((2, 3)), torch.tensor([-1, 0])),
    "a digit too few": (MultiDiscrete((2, 3)), torch.tensor([0])),
    "a float": (MultiBinary(2), torch.tensor([0.0, 1.0])),
    "not binary": (MultiBinary(2), torch.tensor([0, 2])),
    "one position of two": (Tuple((Discrete(2), Discrete(2))), (torch.tensor(0), torch.tensor(2))),
}


@pytest.mark.parametrize(("space", "value"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_outside(space: Space, value: Any) -> None:
    assert not contains(space, value).any()


def test_a_box_of_whole_numbers_takes_the_nearest_one_inside() -> None:
    box = Box((-1.5, -INF), (INF, 2.5), (2,), torch.int64)
    action = torch.tensor([[-9.0, 9.0], [0.4, -0.6], [1e30, -1e30]])
    clipped = clip_to_space(box, action)
    assert clipped.dtype == torch.int64
    assert clipped[:2].tolist() == [[-1, 2], [0, -1]]
    assert contains(box, clipped).all()
    assert contains(box, sample(box, keys.split(keys.key(6), 500))).all()
    wide = Box(-(2.0**63), 2.0**63, (1,), torch.int64)
    assert contains(wide, sample(wide, keys.split(keys.key(7), 100))).all()
    nested = clip_to_space(Tuple((Discrete(2), box)), (torch.tensor([0, 1, 1]), action))
    assert torch.equal(nested[1], clipped)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: MultiDiscrete([2, 3]),  # type: ignore[arg-type]
            r"MultiDiscrete: sizes is \[2, 3\], wanted a tuple of sizes; write \(3, 3\)",
        ),
        (lambda: MultiDiscrete((2, 0)), "MultiDiscrete: a size is 0, wanted a whole number, 1 or more"),
        (lambda: MultiBinary(0), "MultiBinary: n is 0"),
        (lambda: Box(0, 1, (2,), torch.bool), "Box: dtype is torch.bool, wanted torch.float32 or an integer type"),
    ],
)
def test_a_space_that_is_none_is_refused(make: Any, text: str) -> None:
    with pytest.raises(PurestepError, match=text):
        make()


def test_spaces_are_values() -> None:
    assert Box(0.0, 1.0, (2,)) == Box(0.0, 1.0, (2,)) != Box(0.0, 1.0, (3,))
    assert len({Discrete(2), Discrete(2), Fields((("a", Discrete(2)),))}) == 2
    with pytest.raises(AttributeError):
        Discrete(2).n = 3  # type: ignore[misc]
