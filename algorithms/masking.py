"""What does not count, made harmless before anything is computed of it, and what a sequence of tokens is on average.

A mask [*, L] is true at the tokens that count: those the policy chose itself. Whatever stands elsewhere, NaN and infinity
included, must change no bit of a value or a gradient. Hiding a result is not enough, since the chain rule multiplies its 0
by what stood there; inputs are exchanged instead.
"""

import torch
from torch import Tensor

from ..core.errors import ShapeError, message
from ..core.shapes import boolean, same_shape


def neutral(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors with 0 in place of whatever does not count; those entries get the gradient 0.

    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError.

    >>> neutral(torch.tensor([True, False]), torch.tensor([2.0, torch.nan]))
    (tensor([2., 0.]),)
    """
    boolean("neutral", mask=mask)
    for tensor in tensors:
        same_shape("neutral", mask=mask, tensor=tensor)
    return tuple(torch.where(mask, tensor, 0.0) for tensor in tensors)


def per_token(value: Tensor, mask: Tensor) -> Tensor:
    """A number of a sequence at each of its tokens, and 0 where none counts: [*], bool [*, L] -> [*, L].

    Raises: ShapeError, DtypeError.

    >>> per_token(torch.tensor([2.0, 3.0]), torch.tensor([[True, True], [True, False]]))
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
    """sum_t m_t x_t / sum_t m_t, and 0 for a sequence without a token that counts: [*, L], bool [*, L] -> [*].

    Raises: ShapeError, DtypeError.

    >>> mask = torch.tensor([[True, True], [False, False]])
    >>> mean_of_tokens(torch.tensor([[1.0, 4.0], [torch.nan, 9.0]]), mask)
    tensor([2.5000, 0.0000])
    """
    (quiet,) = neutral(mask, value)
    return quiet.sum(-1) / mask.sum(-1).clamp(min=1)
