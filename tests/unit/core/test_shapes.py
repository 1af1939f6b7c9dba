"""The checks at the entries of estimators and losses."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import DtypeError, ShapeError
from purestep.core.shapes import boolean, rank, same_shape

shapes = st.lists(st.integers(0, 3), max_size=3)


@given(st.lists(shapes, min_size=1, max_size=3))
def test_same_shape_is_equality_with_the_first(several: list[list[int]]) -> None:
    tensors = {f"t{i}": torch.zeros(shape) for i, shape in enumerate(several)}
    if all(shape == several[0] for shape in several):
        same_shape("f", **tensors)
    else:
        i = next(i for i, shape in enumerate(several) if shape != several[0])
        text = f"f: t{i} is {several[i]}, wanted {several[0]} as t0; pass tensors of one shape"
        with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
            same_shape("f", **tensors)


@given(shapes, st.integers(0, 3))
def test_rank_counts_axes(shape: list[int], ndim: int) -> None:
    if len(shape) == ndim:
        rank("f", ndim, good=torch.zeros(ndim * [1]), x=torch.zeros(shape))
    else:
        remedy = "use torch.vmap for further axes" if len(shape) > ndim else "add the missing axes"
        with pytest.raises(ShapeError, match=re.escape(f"f: x is {shape}, wanted {ndim} axes; {remedy}")):
            rank("f", ndim, good=torch.zeros(ndim * [1]), x=torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_boolean_wants_bool_of_all(dtype: torch.dtype) -> None:
    boolean("f", a=torch.ones(2) > 0, b=torch.ones(()) > 0)
    with pytest.raises(DtypeError, match=f"f: b is {dtype}, wanted torch.bool; compare or convert it"):
        boolean("f", a=torch.ones(2) > 0, b=torch.ones(2, dtype=dtype))


def test_checks_see_one_stream_inside_vmap() -> None:
    def call(x: Tensor) -> Tensor:
        rank("f", 1, x=x)
        same_shape("f", x=x, y=torch.ones(3))
        return x

    assert torch.vmap(call)(torch.ones(2, 3)).shape == (2, 3)
    with pytest.raises(ShapeError):
        call(torch.ones(2, 3))
