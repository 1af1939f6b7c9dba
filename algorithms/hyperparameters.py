"""Numbers that set an algorithm: plain, or tensors so that a population with different ones is one vmap."""

import math

from torch import Tensor

Number = float | Tensor  # a tensor has no axes but those that vmap hides


def bounded(x: Tensor, low: Number = -math.inf, high: Number = math.inf) -> Tensor:
    """min(max(x, low), high) in the dtype of x, with the gradient of x up to and on the bounds and 0 beyond: [*].

    >>> bounded(torch.tensor([0.0, 2.0, 9.0]), 1.0, torch.tensor(4.0, dtype=torch.float64))
    tensor([1., 2., 4.])
    """
    # Under vmap clamp takes the wider dtype of a tensor without axes, which elsewhere does not count.
    low, high = (bound.to(x.dtype) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return x.clamp(min=low).clamp(max=high)
