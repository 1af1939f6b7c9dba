"""Masking of padding and context before a computation, so that no NaN there reaches a gradient; means over tokens, next tokens.

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
    one_each("per_token", mask, value=value)
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


def next_in_mask(values: Tensor, mask: Tensor, beyond: Tensor) -> Tensor:
    """Return, for each position, the value at the next position in the mask, or `beyond` after the last: [*, L], [*] -> [*, L].

    Raises: ShapeError, DtypeError.

    >>> next_in_mask(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]), torch.tensor(9.0))
    tensor([3., 3., 9.])
    """
    boolean("following", mask=mask)
    same_shape("following", values=values, mask=mask)
    one_each("following", mask, beyond=beyond)
    last = mask.shape[-1]
    place = torch.arange(last, device=mask.device)
    at = torch.where(mask, place, last).flip(-1).cummin(-1).values.flip(-1)
    nearest = torch.cat([at[..., 1:], torch.full_like(at[..., :1], last)], -1)
    return torch.cat([values, beyond[..., None].to(values.dtype)], -1).gather(-1, nearest)


def one_each(where: str, mask: Tensor, **tensors: Tensor) -> None:
    """Raise ShapeError unless each tensor has one entry for each sequence of the mask [*, L]: the shape [*].

    >>> one_each("token_gae", torch.ones(2, 3), terminated=torch.ones(2))
    """
    for name, each in tensors.items():
        if each.shape != mask.shape[:-1]:
            wanted = f"{list(mask.shape[:-1])}, the mask's leading axes"
            remedy = "pass one entry for each sequence"
            raise ShapeError(message(f"{where}: {name}", got=list(each.shape), wanted=wanted, remedy=remedy))
