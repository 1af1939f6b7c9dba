"""Losses of a policy: one number per step, never reduced; to be minimised.

Advantages and behaviour log-probs are constants here: no gradient flows into them. Every entry depends on the inputs at
its own index alone. Mask padded steps before the loss, not after it: `torch.where(mask, x, 0.0)` on each input gives that
entry the gradient 0, whatever its value. `torch.where(mask, loss, 0.0)` masks the value only: the chain rule still
multiplies its 0 by an infinite ratio or a NaN.
"""

import math

import torch
from torch import Tensor

from ..core.shapes import same_shape
from .hyperparameters import Number, bounded, check_clip


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Return the policy-gradient loss, whose gradient is that of the expected return, negated.

    L = -A log p(a)

    Shapes: all [*]. Raises: ShapeError.  Source: Williams 1992, doi:10.1007/BF00992696; Sutton et al. 2000.

    >>> policy_gradient(torch.tensor([-2.0, -0.5]), torch.tensor([1.0, -4.0]))
    tensor([ 2., -2.])
    """
    same_shape("policy_gradient", log_prob=log_prob, advantage=advantage)
    return -advantage.detach() * log_prob


def ppo_clip(
    log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: Number | tuple[Number, Number]
) -> Tensor:
    """Return the negated clipped surrogate of proximal policy optimisation: the larger, hence pessimistic, of two losses.

    L = max(-A r, -A min(max(r, 1 - low), 1 + high)),    r = exp(log p(a) - log b(a))

    `clip` is one number for low and high, or the pair. The gradient is 0 exactly where A > 0 and r > 1 + high, or A < 0
    and r < 1 - low; elsewhere it is that of -A r. With clip = infinity nothing is clipped, except that where A > 0 a ratio
    that would overflow is limited to about the largest number of its dtype.

    Shapes: all [*]. Raises: ShapeError, ChoiceError.  Source: Schulman et al. 2017, arXiv:1707.06347, equation 7; two
    bounds: Yu et al. 2025, arXiv:2503.14476.

    >>> log_prob = torch.log(torch.tensor([2.0, 2.0, 0.5, 0.5]))
    >>> ppo_clip(log_prob, torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0]), clip=0.25)
    tensor([-1.2500,  2.0000, -0.5000,  0.7500])

    A padded step, masked:

    >>> padded, mask = torch.tensor([-1.0, torch.nan], requires_grad=True), torch.tensor([True, False])
    >>> loss = ppo_clip(torch.where(mask, padded, 0.0), torch.tensor([-1.0, 0.0]), torch.tensor([2.0, 0.0]), clip=0.25)
    >>> torch.autograd.grad(loss.sum(), padded)
    (tensor([-2.,  0.]),)
    """
    same_shape("ppo_clip", log_prob=log_prob, behaviour_log_prob=behaviour_log_prob, advantage=advantage)
    low, high = check_clip("ppo_clip: clip", clip)
    log_ratio = log_prob - behaviour_log_prob.detach()
    # An infinite ratio is clipped where A > 0, but would turn the 0 of the backward pass into NaN.
    ceiling = math.log(torch.finfo(log_ratio.dtype).max) - 1.0
    ratio = torch.exp(torch.where(advantage > 0, bounded(log_ratio, high=ceiling), log_ratio))
    scale = -advantage.detach()
    return torch.maximum(scale * ratio, scale * bounded(ratio, 1 - low, 1 + high))
