"""Truncated answers: length penalty, and their treatment in training."""

import torch
from torch import Tensor

from ...core.errors import ShapeError, choose, message
from ...core.record import record, tensor
from ...core.shapes import boolean, same_shape
from ..advantages import bootstrap
from ..hyperparameters import Number, bounded, check_number


@record
class Counted:
    """Groups, mask and weights of samples after the treatment of truncated ones."""

    group: Tensor = tensor("*", "int")  # for group_advantages; -1 if the sample belongs to no group
    mask: Tensor = tensor("* L", "bool")  # the tokens in the loss
    weight: Tensor = tensor("*", "float")  # of the sample's loss


def overlong_penalty(length: Tensor, *, limit: Number, buffer: Number, factor: Number = 1.0) -> Tensor:
    """Return the reward penalty of long answers: 0 up to limit - buffer, then linear, -factor from limit on.

    factor min(max((limit - buffer - length) / buffer, -1), 0)

    Shapes: [*] of any dtype -> float [*]. Raises: ChoiceError.  Source: Yu et al. 2025, arXiv:2503.14476, equation 13
    (DAPO), with factor 1. verl and AReaL have the factor but no floor, since no answer exceeds their limit.

    >>> overlong_penalty(torch.tensor([6, 8, 10, 12, 90]), limit=12, buffer=4)
    tensor([ 0.0000,  0.0000, -0.5000, -1.0000, -1.0000])
    """
    check_number("overlong_penalty: buffer", buffer, 1.0)
    check_number("overlong_penalty: limit", limit, buffer if not isinstance(buffer, Tensor) else 1.0)
    check_number("overlong_penalty: factor", factor, 0.0)
    return factor * bounded((limit - buffer - length) / buffer, -1.0, 0.0)


def overlong_columns(
    truncated: Tensor, group: Tensor, mask: Tensor, *, treatment: str, down_weight: Number = 0.5
) -> Counted:
    """Return group, mask and weight of samples [N] of which some were truncated.

    - "keep": train on it as on any other; appropriate if exceeding the length is a failure of the model.
    - "mask": not in the loss, but its reward stays in its group's mean (TRL's `mask_truncated_completions`).
    - "down_weight": train on it with the weight `down_weight`.
    - "drop": as if it had never been sampled; its group is smaller by one.
    Denominators may come from the original mask or from the returned one: with the original one, masked samples reduce the
    loss; with the returned one they do not. With a critic there is another treatment, its value: `bootstrapped`.
    Shapes: bool [N], int [N], bool [N, L]. Raises: ShapeError, DtypeError, ChoiceError.

    >>> truncated, group = torch.tensor([False, True]), torch.tensor([3, 3])
    >>> told = overlong_columns(truncated, group, torch.ones(2, 1, dtype=torch.bool), treatment="drop")
    >>> told.group, told.mask, told.weight
    (tensor([ 3, -1]), tensor([[ True],
            [False]]), tensor([1., 1.]))
    """
    same_shape("counted", truncated=truncated, group=group)
    boolean("counted", truncated=truncated, mask=mask)
    check_number("counted: down_weight", down_weight, 0.0, 1.0)
    if mask.shape[:-1] != truncated.shape:
        wanted = f"{list(truncated.shape)} and an axis of tokens"
        raise ShapeError(
            message("counted: mask", got=list(mask.shape), wanted=wanted, remedy="give a row to each sample")
        )
    loses_tokens, loses_group, weight = choose(
        "counted: treatment",
        treatment,
        {
            "keep": (False, False, 1.0),
            "mask": (True, False, 1.0),
            "down_weight": (False, False, down_weight),
            "drop": (True, True, 1.0),
        },
    )
    whole = torch.ones(truncated.shape, device=truncated.device)
    return Counted(
        group=torch.where(truncated, -1, group) if loses_group else group.clone(),
        mask=mask & ~truncated[..., None] if loses_tokens else mask.clone(),
        weight=torch.where(truncated, weight * whole, whole),
    )


def bootstrapped(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: Number = 1.0
) -> Tensor:
    """Return the reward of a sample's last step plus the critic's value beyond a truncation; termination takes precedence.

    r + gamma v' where truncated and not terminated, r elsewhere; there v' may be any value

    Shapes: all [*]. Raises: ShapeError, DtypeError, ChoiceError.  Source: Pardo et al. 2018, arXiv:1712.00378.

    >>> no, yes = torch.tensor([False, True]), torch.tensor([True, True])
    >>> bootstrapped(torch.ones(2), torch.full((2,), 4.0), terminated=no, truncated=yes, gamma=0.5)
    tensor([3., 1.])
    """
    same_shape("bootstrapped", reward=reward, next_value=next_value, terminated=terminated, truncated=truncated)
    boolean("bootstrapped", terminated=terminated, truncated=truncated)
    check_number("bootstrapped: gamma", gamma, 0.0, 1.0)
    return reward + gamma * torch.where(truncated, bootstrap(next_value, terminated), 0.0)
