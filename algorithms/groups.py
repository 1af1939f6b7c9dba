"""Which rows belong together: ids in any order, groups of any size, shapes fixed by a number no id reaches."""

import torch
from torch import Tensor

from ..core.errors import ChoiceError, DtypeError, message
from ..core.record import record, tensor
from ..core.shapes import rank, same_shape


@record
class Spread:
    """What a row's group is like, told to the row."""

    size: Tensor = tensor("*", "int")  # rows of the group, this one included; 0 for a row of no group
    lowest: Tensor = tensor("*", "float")  # reward of the group; 0 for a row of no group
    highest: Tensor = tensor("*", "float")


def membership(where: str, value: Tensor, group: Tensor, groups: int) -> Tensor:
    """Which group each row is of: [N], int [N] -> bool [groups, N]; ids outside 0..groups-1 are of none.

    A comparison, not a scatter: its sums have one order on every device, and no id reaches past the end.
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
    """Each row's group's number, 0 for a row of no group: [groups], bool [groups, N] -> [N].

    >>> to_rows(torch.tensor([5.0, torch.nan]), torch.tensor([[True, False], [False, False]]))
    tensor([5., 0.])
    """
    return torch.where(member, value[:, None], 0).sum(0)


def sum_of_group(value: Tensor, member: Tensor) -> Tensor:
    """The sum over its group, told to each row; NaN stays among its own: [N], bool [groups, N] -> [N].

    >>> member = torch.tensor([[True, True, False], [False, False, True]])
    >>> sum_of_group(torch.tensor([1.0, 2.0, torch.inf]), member)
    tensor([3., 3., inf])
    """
    return to_rows(torch.where(member, value, 0).sum(-1), member)


def spread_of_group(value: Tensor, member: Tensor) -> Spread:
    """Size, lowest and highest value of its group, told to each row: [N], bool [groups, N] -> [N] each.

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
    """Whether all rewards of a row's group are equal, so that it teaches nothing: [N], int [N] -> bool [N].

    True also for a group of one and for a row of no group. Dynamic sampling drops these groups and draws others in their
    place. A group that holds a NaN is no such group, so that the NaN is not dropped unseen.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Yu et al. 2025, arXiv:2503.14476, section 3.2 (DAPO).

    >>> zero_spread(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 1, 0, 1]), groups=2)
    tensor([ True, False,  True, False])
    """
    spread = spread_of_group(reward, membership("zero_spread", reward, group, groups))
    return spread.lowest == spread.highest
