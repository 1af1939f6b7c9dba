"""Confidence of rules, measured on the train facts by the search that later uses it."""

from collections.abc import Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor

from ...core.logic.knowledge import is_fact
from ...core.logic.rules import Rule
from .proof_scores import prover, sorted_rules
from .proofs import Proofs
from .search import ProofsFound, SearchLimits

CHUNK = 2048  # facts that are proven at once
UNBOUNDED = 1 << 40

Measure = Literal["standard", "pca"]


def with_confidences(made: Proofs, measure: Measure = "standard", *, smoothing: float = 5.0) -> Proofs:
    """Return the data set with confidences measured on its train facts, instead of those its rules have.

    support = the pairs for which body and head are true,    confidence = support / (body + smoothing)

    body = the pairs for which the body is true ("standard"), without those whose first constant is in no fact of the head's
    relation ("pca": facts are assumed to be missing only for constants that have none). A body is true by facts only, and a
    fact is none for its own proof. Source: Galarraga et al. 2013 (AMIE), definitions 3.3 and 3.4.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> made = with_confidences(proofs(family(50), max_depth=5), smoothing=0.0)
    >>> {rule.confidence for rule in made.dataset.rules if rule.head[0] == "husband"}  # husband(X, Y) :- wife(Y, X)
    {0.6470588235294118}
    """
    counted = dict(zip(sorted_rules(made), measure_confidences(made, measure, smoothing).tolist(), strict=True))
    rules = tuple(attrs.evolve(rule, confidence=counted[rule]) for rule in made.dataset.rules)
    return attrs.evolve(made, dataset=attrs.evolve(made.dataset, rules=rules))


def measure_confidences(made: Proofs, measure: Measure, smoothing: float) -> Tensor:
    """Return the confidences in the order of the knowledge base: float64 [R]."""
    rules = sorted_rules(made)
    own = prover(made, torch.ones(len(rules), dtype=torch.float64), SearchLimits(rules=1, expansions=UNBOUNDED))
    names, base = own.names, own.base
    support, body = torch.zeros(2, len(rules), dtype=torch.float64)
    for predicate in torch.unique(base.heads[:-1, 0]).tolist():
        variables = torch.tensor([[predicate, len(names.constants) + 1, len(names.constants) + 2]])
        found = own.proofs(variables)
        rule, proven = _one_rule_each(found)
        pairs = torch.cat([torch.full_like(found.answer[proven, :1], predicate), found.answer[proven]], -1)
        true = is_fact(names, base, pairs)
        facts = base.facts[:-1][base.facts[:-1, 0] == predicate]
        counts = ~true & (torch.isin(pairs[:, 1], facts[:, 1]) if measure == "pca" else True)
        body = body + torch.bincount(rule[counts], minlength=len(rules))
        if not _recursive(rules, names.predicates[predicate - 1]):
            support = support + torch.bincount(rule[true], minlength=len(rules))
            continue
        for at in range(0, len(facts), CHUNK):  # a fact may be in the body of its own proof
            asked = facts[at : at + CHUNK]
            rule, _ = _one_rule_each(own.proofs(asked, asked))
            support = support + torch.bincount(rule, minlength=len(rules))
    return torch.where(support > 0, support / (support + body + smoothing).clamp_min(1.0), 0.0)


def _recursive(rules: Sequence[Rule], predicate: str) -> bool:
    """Return whether a rule of this head has it in its body too."""
    return any(atom[0] == predicate for rule in rules if rule.head[0] == predicate for atom in rule.body)


def _one_rule_each(found: ProofsFound) -> tuple[Tensor, Tensor]:
    """Return the rule of each proof that has one, and the indices of these proofs."""
    first = found.rules()[:, 0]
    proven = (first >= 0).nonzero()[:, 0]
    return first[proven], proven
