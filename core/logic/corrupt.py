"""Negatives: atoms with one argument replaced, filtered against the atoms known to be true."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .. import keys
from ..errors import ChoiceError, choose, message
from ..keys import Key
from ..record import record, tensor
from .knowledge import LARGEST
from .terms import PADDING, Vocabulary, pack_atoms

HEAD, TAIL = 0, 1  # the argument to replace


@record
class Domains:
    """The allowed constants of each argument of each predicate."""

    members: Tensor = tensor("* D", "int")  # constants, one domain after the other
    start: Tensor = tensor("* P 2", "int")  # index of the first member of the domain of [predicate, argument]
    count: Tensor = tensor("* P 2", "int")  # number of its members


def domains(names: Vocabulary, members: Mapping[tuple[str, int], Sequence[str]] | None = None) -> Domains:
    """Return domains by predicate and argument (0 the first, 1 the second); all constants where none is given.

    Raises: ChoiceError for an unknown predicate or constant, or a domain without members.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b", "c"], variables=0)
    >>> domains(names, {("p", TAIL): ["c"]})
    Domains(members=tensor([1, 2, 3, 3]), start=tensor([[0, 0],
            [0, 3]]), count=tensor([[3, 3],
            [3, 1]]))
    """
    numbers = {name: number for number, name in enumerate(names.constants, 1)}
    predicates = {name: number for number, name in enumerate(names.predicates, 1)}
    rows = list(numbers.values())
    start = [[0, 0] for _ in range(len(predicates) + 1)]
    count = [[len(rows), len(rows)] for _ in start]
    for (predicate, argument), constants in (members or {}).items():
        own = sorted({choose(f"domain of {predicate}: constant", constant, numbers) for constant in constants})
        if not own:
            remedy = "leave it out to mean all constants"
            raise ChoiceError(message(f"domain of {predicate}", got="empty", wanted="constants", remedy=remedy))
        place = choose("domain: predicate", predicate, predicates)
        start[place][argument], count[place][argument] = len(rows), len(own)
        rows += own
    return Domains(members=torch.tensor(rows, dtype=torch.int64), start=torch.tensor(start), count=torch.tensor(count))


def known_atoms(names: Vocabulary, atoms: Tensor) -> Tensor:
    """Return the sorted packed numbers of atoms known to be true, for `corrupt`: int64 [N, 3] -> [N' + 1].

    >>> from .terms import vocabulary
    >>> known_atoms(vocabulary(["p"], ["a"], variables=0), torch.tensor([[1, 1, 1], [1, 1, 1]]))[:1]
    tensor([7])
    """
    numbers = torch.unique(pack_atoms(names, atoms))
    return torch.cat([numbers, numbers.new_full((1,), LARGEST)])


def is_known(names: Vocabulary, known: Tensor, atoms: Tensor) -> Tensor:
    """Return whether atoms are among `known_atoms`: int64 [*, 3] -> bool [*].

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a"], variables=0)
    >>> is_known(names, known_atoms(names, torch.tensor([[1, 1, 1]])), torch.tensor([[1, 1, 1], [0, 0, 0]]))
    tensor([ True, False])
    """
    wanted = pack_atoms(names, atoms).contiguous()
    return known[torch.searchsorted(known, wanted)] == wanted


def replaced(atom: Tensor, argument: Tensor, constant: Tensor) -> Tensor:
    """Return atoms with one argument replaced: int64 [*, 3], 0 or 1 [*], [*] -> [*, 3].

    >>> replaced(torch.tensor([1, 5, 6]), torch.tensor(TAIL), torch.tensor(9))
    tensor([1, 5, 9])
    """
    place = torch.arange(3, device=atom.device)
    return torch.where(place == argument[..., None] + 1, constant[..., None], atom)


def _members(within: Domains, predicate: Tensor, argument: Tensor) -> tuple[Tensor, Tensor]:
    """Return start and number of members of the domains of arguments: int64 [*] each -> [*], [*]."""
    # With an axis: a 0-d index would be read as a Python number, which a compiled graph cannot do.
    place = predicate[..., None], argument[..., None]
    return within.start[place][..., 0], within.count[place][..., 0]


def corrupt(
    names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int = 16
) -> tuple[Tensor, Tensor]:
    """Return a negative for each atom: int64 [*, 3], argument [*], key [*, 2] -> (int64 [*, 3], found bool [*]).

    `tries` constants are drawn from the argument's domain at once; the first one that gives no known atom is used, so that
    all valid constants are equally likely. If none is valid, the atom is returned unchanged and `found` is false: the caller
    must treat it as a positive.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=0)
    >>> atom = torch.tensor([1, 1, 2])
    >>> corrupt(names, domains(names), known_atoms(names, atom[None]), atom, torch.tensor(TAIL), torch.tensor([1, 0]))
    (tensor([1, 1, 1]), tensor(True))
    """
    start, count = _members(within, atom[..., 0], argument)
    drawn = keys.randint(key, (tries,), 0, count[..., None])
    tried = replaced(atom[..., None, :], argument[..., None], within.members[start[..., None] + drawn])
    allowed = ~is_known(names, known, tried) & (tried != atom[..., None, :]).any(-1)
    taken = allowed.to(torch.int64).argmax(-1)
    chosen = tried.gather(-2, taken[..., None, None].expand(*taken.shape, 1, 3))[..., 0, :]
    found = allowed.any(-1)
    return torch.where(found[..., None], chosen, atom), found


def corruptions(
    names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
) -> Tensor:
    """Return the atom's negatives in random order, each once: int64 [*, 3], key [*, 2] -> [*, `most`, 3], padded at the end.

    All constants of the domain are tested, so that with `most` at least the size of the largest domain none is missing.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b", "c"], variables=0)
    >>> atom = torch.tensor([1, 1, 2])
    >>> corruptions(names, domains(names), known_atoms(names, atom[None]), atom, TAIL, 3, torch.tensor([1, 0]))
    tensor([[1, 1, 3],
            [1, 1, 1],
            [0, 0, 0]])
    """
    start, count = _members(within, atom[..., 0], torch.full_like(atom[..., 0], argument))
    places = torch.arange(within.members.shape[0], device=atom.device)
    constants = within.members[torch.where(places < count[..., None], start[..., None] + places, 0)]
    side = torch.full_like(constants, argument)
    every = replaced(atom[..., None, :], side, constants)
    allowed = (places < count[..., None]) & ~is_known(names, known, every) & (every != atom[..., None, :]).any(-1)
    order = torch.where(allowed, keys.uniform(key, (places.shape[0],)), 2.0)
    chosen = torch.sort(order, stable=True, dim=-1).indices[..., :most]
    negatives = every.gather(-2, chosen[..., None].expand(*chosen.shape, 3))
    kept = torch.where(allowed.gather(-1, chosen)[..., None], negatives, PADDING)
    return torch.nn.functional.pad(kept, (0, 0, 0, most - kept.shape[-2]))
