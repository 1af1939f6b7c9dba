"""Masking of padding and context before a computation, so that NaN there cannot reach a gradient; means over tokens.

A mask [*, L] is true at the tokens that count: those that the policy sampled. Values elsewhere, including NaN and infinity,
must not change a bit of a value or a gradient. Masking the result is not enough, because the chain rule multiplies its 0 by
the masked value; so the inputs are replaced instead.
"""

import torch
from torch import Tensor

from ...core.errors import ShapeError, message
from ...core.shapes import boolean, same_shape


def neutral(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with 0 outside the mask; the replaced entries get the gradient 0.

    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError.

    >>> neutral(torch.tensor([True, False]), torch.tensor([2.0, torch.nan]))
    (tensor([2., 0.]),)
    """
    boolean("neutral", mask=mask)
    for tensor in tensors:
        same_shape("neutral", mask=mask, tensor=tensor)
    return tuple(torch.where(mask, tensor, 0.0) for tensor in tensors)


def spread_over_tokens(value: Tensor, mask: Tensor) -> Tensor:
    """Return each sequence's number at each of its tokens in the mask, 0 elsewhere: [*], bool [*, L] -> [*, L].

    Raises: ShapeError, DtypeError.

    >>> spread_over_tokens(torch.tensor([2.0, 3.0]), torch.tensor([[True, True], [True, False]]))
    tensor([[2., 2.],
            [3., 0.]])
    """
    boolean("per_token", mask=mask)
    if value.shape != mask.shape[:-1]:
        wanted = f"{list(mask.shape[:-1])}, the mask's leading axes"
        remedy = "pass one number for each sequence"
        raise ShapeError(message("per_token: value", got=list(value.shape), wanted=wanted, remedy=remedy))
    return torch.where(mask, value[..., None], 0.0)


def mean_of_tokens(value: Tensor, mask: Tensor) -> Tensor:
    """Return sum_t m_t x_t / sum_t m_t, and 0 for a sequence with an empty mask: [*, L], bool [*, L] -> [*].

    Raises: ShapeError, DtypeError.

    >>> mask = torch.tensor([[True, True], [False, False]])
    >>> mean_of_tokens(torch.tensor([[1.0, 4.0], [torch.nan, 9.0]]), mask)
    tensor([2.5000, 0.0000])
    """
    (quiet,) = neutral(mask, value)
    return quiet.sum(-1) / mask.sum(-1).clamp(min=1)
