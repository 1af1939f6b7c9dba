"""How people get causal models and their caches wrong: edits of a `CausalModel`."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from ...core.causal import CausalModel
from ...core.tree import tree_map

Edit = Callable[[CausalModel], CausalModel]


def lock_step(model: CausalModel) -> CausalModel:
    """Takes the first row's position for everybody's."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        return model.extend(params, cache, tokens, position[:1].expand_as(position))

    return evolve(model, extend=extend)


def sees_ahead(model: CausalModel) -> CausalModel:
    """Lets each token see the next one too."""

    def apply(params: Any, tokens: Tensor, position: Any, mask: Any) -> Tensor:
        place = torch.arange(tokens.shape[1])
        ahead = (place <= place[:, None] + 1).expand(tokens.shape[0], -1, -1)
        return model.apply(params, tokens, position, ahead if isinstance(mask, tuple) else mask)

    return evolve(model, apply=apply)


def ignores_mask(model: CausalModel) -> CausalModel:
    """Sees everything before, whatever the mask says."""
    return evolve(model, apply=lambda params, tokens, position, mask: model.apply(params, tokens, position, ()))


def ignores_position(model: CausalModel) -> CausalModel:
    """Counts places from the row's beginning, whatever the positions say."""
    return evolve(model, apply=lambda params, tokens, position, mask: model.apply(params, tokens, (), mask))


def sees_behind(model: CausalModel) -> CausalModel:
    """Adds what stands in the cache behind a row's position."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        hidden, after = model.extend(params, cache, tokens, position)
        first = cache[0].reshape(*cache[0].shape[:2], -1).sum(-1)
        behind = torch.arange(first.shape[1]) >= position[:, None] + tokens.shape[1]
        return hidden + (first * behind).sum(-1)[:, None, None].to(hidden.dtype), after

    return evolve(model, extend=extend)


def shares_rows(model: CausalModel) -> CausalModel:
    """Normalises over the batch."""

    def apply(params: Any, tokens: Tensor, position: Any, mask: Any) -> Tensor:
        hidden = model.apply(params, tokens, position, mask)
        return hidden - hidden.mean(0, keepdim=True)

    return evolve(model, apply=apply)


def writes_cache(model: CausalModel) -> CausalModel:
    """Writes into the cache it was given."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        hidden, after = model.extend(params, cache, tokens, position)
        tree_map(lambda old, new: old.copy_(new), cache, after)
        return hidden, cache

    return evolve(model, extend=extend)


def any_key(model: CausalModel) -> CausalModel:
    """Begins with the same weights whatever the key is."""
    return evolve(model, init=lambda key: model.init(torch.zeros_like(key)))


MUTANTS: dict[str, Edit] = {"counts places from the row's beginning": ignores_position}
