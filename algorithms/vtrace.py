"""V-trace: off-policy value targets and advantages, from actions of an older or different policy."""

import torch
from torch import Tensor

from ..core.record import record, tensor
from ..core.scan import backwards
from ..core.shapes import boolean, same_shape
from ..core.steps import trace_mask
from .advantages import bootstrap
from .hyperparameters import Number, bounded, check_number
from .returns import stream_cuts


@record
class VTrace:
    """The result of `vtrace`."""

    targets: Tensor = tensor("*", "float")  # vs, for the value loss
    advantages: Tensor = tensor("*", "float")  # for `policy_gradient`, including the ratio


def vtrace(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Number,
    lambda_: Number = 1.0,
    rho_bar: Number = 1.0,
    c_bar: Number = 1.0,
) -> VTrace:
    """Return V-trace targets and advantages of one stream, with w_t = exp(log_ratios_t) = pi(a_t) / mu(a_t).

    target_t = v_t + x_t,    x_t = min(rho_bar, w_t) d_t + gamma lambda_ min(c_bar, w_t) (1 - ended_t) x_t+1
    d_t = r_t + gamma (1 - terminated_t) v'_t - v_t
    advantage_t = min(rho_bar, w_t) (r_t + gamma (1 - terminated_t) u_t - v_t)

    u_t is target_t+1, and v'_t where a cut comes after row t: at a truncation and at the last row. `next_values` v' belong
    to next_observation, before a reset. rho_bar determines the fixed point (the value of the policy proportional to
    min(rho_bar mu, pi)), c_bar the speed; the paper assumes rho_bar >= c_bar. Nothing is detached; the losses detach.

    Shapes: all [T]; further axes [T, *] are independent streams. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Espeholt et al. 2018, arXiv:1802.01561, section 4; lambda_ as in its remark 2, in the targets only.

    >>> no, two = torch.zeros(2, dtype=torch.bool), torch.full((2,), 2.0)
    >>> out = vtrace(torch.zeros(2), torch.ones(2), torch.zeros(2), two, no, no, gamma=0.5)
    >>> out.targets, out.advantages
    (tensor([3., 2.]), tensor([2., 2.]))
    """
    same_shape("vtrace", rewards=rewards, log_ratios=log_ratios, values=values, next_values=next_values)
    same_shape("vtrace", rewards=rewards, terminated=terminated, truncated=truncated)
    boolean("vtrace", terminated=terminated, truncated=truncated)
    check_number("vtrace: gamma", gamma, 0.0, 1.0)
    check_number("vtrace: lambda_", lambda_, 0.0, 1.0)
    check_number("vtrace: rho_bar", rho_bar, 0.0)
    check_number("vtrace: c_bar", c_bar, 0.0)
    ratios = torch.exp(log_ratios)
    rho, c = bounded(ratios, high=rho_bar), bounded(ratios, high=c_bar)
    errors = rewards + gamma * bootstrap(next_values, terminated) - values
    slopes = gamma * lambda_ * c * trace_mask(terminated, truncated, errors.dtype)
    targets = values + backwards(slopes, rho * errors)
    following = torch.where(stream_cuts(terminated, truncated), next_values, torch.cat([targets[1:], targets[-1:]]))
    advantages = rho * (rewards + gamma * bootstrap(following, terminated) - values)
    return VTrace(targets=targets, advantages=advantages)
