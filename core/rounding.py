"""Rounding to formats below float32, by arithmetic that a compiler cannot remove.

A compiler that fuses a step keeps its intermediate values in float32 and drops casts to bfloat16 and back, so that a cast
rounds in an eager step but not in a compiled one. Use `rounded` for values that must be rounded in both.
"""

import torch
from torch import Tensor

DROPPED = {torch.bfloat16: 16, torch.float16: 13}  # bits of a float32's significand that the format does not have


def below_float32(leaf: Tensor) -> bool:
    """Return whether a tensor is bfloat16 or float16.

    >>> below_float32(torch.ones(1, dtype=torch.bfloat16)), below_float32(torch.ones(1))
    (True, False)
    """
    return leaf.dtype in DROPPED


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the nearest numbers of bfloat16 or float16, ties to even: float32 [*] -> [*].

    Equal to `value.to(dtype).float()` in every lowering, except for the sign of 0. Its gradient is that of the identity.

    >>> rounded(torch.tensor([1.0, 1.004]), torch.bfloat16)
    tensor([1.0000, 1.0078])
    """
    dropped, still = DROPPED[dtype], value.detach()
    bits = still.view(torch.int32)
    bits = bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)
    near = (bits & -(1 << dropped)).view(torch.float32)
    if dtype == torch.float16:
        limits = torch.finfo(dtype)
        # The spacing of float32 numbers near 0.75 is that of float16 below its smallest normal number.
        near = torch.where(still.abs() < limits.tiny, (still + 0.75) - 0.75, near)
        near = torch.where(near.abs() > limits.max, near * torch.inf, near)
    return torch.where(torch.isfinite(still), value + (near - still), value)
