"""Running means and variances as values, to normalise observations and scale rewards.

Only `update` changes statistics: to freeze them, do not call it.
"""

import math

import torch
from torch import Tensor

from .errors import ShapeError, message
from .record import record, replace, tensor
from .scan import scan
from .shapes import same_shape
from .steps import ended


@record
class Statistics:
    """Count, mean and variance of the data so far; initially mean 0 and variance 1, which normalise to the identity."""

    count: Tensor  # [] float64, exact up to 2**53
    mean: Tensor  # [D] or any shape, float
    variance: Tensor  # like mean; of the population: divided by count


def statistics(
    shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Statistics:
    """Return statistics of no data.

    >>> normalize(statistics((2,)), torch.tensor([3.0, -1.0]), eps=0.0)
    tensor([ 3., -1.])
    """
    return Statistics(
        count=torch.zeros((), dtype=torch.float64, device=device),
        mean=torch.zeros(shape, dtype=dtype, device=device),
        variance=torch.ones(shape, dtype=dtype, device=device),
    )


def of_batch(batch: Tensor, ndim: int = 1) -> Statistics:
    """Return the statistics of batch [*, D], whose last `ndim` axes are those of one observation.

    >>> of_batch(torch.tensor([[1.0], [3.0]])).variance
    tensor([1.])
    """
    lead = batch.ndim - ndim
    count = torch.full((), math.prod(batch.shape[:lead]), dtype=torch.float64, device=batch.device)
    if lead == 0:
        return Statistics(count=count, mean=batch.clone(), variance=torch.zeros_like(batch))
    axes = tuple(range(lead))
    mean = batch.mean(axes)
    return Statistics(count=count, mean=mean, variance=((batch - mean) ** 2).mean(axes))


def merge(first: Statistics, second: Statistics) -> Statistics:
    """Return the statistics of both together; associative and commutative up to rounding.

    With f = n_2 / (n_1 + n_2) and d = m_2 - m_1:  m = m_1 + f d,  v = (1 - f) v_1 + f v_2 + f (1 - f) d^2.
    Source: Chan, Golub and LeVeque 1979, written with variances, which do not grow with the count.

    >>> merge(of_batch(torch.tensor([[1.0]])), of_batch(torch.tensor([[3.0]]))).variance
    tensor([1.])
    """
    same_shape("merge: mean", first=first.mean, second=second.mean)
    count = first.count + second.count
    f = (second.count / count.clamp_min(1.0)).to(first.mean.dtype)
    difference = second.mean - first.mean
    variance = (1.0 - f) * first.variance + f * second.variance + f * (1.0 - f) * difference * difference
    return Statistics(count=count, mean=first.mean + f * difference, variance=variance)


def update(current: Statistics, batch: Tensor) -> Statistics:
    """Return the statistics of `current` and batch [*, *shape], with any leading axes, together.

    Raises: ShapeError.

    >>> update(statistics((1,)), torch.tensor([[1.0], [3.0]])).mean
    tensor([2.])
    """
    shape = tuple(current.mean.shape)
    if tuple(batch.shape[max(batch.ndim - len(shape), 0) :]) != shape or batch.ndim < len(shape):
        remedy = "make the statistics with the shape of one observation"
        raise ShapeError(message("update: batch", got=list(batch.shape), wanted=f"[*, *{list(shape)}]", remedy=remedy))
    return merge(current, of_batch(batch.to(current.mean.dtype), len(shape)))


def normalize(current: Statistics, x: Tensor, *, clip: float = math.inf, eps: float = 1e-8) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), clipped to [-clip, clip]: [*, *shape] -> the same.

    >>> normalize(of_batch(torch.tensor([[1.0], [5.0]])), torch.tensor([4.0]))
    tensor([0.5000])
    """
    return ((x - current.mean) * torch.rsqrt(current.variance + eps)).clamp(-clip, clip)


@record
class RewardScale:
    """State of `update_reward_scale`: the discounted return so far in each env, and the statistics of these returns."""

    running_return: Tensor = tensor("*", "float")  # 0 at the start of an episode
    returns: Statistics  # of shape ()


def reward_scale(
    shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> RewardScale:
    """Return the scale for envs of the given shape, before any reward.

    >>> scale_rewards(reward_scale(), torch.tensor(3.0), eps=0.0)
    tensor(3.)
    """
    zero = torch.zeros(shape, dtype=dtype, device=device)
    return RewardScale(running_return=zero, returns=statistics(dtype=dtype, device=device))


def update_reward_scale(
    current: RewardScale, rewards: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float | Tensor
) -> RewardScale:
    """Compute the discounted returns along a trajectory, and add them all to the statistics.

    R_t = gamma (1 - ended_{t-1}) R_{t-1} + r_t, an episode starting with R = 0. R_t runs forward in time: it discounts past
    rewards by their age and needs no future ones. Shapes: all [T, *], running_return [*]; for one step pass T = 1.
    Raises: ShapeError.  Source: Engstrom et al. 2020, arXiv:2005.12729.

    >>> no, yes = torch.tensor([False, False, False]), torch.tensor([False, True, False])
    >>> float(update_reward_scale(reward_scale(), torch.ones(3), yes, no, gamma=0.5).returns.mean * 3)
    3.5
    """
    same_shape("update_reward_scale", rewards=rewards, terminated=terminated, truncated=truncated)
    if rewards.shape[1:] != current.running_return.shape:
        wanted, remedy = f"[T, *{list(current.running_return.shape)}]", "put time first"
        raise ShapeError(message("update_reward_scale: rewards", got=list(rewards.shape), wanted=wanted, remedy=remedy))

    rate = gamma.to(rewards.dtype) if isinstance(gamma, Tensor) else gamma

    def step(running: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        reward, over = x
        total = rate * running + reward
        return torch.where(over, 0.0, total), total

    running, totals = scan(step, current.running_return, (rewards, ended(terminated, truncated)))
    return replace(current, running_return=running, returns=update(current.returns, totals))


def scale_rewards(current: RewardScale, rewards: Tensor, *, clip: float = math.inf, eps: float = 1e-8) -> Tensor:
    """Return rewards / sqrt(variance of returns + eps), clipped to [-clip, clip]; not centred, which would change the task.

    >>> scale = RewardScale(running_return=torch.zeros(()), returns=of_batch(torch.tensor([0.0, 4.0]), 0))
    >>> scale_rewards(scale, torch.tensor([1.0, -8.0]), clip=3.0)
    tensor([ 0.5000, -3.0000])
    """
    return (rewards * torch.rsqrt(current.returns.variance + eps)).clamp(-clip, clip)
