"""Rules head <- body in names, and their encoding as numbers, with variables numbered from the vocabulary's first one."""

import re
from collections.abc import Sequence

import torch
from attrs import field, frozen
from torch import Tensor

from ..errors import ChoiceError, choose, message
from .terms import PADDING, Names, Vocabulary

VOID = (PADDING, PADDING, PADDING)
OPERATORS = re.compile(r"[\s(),\\]|^['%#]|^:-")  # in a relation that is to be quoted
MARKS = re.compile(r"[\t(),]|^'")  # in a constant


@frozen
class Rule:
    """A rule: the head holds if all atoms of the body hold. Words that begin with a capital or _ are variables, unless quoted.

    Rules are equal if their clauses are, whatever their confidence. As text, names are quoted where `parse_rules` needs it.
    """

    head: Names
    body: tuple[Names, ...]
    confidence: float | None = field(default=None, eq=False, repr=False)  # estimate of P(head | body); None: unknown

    def __str__(self) -> str:
        atoms = [
            f"{_in_quotes(predicate) if OPERATORS.search(predicate) else predicate}({_argument(first)}, {_argument(second)})"
            for predicate, first, second in (self.head, *self.body)
        ]
        return f"{atoms[0]} :- {', '.join(atoms[1:])}"


def names_variable(word: str) -> bool:
    """Return whether a word is a variable, as in Prolog.

    >>> [names_variable(word) for word in ("X", "_", "x")]
    [True, True, False]
    """
    return word[:1].isupper() or word[:1] == "_"


def constant_name(word: str) -> str:
    """Return the name of a constant in a rule: without the quotes of one that would be a variable.

    >>> constant_name("'Graz'"), constant_name("graz"), constant_name("'tis")
    ('Graz', 'graz', "'tis")
    """
    return word[1:-1] if is_quoted(word) else word


def is_quoted(word: str) -> bool:
    """Return whether a word has quotes that are not a part of its name: of what would be a variable, or quoted, without them.

    >>> is_quoted("'Graz'"), is_quoted("'graz'"), is_quoted("''Graz''")
    (True, False, True)
    """
    inner = word[1:-1]
    return len(word) > 2 and word[0] == word[-1] == "'" and (names_variable(inner) or is_quoted(inner))


def _argument(word: str) -> str:
    return _in_quotes(constant_name(word)) if is_quoted(word) or MARKS.search(word) else word


def _in_quotes(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def check_rule(where: str, rule: Rule) -> Rule:
    """Return the rule if its body binds every variable of its head and its confidence is in [0, 1]. Raises: ChoiceError.

    >>> check_rule("rule 1", Rule(("p", "X", "a"), (("q", "b", "X"),)))
    Rule(head=('p', 'X', 'a'), body=(('q', 'b', 'X'),))
    """
    bound = {word for atom in rule.body for word in atom[1:]}
    loose = [word for word in rule.head[1:] if names_variable(word) and word not in bound]
    if loose or not rule.body:
        got = f"{rule}, which leaves {loose[0]} open" if rule.body else f"{rule.head} without a body"
        wanted, remedy = "a body that binds every variable of the head", "add an atom to it, or make the head a fact"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))
    if rule.confidence is not None and not 0.0 <= rule.confidence <= 1.0:
        wanted, remedy = "a number from 0 to 1", "correct it, or leave it out for all rules"
        raise ChoiceError(message(f"{where}: confidence", got=rule.confidence, wanted=wanted, remedy=remedy))
    return rule


def encode_rules(names: Vocabulary, rules: Sequence[Rule]) -> tuple[Tensor, Tensor]:
    """Return rules as numbers: R rules -> heads int64 [R, 3], bodies [R, M, 3], M atoms in the longest body (at least 1).

    A rule's variables are n+1, n+2, ... in the order of appearance, the head first. Raises: ChoiceError for an unknown name,
    a rule without a body, a variable of a head that its body does not bind, more variables than the vocabulary has.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=2)
    >>> encode_rules(names, [Rule(("p", "X", "Y"), (("p", "Y", "X"), ("p", "a", "Y")))])
    (tensor([[1, 3, 4]]), tensor([[[1, 4, 3],
             [1, 1, 4]]]))
    """
    longest = max((len(rule.body) for rule in rules), default=1)
    heads, bodies = list[tuple[int, ...]](), list[list[tuple[int, ...]]]()
    for number, rule in enumerate(rules):
        head, *body = _numbered(names, rule, f"rule {number}")
        heads.append(head)
        bodies.append([*body, *[VOID] * (longest - len(body))])
    return (
        torch.tensor(heads, dtype=torch.int64).reshape(-1, 3),
        torch.tensor(bodies, dtype=torch.int64).reshape(-1, longest, 3),
    )


def _numbered(names: Vocabulary, rule: Rule, where: str) -> list[tuple[int, int, int]]:
    check_rule(where, rule)
    atoms = (rule.head, *rule.body)
    variables = list(dict.fromkeys(word for atom in atoms for word in atom[1:] if names_variable(word)))
    if len(variables) > names.variables:
        remedy = "make the vocabulary with more variables"
        raise ChoiceError(
            message(where, got=f"{len(variables)} variables", wanted=f"{names.variables} or fewer", remedy=remedy)
        )
    predicates = {name: number for number, name in enumerate(names.predicates, 1)}
    words = [*names.constants, *variables]
    terms = {word: number for number, word in enumerate(words, 1)}
    return [
        (
            choose(f"{where}: predicate", predicate, predicates),
            choose(f"{where}: constant", constant_name(first), terms),
            choose(f"{where}: constant", constant_name(second), terms),
        )
        for predicate, first, second in atoms
    ]
