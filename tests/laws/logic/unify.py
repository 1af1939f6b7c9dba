"""Laws of unification, checked by all assignments of constants to variables: f(names, goal, head) -> Unifier."""

import itertools
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core.logic.terms import PADDING, Vocabulary, is_variable, vocabulary
from purestep.core.logic.unify import Unifier, substitute
from purestep.core.record import replace, take
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

# --- mutants ---
# Common errors in unification.


Unify = Callable[[Vocabulary, Tensor, Tensor], Unifier]


def forgets_the_first(unify: Unify) -> Unify:
    """Each argument for itself: p(X, X) then unifies with p(a, b)."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        first, second = (
            unify(names, *(torch.stack([atom[..., 0], atom[..., n], atom[..., n]], -1) for atom in (goal, head)))
            for n in (1, 2)
        )
        return Unifier(
            variable=torch.stack([first.variable[..., 0], second.variable[..., 0]], -1),
            term=torch.stack([first.term[..., 0], second.term[..., 0]], -1),
            exists=first.exists & second.exists,
        )

    return mutant


def matches_only(unify: Unify) -> Unify:
    """One-sided matching: the goal must be an instance of the head."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        of_goal = (found.variable[..., :, None] == goal[..., None, 1:]).any(-1) & is_variable(names, found.variable)
        return replace(found, exists=found.exists & ~of_goal.any(-1))

    return mutant


def too_special(unify: Unify) -> Unify:
    """Bind the variable that two were merged into to the first constant, if the second binding is free."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        free = is_variable(names, found.term[..., 0]) & (found.variable[..., 1] == PADDING)
        variable = torch.where(free, found.term[..., 0], found.variable[..., 1])
        term = torch.where(free, 1, found.term[..., 1])
        return replace(
            found,
            variable=torch.stack([found.variable[..., 0], variable], -1),
            term=torch.stack([found.term[..., 0], term], -1),
        )

    return mutant


def other_order(unify: Unify) -> Unify:
    """The two bindings in the wrong order."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        return replace(found, variable=found.variable.flip(-1), term=found.term.flip(-1))

    return mutant


def all_or_none(unify: Unify) -> Unify:
    """Reduce over the batch too."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        found = unify(names, goal, head)
        return replace(found, exists=found.exists.all().expand_as(found.exists))

    return mutant


def ignores_the_predicate(unify: Unify) -> Unify:
    """Compare the arguments only."""

    def mutant(names: Vocabulary, goal: Tensor, head: Tensor) -> Unifier:
        predicate = torch.ones_like(goal[..., :1])
        return unify(names, *(torch.cat([predicate, atom[..., 1:]], -1) for atom in (goal, head)))

    return mutant


MUTANTS: dict[str, Callable[[Unify], Unify]] = {"compares the arguments only": ignores_the_predicate}


# --- laws ---


Pairs = tuple[Tensor, Tensor]
SOURCE = "Robinson 1965, A machine-oriented logic based on the resolution principle"
NAMES = vocabulary(["p", "q"], ["a", "b", "c"], variables=4)
OPEN = range(len(NAMES.constants) + 1, NAMES.base)


def _groundings() -> Tensor:
    """Every assignment of constants to the variables, as a table from terms to terms [G, terms]."""
    constants = range(1, len(NAMES.constants) + 1)
    fixed = [PADDING, *constants]
    return torch.tensor([[*fixed, *values] for values in itertools.product(constants, repeat=len(OPEN))])


GROUNDINGS = _groundings()


@st.composite
def atom_pairs(draw: DrawFn, most: int = 6) -> Pairs:
    """Draw goals and rule heads [N, 3] over few names, so that they repeat: some of them padding, most of one predicate."""
    count = draw(st.integers(1, most))
    predicates, terms = st.sampled_from([1, 1, 1, 1, 2, PADDING]), st.integers(1, NAMES.base - 1)
    atoms = st.lists(st.tuples(predicates, terms, terms).map(_padded), min_size=count, max_size=count)
    return torch.tensor(draw(atoms)), torch.tensor(draw(atoms))


def _padded(atom: tuple[int, int, int]) -> tuple[int, int, int]:
    return atom if atom[0] != PADDING else (PADDING, PADDING, PADDING)


def unify_laws() -> Suite:
    """The laws of a most general unifier of two atoms."""
    return Suite("unify_laws", (_makes_one(), _exists(), _most_general(), _once(), _alone()))


_law = law_constructor(atom_pairs, SOURCE)


def _makes_one() -> Law:
    def check(unify: Unify, pairs: Pairs, seen: Seen) -> None:
        found = unify(NAMES, *pairs)
        seen(
            "a repeated variable",
            ((pairs[1][:, 1] == pairs[1][:, 2]) & (pairs[1][:, 1] >= OPEN[0]) & found.exists).any(),
        )
        left, right = (substitute(found, atoms[:, None])[found.exists] for atoms in pairs)
        same("the head under the unifier", right, left, EXACT)

    mutant = Mutant("unifies the second arguments as if nothing were bound yet", forgets_the_first)
    return _law("makes_one", "Under the unifier both atoms are one.", mutant, check, "a repeated variable", share=0.01)


def _solutions(pairs: Pairs) -> Tensor:
    """Return the assignments that make the atoms of a pair equal: bool [G, N]."""
    left, right = (GROUNDINGS[:, atoms[:, 1:]] for atoms in pairs)
    alike = (pairs[0][:, 0] == pairs[1][:, 0]) & (pairs[0][:, 0] != PADDING)
    return (left == right).all(-1) & alike


def _exists() -> Law:
    def check(unify: Unify, pairs: Pairs, seen: Seen) -> None:
        wanted = _solutions(pairs).any(0)
        seen("atoms that unify", wanted.any())
        seen("atoms that do not", (~wanted).any())
        same("whether a unifier exists", unify(NAMES, *pairs).exists, wanted, EXACT)

    mutant = Mutant("binds variables of the head only", matches_only)
    claim = "There is a unifier exactly where some constants for the variables make the atoms equal."
    return _law("exists", claim, mutant, check, "atoms that unify", "atoms that do not")


def _most_general() -> Law:
    def check(unify: Unify, pairs: Pairs, seen: Seen) -> None:
        found = unify(NAMES, *pairs)
        variables = torch.tensor([[[1, v, v] for v in OPEN]]).expand(len(pairs[0]), -1, -1)
        bound = substitute(found, variables)[..., 1]
        seen("two variables made one", (found.exists & (found.term >= OPEN[0]).any(-1)).any())
        solves = _solutions(pairs)
        kept = (GROUNDINGS[:, bound] == GROUNDINGS[:, variables[..., 1]]).all(-1)
        require(kept | ~solves, f"of {int(solves.sum())} solutions {int((solves & ~kept).sum())} are lost")

    mutant = Mutant("puts a constant for a variable that could stay open", too_special)
    claim = "Every assignment that makes the atoms equal is one of the unifier's own."
    return _law("most_general", claim, mutant, check, "two variables made one")


def _once() -> Law:
    def check(unify: Unify, pairs: Pairs, seen: Seen) -> None:
        found = unify(NAMES, *pairs)
        seen("two bindings", (found.variable != PADDING).all(-1).any())
        atoms = torch.stack(pairs, 1)
        first = substitute(found, atoms)
        same("the atoms replaced twice", substitute(found, first), first, EXACT)

    mutant = Mutant("applies the second binding before the first", other_order)
    return _law("once", "What was replaced once stays as it is when replaced again.", mutant, check, "two bindings")


def _alone() -> Law:
    def check(unify: Unify, pairs: Pairs, seen: Seen) -> None:
        found, count = unify(NAMES, *pairs), len(pairs[0])
        seen("several pairs", count > 1)
        for number in range(count):
            alone = unify(NAMES, pairs[0][number], pairs[1][number])
            same(f"pair {number} among {count}", take(found, number), alone, EXACT)

    mutant = Mutant("finds a unifier only if all pairs of the batch have one", all_or_none)
    return _law("alone", "A pair in a batch has the unifier that it has alone.", mutant, check, "several pairs")
