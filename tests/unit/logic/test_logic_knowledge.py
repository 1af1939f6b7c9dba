"""A knowledge base: its laws, what it refuses, and the same answers compiled."""

import pytest
import torch

from purestep.core.errors import ShapeError
from purestep.core.logic.knowledge import is_fact, knowledge, matching, rules_of_predicate
from purestep.core.logic.terms import vocabulary
from purestep.properties import check
from purestep.properties.framework.compare import EXACT, same

from ...conftest import Compiled
from ...laws.logic.knowledge import knowledge_laws, matching_laws

NAMES = vocabulary(["p", "q"], ["a", "b"], variables=3)
FACTS = torch.tensor([[2, 1, 2], [1, 2, 1], [1, 1, 1]])
HEADS, BODIES = torch.tensor([[2, 3, 4], [1, 3, 3]]), torch.tensor([[[1, 3, 4], [0, 0, 0]], [[1, 3, 1], [2, 1, 3]]])

test_knowledge = check(knowledge_laws(), knowledge)
test_matching = check(matching_laws(), matching)


def test_bodies_without_heads_are_refused() -> None:
    with pytest.raises(ShapeError, match="knowledge: bodies"):
        knowledge(NAMES, FACTS, HEADS, BODIES[:1])


def test_compiled_is_eager(compiled: Compiled) -> None:
    base = knowledge(NAMES, FACTS, HEADS, BODIES)
    atoms = torch.cartesian_prod(torch.arange(NAMES.end + 1), torch.arange(NAMES.base), torch.arange(NAMES.base))

    def ask(atoms: torch.Tensor) -> object:
        found = matching(NAMES, base, atoms, 2)
        return is_fact(NAMES, base, atoms, FACTS[:1]), rules_of_predicate(base.rule_start, atoms[:, 0]), found

    known, (start, count), (numbers, among, more) = compiled(ask)(atoms)
    same("compiled", (known, (start, count), (numbers, among, more)), ask(atoms), EXACT)
    assert known.sum() == 2
    assert (start.max(), count.sum()) == (1, 2 * NAMES.base**2)
