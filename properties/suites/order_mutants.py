"""Orders of rows as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...core import keys

Order = Callable[..., Tensor]


def with_replacement(order: Order) -> Order:
    """A bootstrap sample instead of a permutation."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        return keys.randint(key, (epochs * minibatches, rows // minibatches), 0, rows)

    return mutant


def shuffled_once(order: Order) -> Order:
    """The first epoch's order for all."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        return order(key, rows, epochs=1, minibatches=minibatches).repeat(epochs, 1)

    return mutant


def fixed_order(order: Order) -> Order:
    """A key of its own."""
    return lambda key, rows, *, epochs, minibatches: order(keys.key(0), rows, epochs=epochs, minibatches=minibatches)


def drops_the_last(order: Order) -> Order:
    """Leaves out the last row, and uses the first one twice."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        whole = order(key, rows, epochs=epochs, minibatches=minibatches)
        return torch.where(whole == rows - 1, 0, whole)

    return mutant


ORDERS: dict[str, Callable[[Order], Order]] = {"leaves the last row out": drops_the_last}
