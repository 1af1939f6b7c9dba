"""The decoupled clipped surrogate: the policy that sampled a token and the proximal policy of the clip may differ.

The sampler may be several updates old, or another inference engine. The clipped ratio is then taken against a recent
proximal policy, and the loss is weighted by the ratio of proximal to sampling probability of the token. If both policies are
the same, it is `token_clip`. Proximal log-probs come from the transcripts, whose column may be updated segment by segment
(`with_proximal`), from a forward pass before the update, or from `interpolated`, which needs no forward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..core.errors import choose
from ..core.shapes import same_shape
from .importance import importance_weights
from .language.masking import neutral
from .language.token_losses import Clip, token_clip

Weights = Callable[[Tensor, Tensor, Tensor], Tensor]  # (log_prob, sampler_log_prob, mask) -> [*, L]


def decoupled_clip(
    log_prob: Tensor,
    proximal_log_prob: Tensor,
    behaviour_log_prob: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip: Clip,
    weights: Weights = importance_weights,
) -> Tensor:
    """Return w max(-A r, -A min(max(r, 1 - low), 1 + high)), r = p / q, w = sg(q / b), for each token in the mask.

    p is the policy, q the proximal policy, b the sampling policy. `weights` may bound w or mask tokens: AReaL's and
    verl's choices are `partial(truncated_weights, high=...)` and `partial(masked_weights, ...)`.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Hilton et al. 2021, arXiv:2110.00641; Fu et al. 2025, arXiv:2505.24298, section 5 (AReaL).

    >>> log_prob, proximal = torch.tensor([8.0, 2.0]).log(), torch.tensor([4.0, 1.0]).log()
    >>> mask = torch.tensor([True, True])
    >>> decoupled_clip(log_prob, proximal, torch.tensor([2.0, 1.0]).log(), torch.ones(2), mask, clip=0.5)
    tensor([-3.0000, -1.5000])
    """
    same_shape("decoupled_clip", log_prob=log_prob, proximal_log_prob=proximal_log_prob, mask=mask)
    loss = token_clip(log_prob, proximal_log_prob, advantage, mask, clip=clip)
    return weights(proximal_log_prob, behaviour_log_prob, mask) * loss


def interpolation(version: Tensor, current: Tensor | int) -> Tensor:
    """Return the position of the previous weights between the sampling and the current ones: int [*] -> float32 [*].

    a = (v - 1 - v_t) / (v - v_t) where 0 <= v_t < v, else 0

    v is the version of the weights being trained, v_t the one that sampled the token; tokens without a version get 0. It
    is 0 for the newest tokens and always below 1. Source: AReaL's approximation of proximal log-probs; arXiv:2512.06547.

    >>> interpolation(torch.tensor([3, 2, 1, 0, -1]), 3)
    tensor([0.0000, 0.0000, 0.5000, 0.6667, 0.0000])
    """
    lag = current - version
    return torch.where((version >= 0) & (lag > 0), (lag - 1) / lag.clamp(min=1), 0.0).to(torch.float32)


def interpolated(
    log_prob: Tensor, behaviour_log_prob: Tensor, share: Tensor, mask: Tensor, *, form: str = "loglinear"
) -> Tensor:
    """Return proximal log-probs without a forward pass, interpolated between sampling and current policy; a constant.

    "loglinear"    log q = (1 - a) log b + a log p, so that log(p / q) = (1 - a) log(p / b)
    "linear"       q = (1 - a) b + a p

    `share` is a, from 0 to below 1: see `interpolation`. Padding may hold anything and gives 0.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.  Source: arXiv:2512.06547.

    >>> log_prob, half = torch.tensor([4.0, 1.0]).log(), torch.full((2,), 0.5)
    >>> mask = torch.tensor([True, False])
    >>> [interpolated(log_prob, torch.zeros(2), half, mask, form=form).exp() for form in ("loglinear", "linear")]
    [tensor([2., 1.]), tensor([2.5000, 1.0000])]
    """
    same_shape("interpolated", log_prob=log_prob, behaviour_log_prob=behaviour_log_prob, share=share, mask=mask)
    between = choose("interpolated: form", form, {"loglinear": _loglinear, "linear": _linear})
    now, before, part = neutral(mask, log_prob.detach(), behaviour_log_prob.detach(), share)
    return torch.where(mask, between(now, before, part), 0.0)


def _loglinear(log_prob: Tensor, behaviour: Tensor, share: Tensor) -> Tensor:
    # If the current log-prob is -inf and the share is 0, the product would be NaN.
    return torch.where(share > 0, behaviour + share * (log_prob - behaviour), behaviour)


def _linear(log_prob: Tensor, behaviour: Tensor, share: Tensor) -> Tensor:
    return torch.logaddexp(torch.log1p(-share) + behaviour, share.log() + log_prob)
