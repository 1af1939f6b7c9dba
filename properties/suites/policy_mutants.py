"""Policies and distributions as people get them wrong."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ...core.distributions import Categorical, Distribution
from ...core.policy import ActorCritic
from ...core.record import replace
from ...core.tree import tree_map

Make = Callable[[Tensor], Distribution]


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


def _changed(**changes: Callable[[Any], Callable[..., Any]]) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(logits: Tensor) -> Any:
            inner = make(logits)
            return Wrapped(inner, **{name: change((inner, logits)) for name, change in changes.items()})

        return made

    return mutant


unnormalised = _changed(log_prob=lambda pair: lambda action: pair[1][action])
mean_entropy = _changed(entropy=lambda pair: lambda: -pair[1].log_softmax(-1).mean(-1))
first_mode = _changed(mode=lambda pair: lambda: torch.zeros(pair[1].shape[:-1], dtype=torch.int64))


def reversed_inverse(make: Make) -> Make:
    """Cumulates the probabilities from the wrong end."""

    def made(logits: Tensor) -> Any:
        inner, turned = make(logits), make(logits.flip(-1))
        return Wrapped(inner, transform=turned.transform, sample=turned.sample)

    return made


Pair = tuple[torch.nn.Module, Any]


def zero_biases(pair: Pair) -> Pair:
    """Begins with the biases at 0, whatever the module has."""
    module, network = pair

    def init(key: Tensor) -> dict[str, Tensor]:
        params = network.init(key)
        return {name: torch.zeros_like(leaf) if "bias" in name else leaf for name, leaf in params.items()}

    return module, attrs.evolve(network, init=init)


def loads_parameters(pair: Pair) -> Pair:
    """Puts the parameters where the module keeps its own."""
    module, network = pair

    def apply(params: dict[str, Tensor], x: Any) -> Any:
        module.load_state_dict({**module.state_dict(), **{name: leaf.detach() for name, leaf in params.items()}})
        return module(x)

    return module, attrs.evolve(network, apply=apply)
