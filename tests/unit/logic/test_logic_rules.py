"""Rules in names become numbers, or a clear error."""

import pytest
import torch

from purestep.core.errors import ChoiceError
from purestep.core.logic.rules import Rule, encode_rules
from purestep.core.logic.terms import atom_text, vocabulary

NAMES = vocabulary(["p", "q"], ["a", "b"], variables=3)
LONG = Rule(("q", "X", "Z"), (("p", "X", "_y"), ("p", "_y", "Z")))
SHORT = Rule(("p", "a", "X"), (("q", "X", "X"),))


def test_variables_are_numbered_as_they_appear_and_short_bodies_padded() -> None:
    heads, bodies = encode_rules(NAMES, [LONG, SHORT])
    assert heads.tolist() == [[2, 3, 4], [1, 1, 3]]
    assert bodies.tolist() == [[[1, 3, 5], [1, 5, 4]], [[2, 3, 3], [0, 0, 0]]]
    assert atom_text(NAMES, heads[1].tolist()) == "p(a, X1)"
    assert str(LONG) == "q(X, Z) :- p(X, _y), p(_y, Z)"


def test_no_rules_are_empty_tensors() -> None:
    heads, bodies = encode_rules(NAMES, [])
    assert (heads.shape, bodies.shape) == (torch.Size([0, 3]), torch.Size([0, 1, 3]))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(("p", "X", "Y"), (("q", "X", "a"),)), r"rule 1 is p\(X, Y\) :- q\(X, a\), which leaves Y open"),
        (Rule(("p", "a", "b"), ()), "without a body"),
        (Rule(("p", "A", "A"), (("q", "A", "B"), ("q", "C", "D"))), "4 variables, wanted 3 or fewer"),
        (Rule(("r", "A", "A"), (("q", "A", "A"),)), "rule 1: predicate is 'r'"),
        (Rule(("p", "A", "A"), (("q", "A", "d"),)), "rule 1: constant is 'd'"),
    ],
)
def test_what_is_no_rule_is_refused_by_number(rule: Rule, said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        encode_rules(NAMES, [SHORT, rule])
