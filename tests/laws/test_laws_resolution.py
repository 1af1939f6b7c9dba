"""Resolution, canonical states and negatives obey their laws, alone, compiled and under vmap."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.logic.canonical import canonical, state_hash
from purestep.core.logic.corrupt import HEAD, TAIL, corrupt, corruptions, domains, known_atoms
from purestep.core.logic.derive import Successors, Widths, derive
from purestep.core.logic.knowledge import knowledge
from purestep.core.logic.rules import Rule, encode_rules
from purestep.core.logic.terms import atom_numbers, vocabulary
from purestep.properties import check
from purestep.properties.framework.compare import EXACT, same

from ..conftest import Compiled
from .logic.canonical import Renaming, canonical_laws
from .logic.corrupt import corrupt_laws
from .logic.corruptions import corruptions_laws
from .logic.derive import derive_laws

test_derive = check(derive_laws(), derive)
test_canonical = check(canonical_laws(), Renaming(canonical, state_hash))
test_corrupt = check(corrupt_laws(), corrupt)
test_corruptions = check(corruptions_laws(), corruptions)

NAMES = vocabulary(["likes", "knows"], ["ann", "bob", "cy"], variables=16)
FACTS = [("knows", "ann", "bob"), ("knows", "bob", "cy"), ("likes", "cy", "ann"), ("knows", "ann", "ann")]
RULES = [
    Rule(("likes", "X", "X"), (("knows", "X", "X"),)),
    Rule(("likes", "X", "Z"), (("knows", "X", "Y"), ("likes", "Y", "Z"))),
    Rule(("knows", "X", "Y"), (("knows", "Y", "X"),)),
]
BASE = knowledge(NAMES, atom_numbers(NAMES, FACTS), *encode_rules(NAMES, RULES))
WIDTHS = Widths(atoms=2, successors=4, facts=2, rules=2)


def every_state() -> tuple[Tensor, Tensor]:
    """All canonical states of one goal, alone and before another, the marks and padding; half with a fact excluded."""
    terms = torch.arange(1, 6)
    first = torch.cartesian_prod(torch.arange(1, 3), terms, terms)
    alone = first[:, None]
    beside = torch.tensor([[0, 0, 0], [1, 4, 4], [2, 5, 1]])
    pairs = torch.stack([torch.cat([alone, other.expand_as(alone)], 1) for other in beside]).flatten(0, 1)
    ends = torch.tensor([[[mark, 0, 0], [0, 0, 0]] for mark in (NAMES.true, NAMES.false, NAMES.end, 0)])
    states = canonical(NAMES, torch.cat([pairs, ends]))
    excluded = torch.where(torch.arange(len(states))[:, None] % 2 == 0, BASE.facts[0], 0)
    return states, excluded


def ask(states: Tensor, excluded: Tensor) -> Successors:
    return derive(NAMES, BASE, WIDTHS, states, excluded)


def test_what_follows_by_hand() -> None:
    states = torch.zeros(1, 2, 3, dtype=torch.int64)
    states[0, 0] = atom_numbers(NAMES, [("likes", "ann", "cy")])[0]
    found = ask(states, states[:, 0])
    # The first rule wants twice the same argument. The second makes knows(ann, Y), likes(Y, cy).
    assert found.states[0, : int(found.count)].tolist() == [[[1, 1, 4], [2, 4, 3]]]
    after = ask(found.states[:, 0], states[:, 0])
    # By two facts likes(ann, cy), excluded and so not known, and likes(bob, cy); by the third rule knows(Y, ann), likes(Y, cy).
    assert after.states[0, : int(after.count)].tolist() == [
        [[2, 1, 3], [0, 0, 0]],
        [[2, 2, 3], [0, 0, 0]],
        [[1, 4, 1], [2, 4, 3]],
    ]


@pytest.mark.slow
def test_compiled_is_eager_and_vmap_is_a_batch(compiled: Compiled) -> None:
    asked = every_state()
    found = ask(*asked)
    same("compiled", compiled(ask)(*asked), found, EXACT)
    same("vmap", torch.vmap(ask)(*asked), found, EXACT)
    assert found.too_long.any()
    assert found.too_many.any()
    assert (found.count > 1).any()


@pytest.mark.slow
def test_negatives_compiled_are_eager_and_vmap_is_a_batch(compiled: Compiled) -> None:
    within, known = domains(NAMES, {("likes", TAIL): ["ann", "cy"]}), known_atoms(NAMES, BASE.facts[:-1])
    atoms, own = BASE.facts[:-1], keys.split(keys.key(5), 4)
    arguments = torch.tensor([HEAD, TAIL, TAIL, TAIL])

    def make(atom: Tensor, argument: Tensor, key: Tensor) -> Any:
        one = corrupt(NAMES, within, known, atom, argument, key, tries=4)
        return one, corruptions(NAMES, within, known, atom, TAIL, 2, key)

    made = make(atoms, arguments, own)
    same("compiled", compiled(make)(atoms, arguments, own), made, EXACT)
    same("vmap", torch.vmap(make)(atoms, arguments, own), made, EXACT)


CONSTANTS = 1024
LARGE = vocabulary(["p"], [f"c{number}" for number in range(CONSTANTS)], variables=2)


@pytest.mark.parametrize("goals", [1, 3])
def test_a_million_states_that_differ_in_few_bits_have_a_million_hashes(goals: int) -> None:
    numbers = torch.arange(1, CONSTANTS + 1)
    first, second = torch.cartesian_prod(numbers, numbers).unbind(-1)
    states = torch.ones(len(first), goals, 3, dtype=torch.int64)
    states[:, 0, 1], states[:, -1, 2] = first, second
    assert len(torch.unique(state_hash(LARGE, states))) == len(first) > 10**6


def test_a_million_random_states_have_a_million_hashes() -> None:
    """There are 2^60 such states: that two of them are one is as good as impossible."""
    terms = keys.randint(keys.key(0), (1 << 20, 3, 2), 1, CONSTANTS + 1)
    states = torch.cat([torch.ones_like(terms[..., :1]), terms], -1)
    assert len(torch.unique(state_hash(LARGE, states))) == len(states) > 10**6
