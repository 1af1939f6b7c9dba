"""Group advantages as people get them wrong: each has the signature (reward [N], group [N], *, groups) -> [N]."""

from collections.abc import Callable

import torch
from torch import Tensor

Estimator = Callable[..., Tensor]


def _member(group: Tensor, groups: int) -> Tensor:
    return (group == torch.arange(groups)[:, None]).float()


def batch_mean(estimator: Estimator) -> Estimator:
    """Compares answers to different questions."""
    return lambda reward, group, *, groups: estimator(reward, torch.where(group < 0, group, 0), groups=groups)


def uncentred(estimator: Estimator) -> Estimator:
    """Leaves a tenth of the reward in."""
    return lambda reward, group, *, groups: (
        estimator(reward, group, groups=groups) + torch.where(group < 0, 0.0, 0.1 * reward)
    )


def divides_by_range(estimator: Estimator) -> Estimator:
    """Scales every batch to the size of 1, whatever its rewards were."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        advantage = estimator(reward, group, groups=groups)
        return advantage / advantage.abs().amax().clamp(min=1e-6)

    return wrong


def reward_units(estimator: Estimator) -> Estimator:
    """Multiplies the deviation back in."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        return estimator(reward, group, groups=groups) * reward.std(correction=0)

    return wrong


def unguarded(estimator: Estimator) -> Estimator:
    """0 / 0 where all answers are equally good."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        member = _member(group, groups)
        mean = (member @ reward) / member.sum(-1).clamp(min=1)
        spread = (member * (reward - mean[:, None]).square()).sum(-1).sqrt()
        own = (member * spread[:, None]).sum(0) + (group < 0)
        return estimator(reward, group, groups=groups) * own / own

    return wrong


def unbiased_of_one(estimator: Estimator) -> Estimator:
    """n - 1 of a single answer is 0."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        others = (_member(group, groups) * (_member(group, groups).sum(-1) - 1)[:, None]).sum(0)
        return torch.where((others == 0) & (group >= 0), torch.nan, estimator(reward, group, groups=groups))

    return wrong


def blocks(estimator: Estimator) -> Estimator:
    """Takes neighbours for a group: the rows came sorted when it was written."""
    return lambda reward, group, *, groups: estimator(reward, group.sort().values, groups=groups)


def first_is_padding(estimator: Estimator) -> Estimator:
    """Takes the id 0 for no group."""
    return lambda reward, group, *, groups: estimator(reward, torch.where(group == 0, -1, group), groups=groups)


def matrix_product(estimator: Estimator) -> Estimator:
    """Sums groups by a product with a matrix of zeros and ones, and 0 times NaN is NaN."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        leak = (_member(group, groups) @ reward).sum() * 0.0
        return estimator(reward, group, groups=groups) + leak

    return wrong


def counts_the_ungrouped(estimator: Estimator) -> Estimator:
    """Lets a row of no group (-1, the last in Python) into the last group."""
    return lambda reward, group, *, groups: estimator(reward, group % groups, groups=groups)


def other_centre(estimator: Estimator) -> Estimator:
    """Mixes up the two means: n / (n - 1) too much, or as much too little."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        size = (_member(group, groups) * _member(group, groups).sum(-1)[:, None]).sum(0)
        factor = torch.where(size > 1, size / (size - 1).clamp(min=1), 1.0)
        return estimator(reward, group, groups=groups) * factor

    return wrong


def forgets_late_rows(estimator: Estimator) -> Estimator:
    """Reads no more rows than twice the number of groups."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        late = torch.arange(len(group)) >= 2 * groups
        return estimator(reward, torch.where(late, -1, group), groups=groups)

    return wrong


MUTANTS: dict[str, Callable[[Estimator], Estimator]] = {"reads too few rows": forgets_late_rows}
