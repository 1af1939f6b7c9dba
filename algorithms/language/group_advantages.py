"""Advantages without a value function: an answer is compared with the other answers to the same question.

Rows come in any order, groups have any size, and all ids are below `groups`, which fixes the shapes, so that one compiled
graph serves every batch. A negative id means that the row belongs to no group: its advantage is 0 and it enters no group's
mean. (Exclude samples that could not be scored, or are to be dropped, with `torch.where(scored, group, -1)`.) An id that is
too large gives NaN.

With n the size of the group, m and s the mean and the standard deviation of its rewards (s with divisor n - ddof):

    system                 centre           scale   ddof   eps     a group of one
    TRL                    mean             std     1      1e-4    0        (`scale_rewards="batch"`: batch_std)
    verl, SkyRL            mean             std     1      1e-6    raw
    AReaL                  either           either  1      1e-5    0; with leave_one_out raw
    PipelineRL             leave_one_out    std     1      1e-4    0        (s is not leave-one-out)
    forge                  mean             std     1      1e-4    NaN there; 0 or raw here
    OpenRLHF group_norm    mean             std     1      1e-9    NaN there; 0 or raw here
    ludic                  mean             std     0      1e-8    refused there
    RC-verl                mean             std     0      1e-6    raw
    prime-rl, tinker       mean             none                   0
    RLOO                   leave_one_out    none                   0        (verl's `rloo`: raw)

Sources: Ahmadian et al. 2024, arXiv:2402.14740 (RLOO); Shao et al. 2024, arXiv:2402.03300 (GRPO); Liu et al. 2025,
arXiv:2503.20783 (Dr. GRPO); Yu et al. 2025, arXiv:2503.14476 (groups with equal rewards).
"""

import torch
from torch import Tensor

from ...core.errors import ChoiceError, DtypeError, choose, message
from ...core.record import record, tensor
from ...core.shapes import rank, same_shape
from ..hyperparameters import Number, check_number


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


WHERE = "group_advantages"


def _no_scale(reward: Tensor, member: Tensor, ddof: int) -> Tensor:
    return torch.ones_like(reward)


def _std(reward: Tensor, member: Tensor, ddof: int) -> Tensor:
    """Return the standard deviation of each row's group, 1 where all rewards are equal: [N], bool [groups, N] -> [N]."""
    spread = spread_of_group(reward, member)
    above = reward - spread.lowest
    error = above - sum_of_group(above, member) / spread.size.clamp(min=1)
    variance = sum_of_group(error.square(), member) / (spread.size - ddof).clamp(min=1)
    return torch.where(spread.highest > spread.lowest, variance, 1.0).sqrt()


def _batch_std(reward: Tensor, member: Tensor, ddof: int) -> Tensor:
    return _std(reward, member.any(0, keepdim=True), ddof)


CENTRES = {"mean": 0, "leave_one_out": 1, "none": 0}  # number of rewards excluded from the mean (the row's own)
SCALES = {"none": _no_scale, "std": _std, "batch_std": _batch_std}
SINGLETONS = {"zero": "no advantage", "raw": "the reward, as if the mean were 0"}


def group_advantages(
    reward: Tensor,
    group: Tensor,
    *,
    groups: int,
    centre: str = "mean",
    scale: str = "none",
    ddof: int = 1,
    eps: Number = 1e-4,
    singleton: str = "zero",
) -> Tensor:
    """Return each reward's advantage over the mean of its group.

    A_i = (r_i - c_i) / (s + eps)

    c_i is the mean of the group for `centre` "mean", the mean of the *others* for "leave_one_out", 0 for "none". s + eps is
    1 for `scale` "none"; for "std" s is the standard deviation of the group, for "batch_std" that of all rewards. If all
    rewards are equal, s is replaced by 1, so that they give exactly 0, for any eps. For a group of one, `singleton` "zero"
    gives 0 and "raw" sets c_i = 0; `centre` "none" is not affected. Nothing is detached here; losses detach.

    Shapes: reward [N], group int [N] -> [N]. Raises: ShapeError, DtypeError, ChoiceError.  Sources: see above.

    >>> reward, group = torch.tensor([1.0, 4.0, 0.0, 3.0]), torch.tensor([0, 1, 0, 0])
    >>> group_advantages(reward, group, groups=2, centre="leave_one_out")
    tensor([-0.5000,  0.0000, -2.0000,  2.5000])
    """
    left_out, scaled = choose(f"{WHERE}: centre", centre, CENTRES), choose(f"{WHERE}: scale", scale, SCALES)
    choose(f"{WHERE}: singleton", singleton, SINGLETONS)
    check_number(f"{WHERE}: eps", eps, 0.0)
    if ddof not in (0, 1):
        raise ChoiceError(message(f"{WHERE}: ddof", got=ddof, wanted="0 or 1", remedy="change it"))
    member = membership(WHERE, reward, group, groups)
    advantage = reward
    if centre != "none":
        spread = spread_of_group(reward, member)
        # Relative to the lowest reward of the group, equal rewards are exactly 0, without rounding errors.
        above = reward - spread.lowest
        centred = (spread.size * above - sum_of_group(above, member)) / (spread.size - left_out).clamp(min=1)
        advantage = torch.where(spread.size == 1, reward, centred) if singleton == "raw" else centred
    if scale != "none":
        advantage = advantage / (scaled(reward, member, ddof) + eps)
    return torch.where(group < groups, torch.where(group < 0, 0.0, advantage), torch.nan)


def grpo_advantages(reward: Tensor, group: Tensor, *, groups: int, eps: Number = 1e-4) -> Tensor:
    """Return (r_i - mean) / (std + eps), as TRL: group_advantages(centre="mean", scale="std"); [N], int [N] -> [N].

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1. Raises: ShapeError, DtypeError, ChoiceError.

    >>> grpo_advantages(torch.tensor([0.0, 1.0, 2.0]), torch.zeros(3, dtype=torch.int64), groups=1, eps=0.0)
    tensor([-1.,  0.,  1.])
    """
    return group_advantages(reward, group, groups=groups, centre="mean", scale="std", eps=eps)


def dr_grpo_advantages(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
    """Return r_i - mean, as prime-rl and tinker: group_advantages(centre="mean", scale="none"); [N], int [N] -> [N].

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2. Raises: ShapeError, DtypeError, ChoiceError.

    >>> dr_grpo_advantages(torch.tensor([0.0, 1.0, 5.0]), torch.zeros(3, dtype=torch.int64), groups=1)
    tensor([-2., -1.,  3.])
    """
    return group_advantages(reward, group, groups=groups, centre="mean")


def rloo_advantages(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
    """Return r_i - mean of the others = n / (n - 1) (r_i - mean): [N], int [N] -> [N].

    The same as group_advantages(centre="leave_one_out").
    Source: Ahmadian et al. 2024, arXiv:2402.14740, equation 8. Raises: ShapeError, DtypeError, ChoiceError.

    >>> rloo_advantages(torch.tensor([0.0, 1.0, 5.0]), torch.zeros(3, dtype=torch.int64), groups=1)
    tensor([-3.0000, -1.5000,  4.5000])
    """
    return group_advantages(reward, group, groups=groups, centre="leave_one_out")


def ema_baseline(baseline: Tensor, reward: Tensor, group: Tensor, *, decay: Number) -> tuple[Tensor, Tensor]:
    """Return rewards minus a running mean, for groups (roles, environments, tasks) that recur in every batch.

    A_i = r_i - b_g,    b'_g = decay b_g + (1 - decay) mean of the group's rewards in this batch

    The baseline is the one from *before* these rewards, so that it is independent of the actions it is applied to. A group
    without a reward in the batch keeps its baseline; a row of no group has the advantage 0. The baseline is state:
    checkpoint it with the rest.
    Shapes: baseline [G], reward [N], group int [N] -> (new baseline [G], advantage [N]).
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Liu et al. 2025, arXiv:2506.24119 (there by role and sample).

    >>> rewards, group = torch.tensor([3.0, 5.0]), torch.tensor([0, 0])
    >>> ema_baseline(torch.tensor([2.0, 7.0]), rewards, group, decay=0.75)
    (tensor([2.5000, 7.0000]), tensor([1., 3.]))
    """
    check_number("ema_baseline: decay", decay, 0.0, 1.0)
    rank("ema_baseline", 1, baseline=baseline)
    groups = baseline.shape[0]
    member = membership("ema_baseline", reward, group, groups)
    count = member.sum(-1)
    mean = torch.where(member, reward, 0).sum(-1) / count.clamp(min=1)
    advantage = torch.where(group < 0, 0.0, reward - to_rows(baseline, member))
    after = torch.where(count > 0, decay * baseline + (1 - decay) * mean, baseline)
    return after, torch.where(group < groups, advantage, torch.nan)
