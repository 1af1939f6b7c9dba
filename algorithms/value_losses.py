"""Losses of a value function: one number per step, never reduced; to be minimised. Targets are constants.

Both have the factor 1/2, so that their gradient is the error v - target. A value coefficient means the same as in trainers
that use 0.5 * mean(...) (OpenAI baselines, CleanRL); to reproduce a trainer whose loss is a mean of squares without the half
(Stable-Baselines3), use twice its coefficient here.
"""

import torch
from torch import Tensor

from ..core.shapes import same_shape
from .hyperparameters import Number, bounded, check_number


def squared(value: Tensor, target: Tensor) -> Tensor:
    """Return half the squared error.

    L = (v - target)^2 / 2

    Shapes: all [*]. Raises: ShapeError.

    >>> squared(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([2.])
    """
    same_shape("squared", value=value, target=target)
    return 0.5 * (value - target.detach()).square()


def clipped(value: Tensor, behaviour_value: Tensor, target: Tensor, *, clip: Number) -> Tensor:
    """Return half the larger of two squared errors: of the value, and of the value clipped around its old value.

    L = max((v - target)^2, (b + min(max(v - b, -clip), clip) - target)^2) / 2

    `behaviour_value` b is the value when the data were collected, a constant. The gradient is 0 where v is more than `clip`
    away from b and nearer to the target than that bound. `clip` has the scale of the returns.

    Shapes: all [*]. Raises: ShapeError, ChoiceError.  Source: the PPO2 code of OpenAI baselines (2017); it is in no paper.

    >>> clipped(torch.tensor([2.0, 2.0]), torch.zeros(2), torch.tensor([2.0, -1.0]), clip=0.5)
    tensor([1.1250, 4.5000])
    """
    same_shape("clipped", value=value, behaviour_value=behaviour_value, target=target)
    check_number("clipped: clip", clip, 0.0)
    anchor, goal = behaviour_value.detach(), target.detach()
    near = anchor + bounded(value - anchor, -clip, clip)
    return 0.5 * torch.maximum((value - goal).square(), (near - goal).square())
