"""Distributions as people get them wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core.distributions import Distribution
from .policy_mutants import Wrapped

Make = Callable[[Tensor], Distribution]


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
