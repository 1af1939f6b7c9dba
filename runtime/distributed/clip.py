"""Clipping of sharded gradients with results that do not depend on the sharding."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ...core.numbers import Number
from ...core.optim.interface import Optimizer
from ...core.optim.optimizers import NumbersState, clip_by_global_norm
from ...core.tree import leaves, tree_map


def clip_by_whole_norm(max_norm: Number) -> Optimizer:
    """Return the optimiser that clips gradients: g min(1, max_norm / (|g| + 1e-6)), with |g| over all leaves, in float64.

    `clip_by_global_norm` with the squares added in float64, so that their order does not change the result in float32. With
    `clip_by_global_norm` itself, other numbers of ranks differ in the last bit of a clipped gradient.

    >>> clip = clip_by_whole_norm(1.0)
    >>> clip.update(torch.tensor([3.0, 4.0]), clip.init(torch.zeros(2)), torch.zeros(2))[0]
    tensor([0.6000, 0.8000])
    """

    def update(gradients: Any, state: NumbersState, params: Any) -> tuple[Any, NumbersState]:
        del params
        squares = [leaf.double().square().sum() for leaf in leaves(gradients)]
        norm = reduce(torch.add, squares).sqrt()
        coefficient = (state.hyperparameters["max_norm"] / (norm + 1e-6)).clamp(max=1.0)

        def shortened(leaf: Tensor) -> Tensor:
            result: Tensor = coefficient.to(leaf.dtype) * leaf
            return result

        return tree_map(shortened, gradients), state

    return Optimizer(init=clip_by_global_norm(max_norm).init, update=update)
