"""Unification of atoms with two arguments: the most general substitution that makes two of them equal."""

import torch
from torch import Tensor

from ..record import record, tensor
from .terms import PADDING, Vocabulary, is_variable


@record
class Unifier:
    """Up to two bindings, applied one after the other; a binding of 0 to 0 has no effect."""

    variable: Tensor = tensor("* 2", "int")  # the replaced variable
    term: Tensor = tensor("* 2", "int")  # its replacement
    exists: Tensor = tensor("*", "bool")  # whether the atoms can be unified


def unify(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
    """Return the most general unifier of `goal` and `head`: int64 [*, 3] each, broadcast together -> Unifier [*].

    First arguments are unified, then second arguments under that binding. A variable of `head` is bound in preference to one
    of `goal`. Without function symbols no occurs check is needed: unification fails only on different constants or predicates.
    If no unifier exists the bindings are 0. Padding does not unify with any atom.
    Source: Robinson 1965, "A machine-oriented logic based on the resolution principle", for terms without functions.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=2)  # a, b are 1, 2; X1, X2 are 3, 4
    >>> found = unify(names, torch.tensor([1, 1, 3]), torch.tensor([1, 4, 4]))
    >>> substitute(found, torch.tensor([[1, 4, 3]])), found.exists
    (tensor([[1, 1, 1]]), tensor(True))
    """
    goal, head = goal + torch.zeros_like(head), head + torch.zeros_like(goal)
    variable, term, agrees = _bind(names, goal[..., 1], head[..., 1])
    second, other = (torch.where(atom[..., 2] == variable, term, atom[..., 2]) for atom in (goal, head))
    next_variable, next_term, next_agrees = _bind(names, second, other)
    exists = agrees & next_agrees & (goal[..., 0] == head[..., 0]) & (goal[..., 0] != PADDING)
    return Unifier(
        variable=torch.where(exists[..., None], torch.stack([variable, next_variable], -1), PADDING),
        term=torch.where(exists[..., None], torch.stack([term, next_term], -1), PADDING),
        exists=exists,
    )


def _bind(names: Vocabulary, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the binding that makes two terms equal: the variable, its term, and whether that is possible."""
    binds_right, binds_left = is_variable(names, right), is_variable(names, left)
    same = left == right
    variable = torch.where(binds_right, right, torch.where(binds_left, left, PADDING))
    term = torch.where(binds_right, left, torch.where(binds_left, right, PADDING))
    nothing = same | ~(binds_left | binds_right)
    return (
        torch.where(nothing, PADDING, variable),
        torch.where(nothing, PADDING, term),
        same | binds_left | binds_right,
    )


def substitute(unifier: Unifier, atoms: Tensor) -> Tensor:
    """Return the atoms with variables replaced: Unifier [*], int64 [*, A, 3] -> [*, A, 3]. Predicates stay the same.

    >>> one = Unifier(variable=torch.tensor([5, 0]), term=torch.tensor([2, 0]), exists=torch.tensor(True))
    >>> substitute(one, torch.tensor([[5, 5, 1], [0, 0, 0]]))
    tensor([[5, 2, 1],
            [0, 0, 0]])
    """
    terms = atoms[..., 1:]
    for number in range(2):
        variable, term = (part[..., number, None, None] for part in (unifier.variable, unifier.term))
        terms = torch.where(terms == variable, term, terms)
    return torch.cat([atoms[..., :1].expand((*terms.shape[:-1], 1)), terms], -1)
