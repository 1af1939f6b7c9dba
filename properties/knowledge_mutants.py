"""Knowledge bases as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..core.logic.knowledge import Knowledge
from ..core.logic.terms import Vocabulary
from ..core.record import replace

Build = Callable[[Vocabulary, Tensor, Tensor, Tensor], Knowledge]


def without_the_last(build: Build) -> Build:
    """Sets the guard at the end of the keys over the last of them."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        keys = base.keys.clone()
        keys[-2:] = base.keys[-1]
        return replace(base, keys=keys)

    return mutant


def as_they_come(build: Build) -> Build:
    """Leaves the facts unsorted."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        return replace(build(names, facts, heads, bodies), facts=facts)

    return mutant


def one_off(build: Build) -> Build:
    """Looks each predicate's rows up under the one before it."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, rule_start=torch.roll(base.rule_start, -1), fact_start=torch.roll(base.fact_start, -1))

    return mutant


def sorts_heads_alone(build: Build) -> Build:
    """Sorts the heads and leaves the bodies where they were."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        return replace(build(names, facts, heads, bodies), bodies=bodies)

    return mutant


MUTANTS: dict[str, Callable[[Build], Build]] = {"sorts heads and leaves bodies": sorts_heads_alone}
