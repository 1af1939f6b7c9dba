"""The vocabulary: names to numbers and back, and one number for each atom."""

import itertools

import pytest
import torch

from purestep.core.errors import ChoiceError
from purestep.core.logic.terms import atom_numbers, atom_text, is_variable, pack_atoms, vocabulary

NAMES = vocabulary(["q", "p"], ["b", "a", "c"], variables=2)


def test_names_are_numbered_in_their_order_and_marks_follow_the_predicates() -> None:
    assert (NAMES.predicates, NAMES.constants, NAMES.base) == (("p", "q"), ("a", "b", "c"), 6)
    assert (NAMES.true, NAMES.false, NAMES.end) == (3, 4, 5)


def test_packed_atoms_are_distinct_and_ordered_as_the_triples() -> None:
    atoms = list(itertools.product(range(NAMES.end + 1), range(NAMES.base), range(NAMES.base)))
    packed = pack_atoms(NAMES, torch.tensor(atoms))
    assert (packed.diff() > 0).all()


def test_variables_are_the_terms_beyond_the_constants() -> None:
    assert is_variable(NAMES, torch.arange(6)).tolist() == [False] * 4 + [True] * 2


def test_encode_and_decode_agree() -> None:
    atoms = [("p", "a", "c"), ("q", "b", "b")]
    rows = atom_numbers(NAMES, atoms).tolist()
    assert [atom_text(NAMES, row) for row in rows] == ["p(a, c)", "q(b, b)"]
    assert atom_numbers(NAMES, []).shape == (0, 3)
    assert [atom_text(NAMES, [number, 0, 0]) for number in (0, 3, 4, 5)] == ["", "true", "false", "end"]
    assert atom_text(NAMES, [2, 4, 5]) == "q(X1, X2)"


def test_bad_names_and_sizes_are_refused() -> None:
    with pytest.raises(ChoiceError, match="predicate is 'r'"):
        atom_numbers(NAMES, [("r", "a", "a")])
    with pytest.raises(ChoiceError, match="constant is 'd'"):
        atom_numbers(NAMES, [("p", "a", "d")])
    with pytest.raises(ChoiceError, match="vocabulary: variables is -1"):
        vocabulary(["p"], ["a"], variables=-1)
    with pytest.raises(ChoiceError, match="split the knowledge base"):
        vocabulary(["p"], ["a"], variables=1 << 31)
