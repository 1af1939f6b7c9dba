"""Policies and distributions as people get them wrong."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ...core.distributions import Categorical
from ...core.policy import ActorCritic
from ...core.record import replace
from ...core.tree import tree_map


class Wrapped:
    """A distribution with some of its functions exchanged."""

    def __init__(self, inner: Any, **changes: Callable[..., Any]) -> None:
        self.inner = inner
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        return self.changes[name] if name in self.changes else getattr(self.inner, name)


def _around(model: ActorCritic, change: Callable[[Any], Any]) -> ActorCritic:
    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        distribution, value, carry = model.apply(params, observation, carry)
        return change(distribution), value, carry

    return attrs.evolve(model, apply=apply)


def dropout(model: ActorCritic) -> ActorCritic:
    """Every other call of apply drops a little of what it knows."""
    calls: list[int] = []

    def change(distribution: Categorical) -> Categorical:
        calls.append(1)
        first = torch.arange(distribution.logits.shape[-1]) == 0
        return replace(distribution, logits=distribution.logits + 0.5 * (len(calls) % 2) * first)

    return _around(model, change)


def counts_from_one(model: ActorCritic) -> ActorCritic:
    """Mixes up the index of an action and its name."""

    def change(distribution: Categorical) -> Any:
        return Wrapped(
            distribution,
            sample=lambda key: distribution.sample(key) + 1,
            transform=lambda noise: distribution.transform(noise) + 1,
            log_prob=lambda action: distribution.log_prob(action - 1),
        )

    return _around(model, change)


def global_sample(model: ActorCritic) -> ActorCritic:
    """Draws from the generator everybody shares."""

    def change(distribution: Categorical) -> Any:
        return Wrapped(
            distribution,
            sample=lambda key: torch.multinomial(distribution.logits.softmax(-1), 1)[0],
            transform=lambda noise: torch.multinomial(distribution.logits.softmax(-1), 1)[0],
        )

    return _around(model, change)


def batch_normalised(model: ActorCritic) -> ActorCritic:
    """Centres what it sees by the batch it is in."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        centred = tree_map(lambda x: x - x.mean(0, keepdim=True) if x.ndim > 1 else x, observation)
        return model.apply(params, centred, carry)

    return attrs.evolve(model, apply=apply)


def growing_carry(model: ActorCritic) -> ActorCritic:
    """Remembers everything."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        distribution, value, _ = model.apply(params, observation, ())
        return distribution, value, (*carry, value)

    return attrs.evolve(model, apply=apply)
