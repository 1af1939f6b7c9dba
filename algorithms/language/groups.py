"""Group membership of rows: ids in any order, groups of any size, shapes fixed by an upper bound of the ids."""

import torch
from torch import Tensor

from ...core.errors import ChoiceError, DtypeError, message
from ...core.record import record, tensor
from ...core.shapes import rank, same_shape


@record
class Spread:
    """Size and range of rewards of each row's group, one entry per row."""

    size: Tensor = tensor("*", "int")  # rows of the group, including this one; 0 for a row of no group
    lowest: Tensor = tensor("*", "float")  # lowest reward of the group; 0 for a row of no group
    highest: Tensor = tensor("*", "float")


def membership(where: str, value: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the membership matrix of rows in groups: [N], int [N] -> bool [groups, N]; ids outside 0..groups-1 have no group.

    It uses a comparison, not a scatter: sums have the same order on every device, and no id indexes out of bounds.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> membership("f", torch.ones(3), torch.tensor([1, -1, 0]), 2)
    tensor([[False, False,  True],
            [ True, False, False]])
    """
    rank(where, 1, value=value)
    same_shape(where, value=value, group=group)
    if group.is_floating_point() or group.dtype == torch.bool:
        raise DtypeError(message(f"{where}: group", got=group.dtype, wanted="integers", remedy="number the groups"))
    if groups < 1:
        raise ChoiceError(
            message(f"{where}: groups", got=groups, wanted="at least 1", remedy="pass the largest id + 1")
        )
    return group == torch.arange(groups, device=group.device)[:, None]


def to_rows(value: Tensor, member: Tensor) -> Tensor:
    """Return the value of each row's group, 0 for a row of no group: [groups], bool [groups, N] -> [N].

    >>> to_rows(torch.tensor([5.0, torch.nan]), torch.tensor([[True, False], [False, False]]))
    tensor([5., 0.])
    """
    return torch.where(member, value[:, None], 0).sum(0)


def sum_of_group(value: Tensor, member: Tensor) -> Tensor:
    """Return group sums broadcast back to rows; a NaN affects only its own group: [N], bool [groups, N] -> [N].

    >>> member = torch.tensor([[True, True, False], [False, False, True]])
    >>> sum_of_group(torch.tensor([1.0, 2.0, torch.inf]), member)
    tensor([3., 3., inf])
    """
    return to_rows(torch.where(member, value, 0).sum(-1), member)


def spread_of_group(value: Tensor, member: Tensor) -> Spread:
    """Return size, lowest and highest value of each row's group: [N], bool [groups, N] -> [N] each.

    >>> spread = spread_of_group(torch.tensor([1.0, 4.0]), torch.tensor([[True, True]]))
    >>> spread.size, spread.lowest, spread.highest
    (tensor([2, 2]), tensor([1., 1.]), tensor([4., 4.]))
    """
    lowest = torch.where(member, value, torch.inf).amin(-1)
    highest = torch.where(member, value, -torch.inf).amax(-1)
    return Spread(
        size=to_rows(member.sum(-1), member), lowest=to_rows(lowest, member), highest=to_rows(highest, member)
    )


def zero_spread(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
    """Return whether all rewards of a row's group are equal, so that it has no gradient: [N], int [N] -> bool [N].

    True also for a group of one and for a row of no group. Dynamic sampling drops these groups and samples others instead.
    False for a group that contains a NaN, so that the NaN is not dropped silently.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Yu et al. 2025, arXiv:2503.14476, section 3.2 (DAPO).

    >>> zero_spread(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 1, 0, 1]), groups=2)
    tensor([ True, False,  True, False])
    """
    spread = spread_of_group(reward, membership("zero_spread", reward, group, groups))
    return spread.lowest == spread.highest
