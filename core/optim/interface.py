"""An optimiser as two functions, and the numbers of its state."""

import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..errors import StructureError, message
from ..numbers import Number, check_number
from ..tree import leaves

State = Any


@frozen
class Optimizer:
    """An optimiser: `update(gradients, state, params) -> (updates, state)`; all but the state are trees like `params`.

    Updates of parameters below float32 are float32: `apply_updates` rounds the sum.
    """

    init: Callable[[Any], State]
    update: Callable[[Any, State, Any], tuple[Any, State]]


BELOW_ONE = ("beta1", "beta2", "momentum")  # with 1 or more, old gradients would not decay


def check_hyperparameters(where: str, **numbers: Number) -> None:
    """Raise ChoiceError unless each number is finite and 0 or more, and the decays are below 1.

    >>> check_hyperparameters("adam", beta1=1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: adam: beta1 is 1.0, wanted a number from 0.0 to below 1.0; change it
    """
    for name, number in numbers.items():
        check_number(f"{where}: {name}", number, 0.0, 1.0 if name in BELOW_ONE else math.inf, below=True)


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise StructureError for anything but an Optimizer, e.g. a learning rate or an optimiser factory.

    >>> check_optimizer(Optimizer(init=lambda params: (), update=lambda gradients, state, params: (gradients, state)))
    """
    if not isinstance(optimizer, Optimizer):
        got, remedy = type(optimizer).__name__, "pass what adam(1e-3), or another of `core.optim.optimizers`, makes"
        raise StructureError(message("optimizer", got=got, wanted="an Optimizer", remedy=remedy))


def device_of(params: Any) -> torch.device:
    """Return the device that holds the params. Raises: StructureError for a tree without tensors.

    >>> device_of({"weight": torch.zeros(2)})
    device(type='cpu')
    """
    found = leaves(params)
    if not found or not isinstance(found[0], Tensor):
        got = f"a tree of {type(found[0]).__name__}" if found else "a tree without leaves"
        raise StructureError(message("optimizer: params", got=got, wanted="tensors", remedy="pass a model's params"))
    device: torch.device = found[0].device
    return device


def number_like(params: Any, value: Number) -> Tensor:
    """Return a number of an optimiser's state, float64 [] on the device of the params.

    >>> number_like(torch.zeros(2), 0.5)
    tensor(0.5000, dtype=torch.float64)
    """
    return torch.as_tensor(value, dtype=torch.float64, device=device_of(params)).clone()


def numbers_like(params: Any, **values: Number) -> dict[str, Tensor]:
    """Return the numbers of an optimiser's state by name, each float64 [] on the device of the params.

    >>> numbers_like(torch.zeros(2), eps=0.5)
    {'eps': tensor(0.5000, dtype=torch.float64)}
    """
    return {name: number_like(params, value) for name, value in values.items()}
