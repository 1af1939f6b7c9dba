"""Knowledge bases as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.terms import Vocabulary, is_variable, pack
from purestep.core.record import replace

Build = Callable[[Vocabulary, Tensor, Tensor, Tensor], Knowledge]
Matching = Callable[[Vocabulary, Knowledge, Tensor, int], tuple[Tensor, Tensor, Tensor]]


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
        base = build(names, facts, heads, bodies)
        return replace(base, facts=torch.cat([facts, base.facts[-1:]]))

    return mutant


def one_off(build: Build) -> Build:
    """Looks each predicate's rows up under the one before it."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, rule_start=torch.roll(base.rule_start, -1))

    return mutant


def sorts_heads_alone(build: Build) -> Build:
    """Sorts the heads and leaves the bodies where they were."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, bodies=torch.cat([bodies, base.bodies[-1:]]))

    return mutant


def keeps_doubles(build: Build) -> Build:
    """Sorts facts and keeps those that come twice."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base, order = build(names, facts, heads, bodies), pack(names, facts).argsort()
        return replace(base, facts=torch.cat([facts[order], base.facts[-1:]]))

    return mutant


def first_argument_only(matching: Matching) -> Matching:
    """Searches by the first argument; where that is open, by nothing."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        predicate, first, second = goal.unbind(-1)
        return matching(
            names,
            base,
            torch.stack([predicate, first, torch.where(is_variable(names, first), first, second)], -1),
            slots,
        )

    return mutant


def counts_nothing(matching: Matching) -> Matching:
    """Does not say how many facts had no slot."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        numbers, among, more = matching(names, base, goal, slots)
        return numbers, among, torch.zeros_like(more)

    return mutant


def as_the_first(matching: Matching) -> Matching:
    """Uses as many slots for each goal of a batch as the first one has facts."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        numbers, among, more = matching(names, base, goal, slots)
        return numbers, among & among[(0,) * (among.ndim - 1)], more

    return mutant


MUTANTS: dict[str, Callable[[Build], Build]] = {"sorts heads and leaves bodies": sorts_heads_alone}
