"""A fold over time as people get it wrong, each edit put around a right one."""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from ...core.record import stack, take
from ...core.tree import leaves

Scan = Callable[..., tuple[Any, Any]]


def order_of_coming(scan: Scan) -> Scan:
    """Forgets to turn the outputs of a backward scan round."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        carry, ys = scan(step, init, xs, length, reverse=reverse)
        return carry, pytree.tree_map(lambda leaf: leaf.flip(0), ys) if reverse else ys

    return mutant


def starts_from_first(scan: Scan) -> Scan:
    """Runs the first step twice, once to find the shapes of the outputs."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        if leaves(xs)[0].shape[0]:
            init, _ = step(init, take(xs, -1 if reverse else 0))
        return scan(step, init, xs, length, reverse=reverse)

    return mutant


def one_step_at_least(scan: Scan) -> Scan:
    """A loop that asks after its first round."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        if leaves(xs)[0].shape[0]:
            return scan(step, init, xs, length, reverse=reverse)
        zeros = pytree.tree_map(lambda leaf: leaf.new_zeros(leaf.shape[1:]), xs)
        carry, y = step(init, zeros)
        return carry, stack([y])

    return mutant


def casts(scan: Scan) -> Scan:
    """Makes every carry fit, silently."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        def forced(carry: Any, x: Any) -> tuple[Any, Any]:
            after, y = step(carry, x)
            return pytree.tree_map(lambda new, old: new.to(old.dtype), after, carry), y

        return scan(forced, init, xs, length, reverse=reverse)

    return mutant


def last_output_for_carry(scan: Scan) -> Scan:
    """Steps the carry only at the end."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        carry, ys = scan(step, init, xs, length, reverse=reverse)
        return carry, pytree.tree_map(lambda leaf: torch.roll(leaf, 1, 0), ys)

    return mutant


MUTANTS: dict[str, Callable[[Scan], Scan]] = {"gives each output one step late": last_output_for_carry}
