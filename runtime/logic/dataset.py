"""A data set of a knowledge graph: facts as premises, queries to prove, and rules."""

from collections.abc import Iterable, Mapping

import attrs
from attrs import frozen

from ...core.errors import ChoiceError, message
from ...core.logic.rules import Rule, check_rule, constant_name, names_variable
from ...core.logic.terms import Names, Vocabulary, vocabulary


@frozen
class Dataset:
    """Three splits of a graph's facts, as names; the first is also the fact base."""

    name: str
    train: tuple[Names, ...]
    valid: tuple[Names, ...]  # may be empty
    test: tuple[Names, ...]
    rules: tuple[Rule, ...] = ()
    domains: Mapping[tuple[str, int], tuple[str, ...]] = attrs.field(factory=dict)  # of (predicate, argument 0 or 1)


def check_dataset(dataset: Dataset) -> Dataset:
    """Return the data set if its train and test splits have facts. Raises: ChoiceError.

    Facts of valid and test may contain constants and predicates that train does not have.

    >>> check_dataset(Dataset("small", (("p", "a", "b"),), (), (("q", "a", "c"),))).name
    'small'
    """
    for split, facts in (("train", dataset.train), ("test", dataset.test)):
        if not facts:
            remedy = "give it at least one fact"
            raise ChoiceError(message(f"{dataset.name}: {split}", got="empty", wanted="facts", remedy=remedy))
    return dataset


def check_confidences(dataset: Dataset) -> Dataset:
    """Return the data set if all of its rules have a confidence, or none has. Raises: ChoiceError.

    >>> rules = (Rule(("p", "X", "Y"), (("q", "X", "Y"),), 0.5), Rule(("q", "X", "Y"), (("p", "X", "Y"),)))
    >>> check_confidences(Dataset("small", (("p", "a", "b"),), (), (("q", "a", "c"),), rules))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: small: confidence is absent for 1 of 2 rules, e.g. q(X, Y) :- p(X, Y)...
    """
    absent = [rule for rule in dataset.rules if rule.confidence is None]
    if absent and len(absent) < len(dataset.rules):
        got = f"absent for {len(absent)} of {len(dataset.rules)} rules, e.g. {absent[0]}"
        wanted, remedy = "one for each rule or for none", "add it, or pass --confidence standard"
        raise ChoiceError(message(f"{dataset.name}: confidence", got=got, wanted=wanted, remedy=remedy))
    return dataset


def vocabulary_of(dataset: Dataset, *, variables: int = 100) -> Vocabulary:
    """Return the vocabulary of all names in the data set's splits, rules and domains. Raises: ChoiceError.

    >>> rules = (Rule(("q", "X", "c"), (("p", "X", "b"),)),)
    >>> vocabulary_of(Dataset("small", (("p", "a", "b"),), (), (("q", "a", "c"),), rules), variables=3)
    Vocabulary(predicates=('p', 'q'), constants=('a', 'b', 'c'), variables=3)
    """
    facts = (*dataset.train, *dataset.valid, *dataset.test)
    atoms = [atom for rule in dataset.rules for atom in (rule.head, *rule.body)]
    predicates = {atom[0] for atom in (*facts, *atoms)} | {predicate for predicate, _ in dataset.domains}
    constants = {word for atom in facts for word in atom[1:]}
    constants |= {constant_name(word) for atom in atoms for word in atom[1:] if not names_variable(word)}
    constants |= {word for members in dataset.domains.values() for word in members}
    return vocabulary(predicates, constants, variables=variables)


def with_rules(dataset: Dataset, rules: Iterable[Rule]) -> Dataset:
    """Return the data set with these rules instead of its own. Raises: ChoiceError for one that `check_rule` refuses.

    >>> small = Dataset("small", (("p", "a", "b"),), (), (("p", "b", "a"),))
    >>> [str(rule) for rule in with_rules(small, [Rule(("p", "X", "Y"), (("p", "Y", "X"),))]).rules]
    ['p(X, Y) :- p(Y, X)']
    """
    checked = [check_rule(f"{dataset.name}: rule {number}", rule) for number, rule in enumerate(rules, 1)]
    return attrs.evolve(dataset, rules=tuple(checked))
