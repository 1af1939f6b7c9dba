"""Terms and atoms as numbers: a vocabulary of names, atoms as int64 triples, and one packed number per atom.

An atom is [predicate, first, second]; 0 is padding. Constants are 1..n and variables n+1..n+V, in one id space; predicates
are 1..P, followed by the three marks of a finished proof, in another.
"""

from collections.abc import Iterable, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ..errors import ChoiceError, choose, message

PADDING = 0
Names = tuple[str, str, str]  # predicate, first and second argument


@frozen
class Vocabulary:
    """The names of the numbers, and the maximum number of variables in a state."""

    predicates: tuple[str, ...]  # ids 1..P
    constants: tuple[str, ...]  # ids 1..n
    variables: int  # ids n+1..n+V

    @property
    def true(self) -> int:
        """The mark of a proof found."""
        return len(self.predicates) + 1

    @property
    def false(self) -> int:
        """The mark of a dead end."""
        return len(self.predicates) + 2

    @property
    def end(self) -> int:
        """The mark of an abandoned proof."""
        return len(self.predicates) + 3

    @property
    def base(self) -> int:
        """One more than the largest term: the base in which atoms are packed."""
        return len(self.constants) + self.variables + 1


def vocabulary(predicates: Iterable[str], constants: Iterable[str], *, variables: int = 100) -> Vocabulary:
    """Return the vocabulary of these names, sorted and without duplicates. Raises: ChoiceError.

    >>> vocabulary(["likes"], ["b", "a", "b"], variables=2)
    Vocabulary(predicates=('likes',), constants=('a', 'b'), variables=2)
    """
    if variables < 0:
        raise ChoiceError(
            message("vocabulary: variables", got=variables, wanted="0 or more", remedy="pass how many a state may use")
        )
    made = Vocabulary(tuple(sorted(set(predicates))), tuple(sorted(set(constants))), variables)
    largest = (made.end + 1) * made.base**2
    if largest >= 1 << 63:
        wanted = "(predicates + 4) (constants + variables + 1)^2 < 2^63"
        raise ChoiceError(
            message(
                "vocabulary: size", got=largest, wanted=wanted, remedy="use fewer names, or split the knowledge base"
            )
        )
    return made


def is_variable(names: Vocabulary, term: Tensor) -> Tensor:
    """Return whether a term is a variable: int [*] -> bool [*].

    >>> is_variable(vocabulary(["p"], ["a"], variables=1), torch.tensor([0, 1, 2]))
    tensor([False, False,  True])
    """
    return term > len(names.constants)


def pack_atoms(names: Vocabulary, atoms: Tensor) -> Tensor:
    """Return a unique number for each atom, (p base + a) base + b: [*, 3] -> int64 [*].

    Numbers have the order of the triples.

    >>> pack_atoms(vocabulary(["p"], ["a"], variables=1), torch.tensor([[0, 0, 0], [1, 1, 2]]))
    tensor([ 0, 14])
    """
    predicate, first, second = atoms.unbind(-1)
    return (predicate * names.base + first) * names.base + second


def atom_numbers(names: Vocabulary, atoms: Sequence[Names]) -> Tensor:
    """Return ground atoms as numbers: n triples of names -> int64 [n, 3]. Raises: ChoiceError for an unknown name.

    >>> atom_numbers(vocabulary(["p"], ["a", "b"]), [("p", "b", "a")])
    tensor([[1, 2, 1]])
    """
    predicates = {name: number for number, name in enumerate(names.predicates, 1)}
    constants = {name: number for number, name in enumerate(names.constants, 1)}
    rows = [
        (choose("predicate", p, predicates), choose("constant", a, constants), choose("constant", b, constants))
        for p, a, b in atoms
    ]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


def atom_text(names: Vocabulary, atom: Sequence[int]) -> str:
    """Return an atom as text; variables are X1, X2, ... and padding is empty.

    >>> atom_text(vocabulary(["p"], ["a"], variables=3), [1, 1, 3])
    'p(a, X2)'
    """
    predicate, *terms = atom
    if predicate == PADDING:
        return ""
    marks = {names.true: "true", names.false: "false", names.end: "end"}
    if predicate in marks:
        return marks[predicate]
    constants = len(names.constants)
    words = [names.constants[term - 1] if term <= constants else f"X{term - constants}" for term in terms]
    return f"{names.predicates[predicate - 1]}({', '.join(words)})"
