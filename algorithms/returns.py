"""Returns: the discounted rewards after a step, with bootstrapping beyond a cut.

In all functions a truncation bootstraps from the value of next_observation, a termination does not, and the end of the stream
is a truncation. `next_values` belong to next_observation, before a reset. Shapes are [T] for one stream; further
axes [T, *] are independent streams.
"""

import torch
from torch import Tensor

from ..core.errors import ChoiceError, message
from ..core.scan import backwards
from ..core.shapes import boolean, same_shape
from ..core.steps import ended, trace_mask
from .advantages import bootstrap, gae
from .hyperparameters import Number, check_number


def stream_cuts(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return whether the stream is cut after a row: at the end of an episode, and at the last row: bool [T, *].

    >>> stream_cuts(torch.tensor([False, True, False]), torch.zeros(3, dtype=torch.bool))
    tensor([False,  True,  True])
    """
    over = ended(terminated, truncated)
    return torch.cat([over[:-1], torch.ones_like(over[-1:])])


def discounted(
    rewards: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Number,
    next_values: Tensor | tuple[()] = (),
) -> Tensor:
    """Return discounted sums of rewards up to the episode's end.

    G_t = r_t + gamma G_t+1 inside an episode,    G_t = r_t + gamma (1 - terminated_t) v'_t at a cut

    Without `next_values` there is no bootstrap: rewards after a truncation, or after the last row, count as 0.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Sutton and Barto 2018, equation 3.9.

    >>> no = torch.zeros(3, dtype=torch.bool)
    >>> discounted(torch.ones(3), torch.tensor([False, True, False]), no, gamma=0.5, next_values=torch.full((3,), 8.0))
    tensor([1.5000, 1.0000, 5.0000])
    """
    same_shape("discounted", rewards=rewards, terminated=terminated, truncated=truncated)
    boolean("discounted", terminated=terminated, truncated=truncated)
    check_number("discounted: gamma", gamma, 0.0, 1.0)
    slopes = gamma * trace_mask(terminated, truncated, rewards.dtype)
    if isinstance(next_values, tuple):
        return backwards(slopes, rewards)
    same_shape("discounted", rewards=rewards, next_values=next_values)
    beyond = torch.where(stream_cuts(terminated, truncated), bootstrap(next_values, terminated), 0.0)
    return backwards(slopes, rewards + gamma * beyond)


def n_step(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: Number, n: int
) -> Tensor:
    """Return n-step returns: n rewards and then the value, or fewer rewards if a cut comes first.

    G_t = sum_{k<m} gamma^k r_t+k + gamma^m (1 - terminated_t+m-1) v'_t+m-1,    m = min(n, rows up to the cut)

    It makes n - 1 passes over the rows; from n = T on it equals `discounted`.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Sutton and Barto 2018, equation 7.1.

    >>> no = torch.zeros(3, dtype=torch.bool)
    >>> n_step(torch.ones(3), torch.full((3,), 8.0), no, no, gamma=0.5, n=2)
    tensor([3.5000, 3.5000, 5.0000])
    """
    same_shape("n_step", rewards=rewards, next_values=next_values, terminated=terminated, truncated=truncated)
    boolean("n_step", terminated=terminated, truncated=truncated)
    check_number("n_step: gamma", gamma, 0.0, 1.0)
    if n < 1:
        raise ChoiceError(message("n_step: n", got=n, wanted="at least 1", remedy="count the rewards before the value"))
    over = stream_cuts(terminated, truncated)
    one = rewards + gamma * bootstrap(next_values, terminated)
    returns = one
    for _ in range(min(n, rewards.shape[0]) - 1):
        following = torch.cat([returns[1:], returns[-1:]])
        returns = torch.where(over, one, rewards + gamma * following)
    return returns


def lambda_returns(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Number,
    lambda_: Number,
) -> Tensor:
    """Return the targets of TD(lambda): values plus generalized advantages.

    G_t = v_t + A_t; where v'_t = v_t+1 inside an episode, this is the average of n-step returns with weights
    (1 - lambda_) lambda_^(n - 1); the longest one has the remaining weight.

    Raises: ShapeError, DtypeError, ChoiceError.
    Source: Sutton and Barto 2018, equation 12.3; Schulman et al. 2016, arXiv:1506.02438.

    >>> no = torch.zeros(2, dtype=torch.bool)
    >>> lambda_returns(torch.ones(2), torch.tensor([9.0, 4.0]), torch.tensor([4.0, 8.0]), no, no, gamma=0.5, lambda_=0.5)
    tensor([3.2500, 5.0000])
    """
    return values + gae(rewards, values, next_values, terminated, truncated, gamma=gamma, lambda_=lambda_)
