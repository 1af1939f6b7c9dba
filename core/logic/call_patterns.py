"""Mode analysis: the bound arguments of goals at resolution, and the resulting maximum numbers of facts and rules."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from .knowledge import Knowledge
from .rules import Rule, names_variable
from .terms import Vocabulary

Call = tuple[str, bool, bool]  # a predicate, and whether its first and second argument are bound


def calls(rules: Sequence[Rule], predicates: Iterable[str]) -> frozenset[Call]:
    """Return the calls that leftmost resolution can reach from ground queries of these predicates.

    A variable is bound if it is a bound argument of the head, or occurs in an earlier atom of the body, which is solved
    first: rules bind all variables of their heads.
    Source: Debray and Warren 1988, "Automatic mode inference for logic programs".

    >>> rule = Rule(("p", "X", "Z"), (("q", "X", "Y"), ("p", "Y", "Z")))
    >>> sorted(calls([rule], ["p"]))
    [('p', True, True), ('q', True, False)]
    """
    found = frozenset((predicate, True, True) for predicate in predicates)
    while True:
        more = found | {call for rule in rules for before in found for call in _called(rule, before)}
        if more == found:
            return found
        found = more


def _called(rule: Rule, call: Call) -> Iterator[Call]:
    if rule.head[0] != call[0]:
        return
    bound = {word for word, given in zip(rule.head[1:], call[1:], strict=True) if given}
    for predicate, first, second in rule.body:
        yield predicate, _is_bound(first, bound), _is_bound(second, bound)
        bound |= {first, second}


def _is_bound(word: str, bound: set[str]) -> bool:
    return word in bound or not names_variable(word)


def match_room(names: Vocabulary, base: Knowledge, called: Iterable[Call]) -> tuple[Tensor, Tensor]:
    """Return the maximum number of facts that one of the calls can match, and of rules of one predicate: int64 [], [].

    >>> from .knowledge import knowledge
    >>> from .terms import vocabulary
    >>> names, none = vocabulary(["p"], ["a", "b"], variables=1), torch.zeros(0, 3, dtype=torch.int64)
    >>> base = knowledge(names, torch.tensor([[1, 1, 1], [1, 1, 2], [1, 2, 1]]), none, none[:, None])
    >>> [int(match_room(names, base, [("p", *bound)])[0]) for bound in ((True, True), (True, False), (False, False))]
    [1, 2, 3]
    """
    number = {name: place for place, name in enumerate(names.predicates, 1)}
    facts, rules = [base.keys.new_zeros(1)], [base.keys.new_zeros(1)]
    for predicate, first, second in sorted(set(called)):
        own = base.facts[base.facts[:, 0] == number[predicate]]
        bound = [place for place, given in ((1, first), (2, second)) if given]
        facts.append(torch.unique(own[:, [0, *bound]], dim=0, return_counts=True)[1])
        rules.append(base.rule_start[number[predicate] + 1 :][:1] - base.rule_start[number[predicate]])
    return torch.cat(facts).max(), torch.cat(rules).max()
