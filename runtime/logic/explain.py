"""A proof as text: a row for each goal of its tree, with the rule or fact that settled it and the policy's probability."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from attrs import frozen

from ...core.logic.knowledge import Knowledge
from ...core.logic.terms import Vocabulary
from .attempts import OPEN
from .proof_tree import Atom, Goal, clause

LETTERS = "XYZUVW"


@frozen
class ProofRow:
    """A goal as text."""

    depth: int  # number of goals above it
    kind: Literal["rule", "fact", "known", "open"]
    goal: str
    by: str  # the rule or fact that settled it
    chosen: str  # the probability and the number of choices; empty where the policy did not choose


def by_policy(goal: Goal) -> str:
    """Return the probability of the policy's choice, and the number of choices.

    >>> by_policy(Goal((1, 6, 3), origin=1, probability=0.5, choices=2))
    'p = 0.50, of 2 choices'
    """
    among = "the only choice" if goal.choices == 1 else f"of {goal.choices} choices"
    return f"p = {goal.probability:.2f}, {among}"


def by_confidence(goal: Goal) -> str:
    """Return the rule's confidence; a fact has none, and 1 as its probability.

    >>> by_confidence(Goal((2, 6, 2), origin=4, probability=0.5, choices=1, goals=(Goal((1, 6, 3)),)))
    'confidence 0.50'
    """
    return f"confidence {goal.probability:.2f}" if goal.goals else ""


def tree_rows(
    names: Vocabulary, base: Knowledge, root: Goal, chosen: Callable[[Goal], str] = by_policy
) -> tuple[ProofRow, ...]:
    """Return the goals of a tree as text, from left to right, each before those below it.

    Unbound variables are X, Y, Z, ..., one letter for each variable; a rule has letters of its own.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()  # borders, in are predicates 1, 2; spain is constant 6, france 3, europe 2; 7 is a variable
    >>> fact = Goal((1, 6, 3), origin=1, probability=0.5, choices=2)
    >>> for row in tree_rows(game.names, world.base, Goal((2, 6, 2), origin=4, choices=1, goals=(fact, Goal((2, 7, 2))))):
    ...     print(row.depth, row.goal, "|", *filter(None, [row.by, row.chosen]))
    0 in(spain, europe) | in(X, Y) :- borders(X, Z), in(Z, Y) p = 1.00, the only choice
    1 borders(spain, france) | fact p = 0.50, of 2 choices
    1 in(X, europe) | open
    """
    goals = list(_walk(root, 0))
    called = _letters(names, [goal.atom for _, goal in goals])
    return tuple(_row(names, base, depth, goal, called, chosen) for depth, goal in goals)


def _walk(goal: Goal, depth: int) -> Iterator[tuple[int, Goal]]:
    yield depth, goal
    for below in goal.goals:
        yield from _walk(below, depth + 1)


def _row(
    names: Vocabulary,
    base: Knowledge,
    depth: int,
    goal: Goal,
    called: Mapping[int, str],
    described: Callable[[Goal], str],
) -> ProofRow:
    text = _text(names, goal.atom, called)
    if goal.origin == OPEN:
        return ProofRow(depth, "open", text, "open", "")
    if not goal.choices:
        return ProofRow(depth, "known", text, "known fact", "")
    chosen = described(goal)
    if goal.origin < base.facts.shape[0] - 1:
        return ProofRow(depth, "fact", text, "fact", chosen)
    rule = clause(names, base, goal.origin)
    head, *body = (_text(names, atom, _letters(names, rule)) for atom in rule)
    return ProofRow(depth, "rule", text, f"{head} :- {', '.join(body)}", chosen)


def _letters(names: Vocabulary, atoms: Sequence[Atom]) -> dict[int, str]:
    """Return a name for each variable, in the order of their appearance."""
    variables = dict.fromkeys(term for atom in atoms for term in atom[1:] if term > len(names.constants))
    return {
        variable: LETTERS[place] if place < len(LETTERS) else f"X{place}" for place, variable in enumerate(variables)
    }


def _text(names: Vocabulary, atom: Atom, called: Mapping[int, str]) -> str:
    first, second = (called[term] if term in called else names.constants[term - 1] for term in atom[1:])
    return f"{names.predicates[atom[0] - 1]}({first}, {second})"


def tree_lines(told: Sequence[ProofRow]) -> Iterator[str]:
    """Yield the goals of a tree, one a line, in columns and indented by their depth; at least one row is needed.

    >>> known = ProofRow(1, "known", "p(b, a)", "known fact", "")
    >>> list(tree_lines([ProofRow(0, "rule", "q(a, b)", "q(X, Y) :- p(Y, X)", "p = 1.00"), known]))
    ['  q(a, b)     q(X, Y) :- p(Y, X)   p = 1.00', '    p(b, a)   known fact']
    """
    indented = ["  " * (row.depth + 1) + row.goal for row in told]
    wide, by = max(map(len, indented)), max(len(row.by) for row in told)
    for text, row in zip(indented, told, strict=True):
        yield f"{text:{wide}}   {row.by:{by}}   {row.chosen}".rstrip()
