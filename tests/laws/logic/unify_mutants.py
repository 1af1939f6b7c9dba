"""Unification as people get it wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from purestep.core.logic.terms import PADDING, Vocabulary, is_variable
from purestep.core.logic.unify import Unifier
from purestep.core.record import replace

Unify = Callable[[Vocabulary, Tensor, Tensor], Unifier]


def forgets_the_first(unify: Unify) -> Unify:
    """Each argument for itself: p(X, X) then unifies with p(a, b)."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        first, second = (
            unify(names, *(torch.stack([atom[..., 0], atom[..., n], atom[..., n]], -1) for atom in (goal, head)))
            for n in (1, 2)
        )
        return Unifier(
            variable=torch.stack([first.variable[..., 0], second.variable[..., 0]], -1),
            term=torch.stack([first.term[..., 0], second.term[..., 0]], -1),
            exists=first.exists & second.exists,
        )

    return mutant


def matches_only(unify: Unify) -> Unify:
    """One-sided matching: the goal must be an instance of the head."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        of_goal = (found.variable[..., :, None] == goal[..., None, 1:]).any(-1) & is_variable(names, found.variable)
        return replace(found, exists=found.exists & ~of_goal.any(-1))

    return mutant


def too_special(unify: Unify) -> Unify:
    """Where a second binding is free, the variable that two were made into becomes the first constant."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        free = is_variable(names, found.term[..., 0]) & (found.variable[..., 1] == PADDING)
        variable = torch.where(free, found.term[..., 0], found.variable[..., 1])
        term = torch.where(free, 1, found.term[..., 1])
        return replace(
            found,
            variable=torch.stack([found.variable[..., 0], variable], -1),
            term=torch.stack([found.term[..., 0], term], -1),
        )

    return mutant


def other_order(unify: Unify) -> Unify:
    """The two bindings in the wrong order."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        return replace(found, variable=found.variable.flip(-1), term=found.term.flip(-1))

    return mutant


def all_or_none(unify: Unify) -> Unify:
    """Reduces over the batch too."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        return replace(found, exists=found.exists.all().expand_as(found.exists))

    return mutant


def ignores_the_predicate(unify: Unify) -> Unify:
    """Compares the arguments only."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        predicate = torch.ones_like(goal[..., :1])
        return unify(names, *(torch.cat([predicate, atom[..., 1:]], -1) for atom in (goal, head)))

    return mutant


MUTANTS: dict[str, Callable[[Unify], Unify]] = {"compares the arguments only": ignores_the_predicate}
