"""Laws of negatives, checked by Python sets: of one for each atom, f = corrupt, and of all of them, f = corruptions."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.corrupt import Domains, domains, known_atoms
from purestep.core.logic.knowledge import LARGEST
from purestep.core.logic.terms import PADDING, Vocabulary, pack_atoms, vocabulary
from purestep.core.record import replace
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from .resolution import Atom

# --- mutants ---
# Common errors in negatives.


class Corrupt(Protocol):
    """The type of functions that return one negative for each atom."""

    def __call__(
        self, names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        """Return negatives [*, 3] and whether there is one [*]."""
        ...


class Corruptions(Protocol):
    """The type of functions that return all negatives of each atom."""

    def __call__(
        self, names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        """Return negatives [*, most, 3]."""
        ...


def nothing_known(make: Any) -> Any:
    """Leave known atoms among the negatives."""

    def mutant(names: Vocabulary, within: Domains, known: Tensor, *rest: Any, **options: Any) -> Any:
        return make(names, within, known_atoms(names, known.new_zeros(0, 3)), *rest, **options)

    return mutant


def any_constant(make: Any) -> Any:
    """Draw from all constants, whatever the domain is."""

    def mutant(names: Vocabulary, within: Domains, *rest: Any, **options: Any) -> Any:
        return make(names, domains(names), *rest, **options)

    return mutant


def other_argument(make: Any) -> Any:
    """Replace the other argument."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Any, *rest: Any, **options: Any
    ) -> Any:
        return make(names, within, known, atom, 1 - argument, *rest, **options)

    return mutant


def without_the_last(make: Any) -> Any:
    """Leave out the last constant of a domain."""

    def mutant(names: Vocabulary, within: Domains, *rest: Any, **options: Any) -> Any:
        return make(names, replace(within, count=(within.count - 1).clamp_min(1)), *rest, **options)

    return mutant


def _one_key(key: Key) -> Key:
    return key.reshape(-1, 2)[:1].expand_as(key) if key.ndim > 1 else key


def zeros_on_failure(corrupt: Corrupt) -> Corrupt:
    """Return padding if no negative is found: a query that fails, with a reward for failing."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        negative, found = corrupt(names, within, known, atom, argument, key, tries=tries)
        return torch.where(found[..., None], negative, PADDING), found

    return mutant


def one_key(corrupt: Corrupt) -> Corrupt:
    """Use the key of the first atom for the whole batch."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        return corrupt(names, within, known, atom, argument, _one_key(key), tries=tries)

    return mutant


def always_found(corrupt: Corrupt) -> Corrupt:
    """Report every returned atom as a negative."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        negative, found = corrupt(names, within, known, atom, argument, key, tries=tries)
        return negative, torch.ones_like(found)

    return mutant


def with_replacement(corruptions: Corruptions) -> Corruptions:
    """Draw from the negatives with replacement."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        every = corruptions(names, within, known, atom, argument, most, key)
        count = (every[..., 0] != PADDING).sum(-1, keepdim=True)
        drawn = keys.randint(keys.fold_in(key, 1), (most,), 0, count.clamp_min(1))
        again = every.gather(-2, drawn[..., None].expand_as(every))
        return torch.where(torch.arange(most)[:, None] < count[..., None], again, PADDING)

    return mutant


def sorts_what_it_keeps(corruptions: Corruptions) -> Corruptions:
    """Sort the negatives drawn by their constants."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        every = corruptions(names, within, known, atom, argument, most, key)
        order = torch.where(every[..., 0] == PADDING, LARGEST, pack_atoms(names, every))
        return every.gather(-2, order.argsort(-1)[..., None].expand_as(every))

    return mutant


def one_order(corruptions: Corruptions) -> Corruptions:
    """Use the same shuffle for every key."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        return corruptions(names, within, known, atom, argument, most, torch.zeros_like(key))

    return mutant


def one_key_for_all(corruptions: Corruptions) -> Corruptions:
    """Shuffle the whole batch with the key of the first atom."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        return corruptions(names, within, known, atom, argument, most, _one_key(key))

    return mutant


CORRUPT: dict[str, Callable[[Any], Any]] = {"takes the atom that comes back for a negative": always_found}
CORRUPTIONS: dict[str, Callable[[Any], Any]] = {
    "forgets what is known": nothing_known,
    "replaces the other argument": other_argument,
    "draws from all constants": any_constant,
    "leaves out the last constant of a domain": without_the_last,
}


# --- laws ---


T = TypeVar("T")
SOURCE = "the definition of a set"
NAMES = vocabulary(["p", "q"], ["a", "b", "c", "d", "e", "f"], variables=0)
EVERYONE = range(1, len(NAMES.constants) + 1)
TRIES = 256  # with 6 constants, one that is allowed is missed with probability (5/6)^256 < 10^-20


@frozen
class Case:
    """Atoms to corrupt, the domains of arguments, and the known atoms."""

    domains: dict[tuple[str, int], tuple[str, ...]]
    known: tuple[Atom, ...]
    atoms: tuple[Atom, ...]
    arguments: tuple[int, ...]  # which argument of each atom is replaced
    seed: int

    def allowed(self, number: int, argument: int | None = None) -> set[Atom]:
        """The negatives of an atom."""
        atom = self.atoms[number]
        place = self.arguments[number] if argument is None else argument
        every = {replaced(atom, place, constant) for constant in self.members(atom[0], place)}
        return every - {*self.known, atom}

    def members(self, predicate: int, argument: int) -> list[int]:
        """The domain of an argument."""
        given = self.domains.get((NAMES.predicates[predicate - 1], argument), NAMES.constants)
        return [NAMES.constants.index(constant) + 1 for constant in given]

    def told(self) -> tuple[Domains, Tensor, Tensor]:
        """Return domains, known atoms, atoms [N, 3]."""
        known = torch.tensor(self.known, dtype=torch.int64).reshape(-1, 3)
        return domains(NAMES, self.domains), known_atoms(NAMES, known), torch.tensor(self.atoms)

    def keys(self) -> Key:
        """A key for each atom."""
        return keys.split(keys.key(self.seed), len(self.atoms))


def replaced(atom: Atom, argument: int, constant: int) -> Atom:
    """The atom with another constant."""
    return (atom[0], constant, atom[2]) if argument == 0 else (atom[0], atom[1], constant)


def cases() -> SearchStrategy[Case]:
    """Up to 4 atoms over 6 constants, domains of any size, and neighbours of the atoms of which none, some or all are known."""
    return st.binary(min_size=96, max_size=96).map(_case)


def _case(data: bytes) -> Case:
    rest = iter(data)

    def pick(options: Sequence[T]) -> T:
        return options[next(rest) % len(options)]

    within = dict[tuple[str, int], tuple[str, ...]]()
    for place in (("p", 0), ("p", 1), ("q", 0), ("q", 1)):
        some = pick((0, next(rest), next(rest) & next(rest)))
        members = tuple(name for number, name in enumerate(NAMES.constants) if some >> number & 1)
        if members:
            within[place] = members
    atoms = tuple((pick((1, 2)), pick(EVERYONE), pick(EVERYONE)) for _ in range(pick((1, 2, 4, 4))))
    arguments = tuple(pick((0, 1)) for _ in atoms)
    known = set(atoms)
    for atom, argument in zip(atoms, arguments, strict=True):
        some = pick((0, next(rest), next(rest), 255))
        known |= {replaced(atom, argument, constant) for constant in EVERYONE if some >> constant & 1}
    return Case(within, tuple(sorted(known)), atoms, arguments, next(rest))


def corrupt_laws() -> Suite:
    """The laws of one negative for each atom."""
    return Suite("corrupt_laws", (_one_argument(), _in_domain(), _unknown(), _found(), _reaches(), _alone()))


_law = law_constructor(cases, SOURCE)


def _negatives(corrupt: Corrupt, case: Case) -> list[Atom | None]:
    """A negative of each atom, None where there is none."""
    within, known, atoms = case.told()
    made, found = corrupt(NAMES, within, known, atoms, torch.tensor(case.arguments), case.keys(), tries=TRIES)
    return [(p, a, b) if one else None for (p, a, b), one in zip(made.tolist(), found.tolist(), strict=True)]


def _one_argument() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        for atom, argument, negative in zip(case.atoms, case.arguments, _negatives(corrupt, case), strict=True):
            seen(f"argument {argument}", negative)
            different = [atom[place] != negative[place] for place in range(3)] if negative else []
            wanted = [place == argument + 1 for place in range(3)] if negative else []
            same(f"which part of {atom} differs in {negative}", different, wanted, EXACT)

    mutant = Mutant("replaces the other argument", other_argument)
    claim = "A negative differs from its atom in the argument asked for, and there alone."
    return _law("one_argument", claim, mutant, check, "argument 0", "argument 1")


def _in_domain() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        for atom, argument, negative in zip(case.atoms, case.arguments, _negatives(corrupt, case), strict=True):
            members = case.members(atom[0], argument)
            seen("a domain that leaves some out", negative and len(members) < len(EVERYONE))
            require(negative is None or negative[argument + 1] in members, f"{negative} has an argument of {members}")

    mutant = Mutant("draws from all constants", any_constant)
    claim = "What is put in belongs to the domain of that argument."
    return _law("in_domain", claim, mutant, check, "a domain that leaves some out")


def _unknown() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        for number, negative in enumerate(_negatives(corrupt, case)):
            atom, argument = case.atoms[number], case.arguments[number]
            near = {replaced(atom, argument, constant) for constant in case.members(atom[0], argument)} - {atom}
            seen("a known atom that could be drawn", negative and near & set(case.known))
            require(negative not in {*case.known, atom}, f"{negative}, made of {atom}, is no known atom")

    mutant = Mutant("forgets what is known", nothing_known)
    claim = "A negative is no known atom, and not the atom itself."
    return _law("unknown", claim, mutant, check, "a known atom that could be drawn")


def _found() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        within, known, atoms = case.told()
        made, found = corrupt(NAMES, within, known, atoms, torch.tensor(case.arguments), case.keys(), tries=TRIES)
        wanted = torch.tensor([bool(case.allowed(number)) for number in range(len(atoms))])
        seen("nothing allowed", (~wanted).any())
        seen("something allowed", wanted.any())
        same("where a negative is found", found, wanted, EXACT)
        same("what comes back where none is", made[~found], atoms[~found], EXACT)
        made, found = corrupt(NAMES, within, known, atoms, torch.tensor(case.arguments), case.keys(), tries=1)
        seen("one try that fails", (wanted & ~found).any())
        same("what comes back where one try fails", made[~found], atoms[~found], EXACT)

    mutant = Mutant("returns padding where nothing is found", zeros_on_failure)
    claim = "With many tries a negative is found exactly where one is allowed; where none is found the atom comes back."
    needs = ("nothing allowed", "something allowed", "one try that fails")
    return _law("found", claim, mutant, check, *needs)


def _reaches() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        within, known, atoms = case.told()
        atom, argument = atoms[:1].expand(TRIES, 3), torch.tensor(case.arguments[:1]).expand(TRIES)
        many = keys.split(keys.key(case.seed), TRIES)
        made, found = corrupt(NAMES, within, known, atom, argument, many, tries=TRIES)
        wanted = case.allowed(0)
        seen("several allowed", len(wanted) > 1)
        same(f"negatives of {case.atoms[0]}", {(p, a, b) for p, a, b in made[found].tolist()}, wanted, EXACT)

    mutant = Mutant("leaves out the last constant of a domain", without_the_last)
    return _law("reaches", "Every negative that is allowed is drawn with some key.", mutant, check, "several allowed")


def _alone() -> Law:
    def check(corrupt: Corrupt, case: Case, seen: Seen) -> None:
        within, known, atoms = case.told()
        arguments, own = torch.tensor(case.arguments), case.keys()
        made, found = corrupt(NAMES, within, known, atoms, arguments, own, tries=4)
        seen("several atoms", len(atoms) > 1)
        for number in range(len(atoms)):
            alone = corrupt(NAMES, within, known, atoms[number], arguments[number], own[number], tries=4)
            same(f"atom {number} among {len(atoms)}", (made[number], found[number]), alone, EXACT)

    mutant = Mutant("draws for all of a batch with one key", one_key)
    claim = "An atom in a batch has the negative that it has alone."
    return _law("alone", claim, mutant, check, "several atoms")
