"""Laws of states up to renaming of variables, checked by all renamings: `Renaming(canonical, state_hash)`."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core.logic.canonical import POSITIVE
from purestep.core.logic.rules import VOID
from purestep.core.logic.terms import Vocabulary, is_variable, pack_atoms, vocabulary
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from .resolution import Atom

# --- mutants ---
# Common errors in canonical names and hashes of states.


@frozen
class Renaming:
    """The subject of these laws: `canonical(names, atoms)` and `state_hash(names, canonical_atoms)`."""

    canonical: Callable[[Vocabulary, Tensor], Tensor]
    state_hash: Callable[[Vocabulary, Tensor], Tensor]


def _ranked(names: Vocabulary, atoms: Tensor, order: int) -> Tensor:
    """Number variables by their own numbers, smallest first (order 1) or largest first (order -1)."""
    terms = atoms[..., 1:].flatten(-2)
    place = torch.arange(terms.shape[-1])
    repeated = ((terms[..., :, None] == terms[..., None, :]) & (place[None, :] < place[:, None])).any(-1)
    fresh = is_variable(names, terms) & ~repeated
    before = (fresh[..., None, :] & (order * terms[..., None, :] < order * terms[..., :, None])).sum(-1)
    renamed = torch.where(is_variable(names, terms), len(names.constants) + 1 + before, terms)
    return torch.cat([atoms[..., :1], renamed.reshape(atoms[..., 1:].shape)], -1)


def by_size(subject: Renaming) -> Renaming:
    """Close the gaps between the variables' numbers and keep their order."""
    return evolve(subject, canonical=lambda names, atoms: _ranked(names, atoms, 1))


def by_size_downwards(subject: Renaming) -> Renaming:
    """Number variables from the largest down."""
    return evolve(subject, canonical=lambda names, atoms: _ranked(names, atoms, -1))


def last_constant_varies(subject: Renaming) -> Renaming:
    """Treat the last constant as a variable."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        return subject.canonical(evolve(names, constants=names.constants[:-1]), atoms)

    return evolve(subject, canonical=canonical)


def counts_on(subject: Renaming) -> Renaming:
    """Continue the numbering from one state to the next."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        found = subject.canonical(names, atoms)
        used = (found[..., 1:].amax((-1, -2)) - len(names.constants)).clamp_min(0)
        before = (used.cumsum(-1) - used)[..., None, None] if used.ndim else 0
        terms = torch.where(is_variable(names, found[..., 1:]), found[..., 1:] + before, found[..., 1:])
        return torch.cat([found[..., :1], terms], -1)

    return evolve(subject, canonical=canonical)


def adds_up(subject: Renaming) -> Renaming:
    """Add up hashes of single atoms, whatever their order is."""

    def state_hash(names: Vocabulary, atoms: Tensor) -> Tensor:
        value = torch.zeros_like(atoms[..., 0, 0])
        for atom in atoms.unbind(-2):
            value = value + subject.state_hash(names, atom[..., None, :])
        return (value & POSITIVE).clamp_min(1)

    return evolve(subject, state_hash=state_hash)


def all_alike(subject: Renaming) -> Renaming:
    """Replace all variables by the first one."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        first = len(names.constants) + 1
        return torch.cat([atoms[..., :1], atoms[..., 1:].clamp_max(first)], -1)

    return evolve(subject, canonical=canonical)


def overflows(subject: Renaming) -> Renaming:
    """Hash the atoms as digits of one number, and keep only its lowest bits."""

    def state_hash(names: Vocabulary, atoms: Tensor) -> Tensor:
        value = torch.zeros_like(atoms[..., 0, 0])
        for packed in pack_atoms(names, atoms).unbind(-1):
            value = (value << 12) + packed
        return (value & ((1 << 20) - 1)).clamp_min(1)

    return evolve(subject, state_hash=state_hash)


MUTANTS: dict[str, Callable[[Renaming], Renaming]] = {
    "forgets which variables are one": all_alike,
    "keeps the lowest bits of one large number": overflows,
}


# --- laws ---


T = TypeVar("T")
State = list[Atom]
Pairs = tuple[list[State], list[State]]
SOURCE = "the definition of a bijection"
NAMES = vocabulary(["p", "q"], ["a", "b"], variables=8)
OPEN = len(NAMES.constants) + 1
VARIABLES = range(OPEN, NAMES.base)
GOALS = 3
TERMS = (OPEN, OPEN + 1, OPEN + 2, OPEN + 5, 1, 2)


def state_pairs() -> SearchStrategy[Pairs]:
    """Up to 6 pairs of states of up to 3 goals, padded; the second a renaming of the first, or close to it, or any."""
    return st.binary(min_size=300, max_size=300).map(_pairs)


def _pairs(data: bytes) -> Pairs:
    rest = iter(data)

    def pick(options: Sequence[T]) -> T:
        return options[next(rest) % len(options)]

    def state() -> State:
        goals = [(pick((1, 1, 2)), pick(TERMS), pick(TERMS)) for _ in range(pick((1, 2, GOALS)))]
        return [*goals, *[VOID] * (GOALS - len(goals))]

    def renaming(one: State) -> State:
        left = list(VARIABLES)
        others = {term: left.pop(next(rest) % len(left)) for term in VARIABLES}
        return _under(others, one)

    def changed(one: State) -> State:
        place = pick([number for number, atom in enumerate(one) if atom != VOID])
        return [(p, pick(TERMS), b) if number == place else (p, a, b) for number, (p, a, b) in enumerate(one)]

    def turned(one: State) -> State:
        goals = [atom for atom in one if atom != VOID]
        return [*reversed(goals), *[VOID] * (GOALS - len(goals))]

    def other(one: State) -> State:
        return state()

    first = [state() for _ in range(pick((1, 3, 6, 6)))]
    second = [pick((renaming, renaming, changed, turned, other))(one) for one in first]
    return first, second


def _under(others: dict[int, int], state: State) -> State:
    return [(p, others.get(a, a), others.get(b, b)) for p, a, b in state]


def alike(one: State, other: State) -> bool:
    """Return whether some injective renaming of variables turns the first state into the second."""
    mine, theirs = (sorted({term for atom in state for term in atom[1:] if term >= OPEN}) for state in (one, other))
    orders = itertools.permutations(theirs) if len(mine) == len(theirs) else ()
    return any(_under(dict(zip(mine, order, strict=True)), one) == other for order in orders)


def canonical_laws() -> Suite:
    """The laws of canonical states and of their hashes."""
    return Suite("canonical_laws", (_same(), _only_renames(), _once(), _hash(), _alone()))


_law = law_constructor(state_pairs, SOURCE)


def _named(subject: Renaming, states: list[State]) -> Tensor:
    return subject.canonical(NAMES, torch.tensor(states))


def _same() -> Law:
    def check(subject: Renaming, pairs: Pairs, seen: Seen) -> None:
        left, right = (_named(subject, states) for states in pairs)
        for number, (one, other) in enumerate(zip(*pairs, strict=True)):
            wanted = alike(one, other)
            seen("a state under other names", wanted and one != other)
            seen("a state with other goals", not wanted)
            same(f"whether pair {number} is one state", torch.equal(left[number], right[number]), wanted, EXACT)

    mutant = Mutant("closes gaps between the variables' numbers and keeps their order", by_size)
    claim = "Canonical states are equal exactly where a renaming of variables makes one state the other."
    return _law("same_state", claim, mutant, check, "a state under other names", "a state with other goals")


def _only_renames() -> Law:
    def check(subject: Renaming, pairs: Pairs, seen: Seen) -> None:
        found = _named(subject, pairs[0])
        seen("a constant", any(0 < term < OPEN for state in pairs[0] for atom in state for term in atom[1:]))
        seen("padding", any(VOID in state for state in pairs[0]))
        for number, (state, after) in enumerate(zip(pairs[0], found.tolist(), strict=True)):
            after = [(p, a, b) for p, a, b in after]
            require(alike(state, after), f"state {number}: {state} became {after}, which is no renaming of it")
            used = {term for atom in after for term in atom[1:] if term >= OPEN}
            same(f"the variables of state {number}", sorted(used), list(range(OPEN, OPEN + len(used))), EXACT)

    mutant = Mutant("takes the last constant for a variable", last_constant_varies)
    claim = "A state differs from its canonical one in the names of variables only, and these are the first there are."
    return _law("only_renames", claim, mutant, check, "a constant", "padding")


def _once() -> Law:
    def check(subject: Renaming, pairs: Pairs, seen: Seen) -> None:
        found = _named(subject, pairs[0])
        seen("several variables", (found[..., 1:] > OPEN).any())
        same("a canonical state's own", subject.canonical(NAMES, found), found, EXACT)

    mutant = Mutant("numbers variables from the largest down", by_size_downwards)
    return _law("once", "A canonical state is its own.", mutant, check, "several variables")


def _hash() -> Law:
    def check(subject: Renaming, pairs: Pairs, seen: Seen) -> None:
        states = torch.cat([_named(subject, states) for states in pairs])
        hashes = subject.state_hash(NAMES, states)
        equal = (states[:, None] == states[None]).all(-1).all(-1)
        seen("equal states", equal.sum() > len(states))
        turned = [one != other and sorted(one) == sorted(other) for one, other in zip(*pairs, strict=True)]
        seen("the same goals in another order", any(turned))
        same("which states share a hash", hashes[:, None] == hashes[None], equal, EXACT)
        require(hashes >= 1, "a hash is at least 1")

    mutant = Mutant("adds up hashes of single atoms", adds_up)
    claim = "Canonical states have the same hash exactly where they are equal."
    return _law("hash", claim, mutant, check, "equal states", "the same goals in another order")


def _alone() -> Law:
    def check(subject: Renaming, pairs: Pairs, seen: Seen) -> None:
        states = torch.tensor(pairs[0])
        found = subject.canonical(NAMES, states)
        hashes = subject.state_hash(NAMES, found)
        seen("several states", len(states) > 1)
        for number, state in enumerate(states):
            alone = subject.canonical(NAMES, state)
            same(f"state {number} among {len(states)}", found[number], alone, EXACT)
            same(f"its hash among {len(states)}", hashes[number], subject.state_hash(NAMES, alone), EXACT)

    mutant = Mutant("goes on counting variables from one state to the next", counts_on)
    return _law(
        "alone", "A state in a batch has the names and the hash that it has alone.", mutant, check, "several states"
    )
