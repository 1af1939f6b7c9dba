"""Laws of the order of samples in minibatches (U3).

The subject: f(key, rows, *, epochs, minibatches) -> int64 [epochs * minibatches, rows / minibatches].
"""

from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core import keys
from ..framework.compare import require, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor
from ..strategies.values import seeds

# --- mutants ---
# Common errors in orders of rows.


Order = Callable[..., Tensor]


def with_replacement(order: Order) -> Order:
    """Draw a bootstrap sample instead of a permutation."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        return keys.randint(key, (epochs * minibatches, rows // minibatches), 0, rows)

    return mutant


def shuffled_once(order: Order) -> Order:
    """Use the first epoch's order in all epochs."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        return order(key, rows, epochs=1, minibatches=minibatches).repeat(epochs, 1)

    return mutant


def fixed_order(order: Order) -> Order:
    """Use a fixed key and ignore the one given."""
    return lambda key, rows, *, epochs, minibatches: order(keys.key(0), rows, epochs=epochs, minibatches=minibatches)


def drops_the_last(order: Order) -> Order:
    """Leave out the last row, and use the first one twice."""

    def mutant(key: Tensor, rows: int, *, epochs: int, minibatches: int) -> Tensor:
        whole = order(key, rows, epochs=epochs, minibatches=minibatches)
        return torch.where(whole == rows - 1, 0, whole)

    return mutant


ORDERS: dict[str, Callable[[Order], Order]] = {"leaves the last row out": drops_the_last}


# --- laws ---


def order_laws() -> Suite:
    """The laws of the order in which an update uses its rows."""
    return Suite("order_laws", (_once_an_epoch(), _other_order(), _keyed_order()))


@attrs.frozen
class Plan:
    """The seed, the rows per minibatch, and the numbers of epochs and minibatches."""

    seed: int
    size: int
    epochs: int
    minibatches: int


def _plans() -> SearchStrategy[Plan]:
    return st.builds(
        Plan, seed=seeds(), size=st.integers(1, 4), epochs=st.integers(1, 3), minibatches=st.sampled_from((1, 2, 4))
    )


_law = law_constructor(_plans, "algorithms.ppo: every row is used exactly once in each epoch")


def _order(subject: Order, plan: Plan, seed: int | None = None) -> Tensor:
    key = keys.key(plan.seed if seed is None else seed)
    rows = plan.size * plan.minibatches
    return subject(key, rows, epochs=plan.epochs, minibatches=plan.minibatches)


def _once_an_epoch() -> Law:
    def check(subject: Order, plan: Plan, seen: Seen) -> None:
        rows = plan.size * plan.minibatches
        got = _order(subject, plan)
        require(got.shape == (plan.epochs * plan.minibatches, plan.size), f"the order has the shape {list(got.shape)}")
        used = got.reshape(plan.epochs, rows).sort(-1).values
        same("the rows used in each epoch", used, torch.arange(rows).expand(plan.epochs, rows))

    mutant = Mutant("draws rows with replacement", with_replacement)
    return _law("once_an_epoch", "Every row is used exactly once in each epoch.", mutant, check)


def _other_order() -> Law:
    def check(subject: Order, plan: Plan, seen: Seen) -> None:
        wide = attrs.evolve(plan, size=32, epochs=2)
        first, second = _order(subject, wide).chunk(2)
        require((first != second).any(), f"both epochs use {first.flatten()[:4].tolist()}...")

    mutant = Mutant("shuffles once, before the first epoch", shuffled_once)
    return _law("another_order_each_epoch", "Two epochs use two orders.", mutant, check)


def _keyed_order() -> Law:
    def check(subject: Order, plan: Plan, seen: Seen) -> None:
        wide = attrs.evolve(plan, size=32)
        first = _order(subject, wide)
        same("the order with the same key", _order(subject, wide), first)
        require((_order(subject, wide, plan.seed + 1) != first).any(), "another key gives the same order")

    mutant = Mutant("ignores its key", fixed_order)
    return _law("order_depends_on_key", "The order is a function of the key.", mutant, check)
