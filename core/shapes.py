"""Shape and dtype checks for the inputs of estimators and losses. All are static, so they cost nothing once traced."""

import torch
from torch import Tensor

from .errors import DtypeError, ShapeError, message


def same_shape(where: str, **tensors: Tensor) -> None:
    """Raise ShapeError unless all tensors have the first one's shape.

    >>> same_shape("gae", rewards=torch.ones(4), values=torch.ones(5))
    Traceback (most recent call last):
    purestep.core.errors.ShapeError: gae: values is [5], wanted [4] as rewards; pass tensors of one shape
    """
    (first, reference), *rest = tensors.items()
    for name, tensor in rest:
        if tensor.shape != reference.shape:
            wanted = f"{list(reference.shape)} as {first}"
            raise ShapeError(
                message(f"{where}: {name}", got=list(tensor.shape), wanted=wanted, remedy="pass tensors of one shape")
            )


def rank(where: str, ndim: int, **tensors: Tensor) -> None:
    """Raise ShapeError unless every tensor has `ndim` axes.

    >>> rank("gae", 1, rewards=torch.ones(4, 2))
    Traceback (most recent call last):
    purestep.core.errors.ShapeError: gae: rewards is [4, 2], wanted 1 axes; use torch.vmap for further axes
    """
    for name, tensor in tensors.items():
        if tensor.ndim != ndim:
            remedy = "use torch.vmap for further axes" if tensor.ndim > ndim else "add the missing axes"
            raise ShapeError(message(f"{where}: {name}", got=list(tensor.shape), wanted=f"{ndim} axes", remedy=remedy))


def boolean(where: str, **tensors: Tensor) -> None:
    """Raise DtypeError unless every tensor is bool.

    >>> boolean("gae", terminated=torch.zeros(4))
    Traceback (most recent call last):
    purestep.core.errors.DtypeError: gae: terminated is torch.float32, wanted torch.bool; compare or convert it
    """
    for name, tensor in tensors.items():
        if tensor.dtype != torch.bool:
            raise DtypeError(
                message(f"{where}: {name}", got=tensor.dtype, wanted="torch.bool", remedy="compare or convert it")
            )
