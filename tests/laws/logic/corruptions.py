"""Laws of all negatives of an atom, checked by Python sets: f(names, within, known, atom, argument, most, key)."""

from torch import Tensor

from purestep.core import keys
from purestep.core.logic.rules import VOID
from purestep.properties.framework.compare import EXACT, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from . import corrupt
from .corrupt import EVERYONE, NAMES, SOURCE, TRIES, Case, Corruptions, cases
from .resolution import Atom

MOST = len(EVERYONE)


def corruptions_laws() -> Suite:
    """The laws of all negatives of an atom."""
    return Suite("corruptions_laws", (_each_once(), _first_ones(), _any_first(), _alone()))


_law = law_constructor(cases, SOURCE)


def _made(corruptions: Corruptions, case: Case, most: int) -> Tensor:
    """Return negatives [N, most, 3] in the first atom's argument."""
    return corruptions(NAMES, *case.told(), case.arguments[0], most, case.keys())


def _rows(atoms: Tensor) -> list[Atom]:
    return [(p, a, b) for p, a, b in atoms.tolist()]


def _each_once() -> Law:
    def check(corruptions: Corruptions, case: Case, seen: Seen) -> None:
        made = _made(corruptions, case, MOST)
        for number in range(len(case.atoms)):
            wanted = case.allowed(number, case.arguments[0])
            seen("several negatives", len(wanted) > 1)
            seen("none", not wanted)
            rows = _rows(made[number])
            same(f"negatives of {case.atoms[number]}", sorted(rows[: len(wanted)]), sorted(wanted), EXACT)
            same("what comes after them", rows[len(wanted) :], [VOID] * (MOST - len(wanted)), EXACT)

    mutant = Mutant("draws from the negatives again and again", corrupt.with_replacement)
    claim = "Every negative that is allowed comes once, nothing else comes, and padding comes last."
    return _law("each_once", claim, mutant, check, "several negatives", "none")


def _first_ones() -> Law:
    def check(corruptions: Corruptions, case: Case, seen: Seen) -> None:
        every = _made(corruptions, case, MOST + 2)
        seen("several negatives", (every[:, 1] > 0).any())
        for most in range(MOST + 2):
            same(f"the first {most}", _made(corruptions, case, most), every[:, :most], EXACT)

    mutant = Mutant("puts the negatives it keeps in order", corrupt.sorts_what_it_keeps)
    claim = "Fewer places hold the first of what more places hold."
    return _law("first_ones", claim, mutant, check, "several negatives")


def _any_first() -> Law:
    def check(corruptions: Corruptions, case: Case, seen: Seen) -> None:
        within, known, atoms = case.told()
        many = keys.split(keys.key(case.seed), TRIES)
        made = corruptions(NAMES, within, known, atoms[:1].expand(TRIES, 3), case.arguments[0], 1, many)
        wanted = case.allowed(0) or {VOID}
        seen("several negatives", len(wanted) > 1)
        same(f"first negatives of {case.atoms[0]}", set(_rows(made[:, 0])), wanted, EXACT)

    mutant = Mutant("shuffles once and for all", corrupt.one_order)
    claim = "Every negative that is allowed comes first with some key."
    return _law("any_first", claim, mutant, check, "several negatives")


def _alone() -> Law:
    def check(corruptions: Corruptions, case: Case, seen: Seen) -> None:
        within, known, atoms = case.told()
        made, own = _made(corruptions, case, MOST), case.keys()
        seen("several atoms", len(atoms) > 1)
        for number in range(len(atoms)):
            alone = corruptions(NAMES, within, known, atoms[number], case.arguments[0], MOST, own[number])
            same(f"atom {number} among {len(atoms)}", made[number], alone, EXACT)

    mutant = Mutant("shuffles all of a batch with one key", corrupt.one_key_for_all)
    claim = "An atom in a batch has the negatives that it has alone, in the same order."
    return _law("alone", claim, mutant, check, "several atoms")
