"""Our losses, divergences and their gradients obey their laws."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.kl import k1, k2, k3
from purestep.algorithms.losses import clipped, policy_gradient, ppo_clip, squared
from purestep.properties import (
    ROUNDING,
    check,
    dyadic,
    gradient_laws,
    kl_laws,
    loss_laws,
    masked_loss_laws,
    smooth,
    step_laws,
)


def score(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """REINFORCE's loss, which does not know who acted."""
    return policy_gradient(log_prob, advantage)


def two_bounds(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Two equal bounds are one clip."""
    return ppo_clip(log_prob, behaviour_log_prob, advantage, clip=(clip, clip))


def neutralised(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """The mean over real steps, as the docstring of `policy_losses` tells to take it."""
    quiet = [torch.where(mask, x, 0.0) for x in (log_prob, behaviour_log_prob, advantage)]
    loss = ppo_clip(*quiet, clip=0.25)
    return torch.where(mask, loss, 0.0).sum() / mask.sum().clamp(min=1)


def clip_of(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The clipped loss as a step."""
    return ppo_clip(log_prob, behaviour_log_prob, advantage, clip=0.25)


def value_clip_of(value: Tensor, behaviour_value: Tensor, target: Tensor) -> Tensor:
    """The clipped value loss as a function of tensors."""
    return clipped(value, behaviour_value, target, clip=0.5)


triples = [st.tuples(dyadic((n,), limit=2), dyadic((n,), limit=2), dyadic((n,))) for n in (1, 3)]

test_ppo_clip = check(loss_laws(detached=True, nan_padding=True), ppo_clip, exact=True)
test_two_bounds = check(loss_laws(detached=True, nan_padding=True), two_bounds, exact=True)
test_policy_gradient = check(loss_laws(clipped=False, detached=True, nan_padding=True), score, exact=True)
test_masked = check(masked_loss_laws(nan_padding=True), neutralised, exact=True)
test_ppo_clip_as_a_step = check(step_laws(triples, tolerance=ROUNDING), clip_of)
test_squared = check(gradient_laws(st.tuples(smooth((2,)), smooth((2,))), constant=(1,)), squared)
test_clipped = check(gradient_laws(st.tuples(smooth((2,)), smooth((2,)), smooth((2,))), constant=(1, 2)), value_clip_of)
test_k1 = check(kl_laws(never_negative=False), k1, exact=True)
test_k2 = check(kl_laws(unbiased=False), k2, exact=True)
test_k3 = check(kl_laws(), k3, exact=True)
