"""Value losses: values by hand, exact gradients, constants."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.losses import clipped, squared
from purestep.core.errors import ChoiceError, ShapeError


def test_squared_carries_the_half() -> None:
    value, target = torch.tensor([3.0, -1.0]), torch.tensor([1.0, -1.0])
    assert squared(value, target).tolist() == [2.0, 0.0]
    assert torch.func.grad(lambda v: squared(v, target).sum())(value).tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (1.25, 3.0, 1.53125, -1.75),  # moved less than the clip: the plain error
        (2.0, 3.0, 1.125, 0.0),  # nearer to the target than the bound 1.5 allows
        (5.0, 2.0, 4.5, 3.0),  # beyond the target, farther than the bound: the plain error
        (0.0, -1.0, 1.125, 0.0),  # the same below, bound 0.5
        (0.0, 3.0, 4.5, -3.0),  # moved away from the target
    ],
)
def test_clipped_by_hand(value: float, target: float, loss: float, slope: float) -> None:
    anchor, goal = torch.tensor(1.0), torch.tensor(target)
    gradient, result = torch.func.grad_and_value(lambda v: clipped(v, anchor, goal, clip=0.5))(torch.tensor(value))
    assert (result.item(), gradient.item()) == (loss, slope)


def test_clipped_is_at_least_squared_and_equal_without_a_bound() -> None:
    numbers = torch.randint(-31, 32, (3, 200), generator=torch.Generator().manual_seed(0)).float() / 4
    value, anchor, target = numbers
    assert bool((clipped(value, anchor, target, clip=0.5) >= squared(value, target)).all())
    assert torch.equal(clipped(value, anchor, target, clip=math.inf), squared(value, target))
    assert torch.equal(clipped(anchor, anchor, target, clip=0.5), squared(anchor, target))


def test_targets_and_anchors_are_constants() -> None:
    def total(value: Tensor, anchor: Tensor, target: Tensor) -> Tensor:
        return (clipped(value, anchor, target, clip=0.5) + squared(value, target)).sum()

    inputs = torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([0.0])
    slopes = torch.func.grad(total, argnums=(0, 1, 2))(*inputs)
    assert [slope.item() for slope in slopes] == [6.0, 0.0, 0.0]


def test_a_batch_is_its_singles_and_one_graph(compiled: Any) -> None:
    value, anchor, target = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))

    def loss(value: Tensor, anchor: Tensor, target: Tensor) -> Tensor:
        return clipped(value, anchor, target, clip=0.5) + squared(value, target)

    whole = loss(value, anchor, target)
    assert torch.equal(torch.vmap(torch.vmap(loss))(value, anchor, target), whole)
    assert torch.equal(compiled(loss)(value, anchor, target), whole)
    clips = torch.tensor([0.25, 0.5], dtype=torch.float64)
    mapped = torch.vmap(lambda clip: clipped(value, anchor, target, clip=clip))(clips)
    assert mapped.dtype == torch.float32
    assert torch.equal(mapped[1], clipped(value, anchor, target, clip=0.5))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"squared: target is \[2, 1\], wanted \[2\]"):
        squared(torch.zeros(2), torch.zeros(2, 1))
    with pytest.raises(ChoiceError, match="clipped: clip is -1"):
        clipped(torch.zeros(2), torch.zeros(2), torch.zeros(2), clip=-1.0)
    with pytest.raises(ShapeError, match="clipped: behaviour_value"):
        clipped(torch.zeros(2), torch.zeros(1), torch.zeros(2), clip=0.5)
