"""Unification obeys its laws, eager and compiled."""

import torch

from purestep.core.logic.terms import vocabulary
from purestep.core.logic.unify import substitute, unify
from purestep.properties import check
from purestep.properties.framework.compare import EXACT, same

from ..conftest import Compiled
from .logic.unify import unify_laws

test_unify = check(unify_laws(), unify)


def test_compiled_is_eager_on_all_pairs_of_atoms(compiled: Compiled) -> None:
    names = vocabulary(["p"], ["a", "b"], variables=3)
    terms = torch.arange(1, names.base)
    atoms = torch.cartesian_prod(torch.ones(1, dtype=torch.int64), terms, terms)

    def both(goal: torch.Tensor, head: torch.Tensor) -> object:
        found = unify(names, goal[:, None], head[None])
        return found, substitute(found, goal[:, None, None].expand(-1, len(head), -1, -1))

    same("compiled", compiled(both)(atoms, atoms), both(atoms, atoms), EXACT)
