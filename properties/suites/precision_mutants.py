"""Optimisers of parameters below float32 as people get them wrong."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.optim import MasterState, Optimizer
from ...core.record import replace
from ...core.rounding import below_float32, rounded
from ...core.tree import leaves, tree_map


@frozen
class Descending:
    """The subject of the laws of precision: `make(learning_rate) -> Optimizer` and `apply(params, updates) -> params`."""

    make: Callable[[float], Optimizer]
    apply: Callable[[Any, Any], Any]


Update = Callable[[Optimizer, Any, Any, Any], tuple[Any, Any]]


def _edited(change: Update) -> Callable[[Descending], Descending]:
    """An edit of the update of parameters below float32."""

    def make(subject: Descending) -> Descending:
        def optimizer(rate: float) -> Optimizer:
            right = subject.make(rate)

            def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
                narrow = isinstance(state, MasterState)
                return (change if narrow else _unchanged)(right, gradients, state, params)

            return Optimizer(init=right.init, update=update)

        return evolve(subject, make=optimizer)

    return make


def _unchanged(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    return right.update(gradients, state, params)


def _shortened(leaf: Tensor) -> Tensor:
    return leaf.to(torch.bfloat16) if leaf.dtype == torch.float32 else leaf


def _short_moments(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return updates, replace(after, inner=tree_map(_shortened, after.inner))


def _still(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return updates, replace(after, master=state.master)


def _no_copy(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    begun = tree_map(lambda p: p.float() if below_float32(p) else (), params)
    return right.update(gradients, replace(state, master=begun), params)


def _stale(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    own = tree_map(lambda p, m: rounded(m, p.dtype).to(p.dtype) if below_float32(p) else p, params, state.master)
    updates, after = right.update(gradients, state, own)
    return tree_map(lambda u, o, p: u + (o.float() - p.float()), updates, own, params), after


def _short_updates(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return tree_map(lambda u, p: u.to(p.dtype), updates, params), after


def widens(subject: Descending) -> Descending:
    """Leaves the sum in float32, as an addition of both does."""
    return evolve(subject, apply=lambda params, updates: tree_map(torch.add, params, updates))


def always_copies(subject: Descending) -> Descending:
    """Keeps a copy of float32 parameters as well."""

    def optimizer(rate: float) -> Optimizer:
        right = subject.make(rate)

        def init(params: Any) -> Any:
            state = right.init(params)
            copied = isinstance(state, MasterState)
            return state if copied else MasterState(inner=state, master=tree_map(torch.clone, params))

        def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
            if any(below_float32(leaf) for leaf in leaves(params)):
                return right.update(gradients, state, params)
            updates, inner = right.update(gradients, state.inner, params)
            return updates, MasterState(inner=inner, master=state.master)

        return Optimizer(init=init, update=update)

    return evolve(subject, make=optimizer)


short_moments, still, no_copy = _edited(_short_moments), _edited(_still), _edited(_no_copy)
stale, short_updates = _edited(_stale), _edited(_short_updates)

MUTANTS: dict[str, Callable[[Descending], Descending]] = {
    "never advances the copy": still,
    "rounds the updates": short_updates,
}
