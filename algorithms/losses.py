"""Losses of a policy and of its values: one number per step, never reduced, to be minimised; and their sum.

Advantages, behaviour log-probs and targets are constants here: no gradient flows into them. Every entry depends on the inputs
at its own index alone. Mask padded steps before the loss, not after it: `torch.where(mask, x, 0.0)` on each input gives that
entry the gradient 0, whatever its value. `torch.where(mask, loss, 0.0)` masks the value only: the chain rule still
multiplies its 0 by an infinite ratio or a NaN.

Losses of values have the factor 1/2, so that their gradient is the error v - target. A value coefficient means the same as in
trainers that use 0.5 * mean(...) (OpenAI baselines, CleanRL); to reproduce a trainer whose loss is a mean of squares without
the half (Stable-Baselines3), use twice its coefficient here.
"""

import math

import torch
from torch import Tensor

from ..core.shapes import same_shape
from .hyperparameters import Number, Numbers, bounded, check_clip, check_number, scaled


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


def total_loss(policy_loss: Tensor, value_loss: Tensor, entropy: Tensor, numbers: Numbers) -> Tensor:
    """Return policy_loss + value_coefficient value_loss - entropy_coefficient entropy, all [].

    A language model's loss has an entropy of its own: it is averaged by the counts of tokens in the whole batch.

    >>> terms = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)
    >>> total_loss(*terms, {"value_coefficient": 0.5, "entropy_coefficient": 0.25})
    tensor(1.)
    """
    total = policy_loss + scaled(numbers["value_coefficient"], value_loss)
    return total - scaled(numbers["entropy_coefficient"], entropy)
