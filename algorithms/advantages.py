"""Advantages: the return after an action minus the value that was predicted for the state."""

import torch
from torch import Tensor

from ..core.scan import backwards
from ..core.shapes import boolean, same_shape
from ..core.steps import bootstrap_mask, trace_mask
from .hyperparameters import Number, check_number


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Number,
    lambda_: Number,
) -> Tensor:
    """Generalized advantage estimation of one stream.

    A_t = d_t + gamma lambda_ (1 - ended_t) A_t+1,    d_t = r_t + gamma (1 - terminated_t) v'_t - v_t

    with A_T = 0. `next_values` v' belong to next_observation, before a reset: a truncation bootstraps from v'_t, and so
    does the last row, whether its episode continues or not; a termination ignores v'_t. Nothing is detached. A NaN anywhere
    else propagates to all earlier rows of its stream, including those of other episodes.

    Shapes: all [T]; further axes [T, *] are independent streams, so a batch [T, B] needs no vmap.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Schulman et al. 2016, arXiv:1506.02438.

    >>> rewards, values, next_values = torch.ones(3), torch.zeros(3), torch.full((3,), 2.0)
    >>> terminated, truncated = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    >>> gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=1.0)
    tensor([2.5000, 1.0000, 2.0000])
    """
    same_shape("gae", rewards=rewards, values=values, next_values=next_values)
    same_shape("gae", rewards=rewards, terminated=terminated, truncated=truncated)
    boolean("gae", terminated=terminated, truncated=truncated)
    check_number("gae: gamma", gamma, 0.0, 1.0)
    check_number("gae: lambda_", lambda_, 0.0, 1.0)
    errors = rewards + gamma * bootstrap(next_values, terminated) - values
    return backwards(gamma * lambda_ * trace_mask(terminated, truncated, errors.dtype), errors)


def bootstrap(next_values: Tensor, terminated: Tensor) -> Tensor:
    """Return the value of the next state: `next_values`, replaced by 0 where the episode terminated: [*].

    >>> bootstrap(torch.tensor([2.0, torch.inf]), torch.tensor([False, True]))
    tensor([2., 0.])
    """
    return torch.where(bootstrap_mask(terminated, torch.bool), next_values, 0.0)
