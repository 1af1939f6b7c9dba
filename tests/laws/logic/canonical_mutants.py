"""Canonical names and hashes of states as people get them wrong."""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core.logic.canonical import POSITIVE
from purestep.core.logic.terms import Vocabulary, is_variable, pack


@frozen
class Renaming:
    """`canonical(names, atoms)` and `state_hash(names, canonical_atoms)`: what is judged together."""

    canonical: Callable[[Vocabulary, Tensor], Tensor]
    state_hash: Callable[[Vocabulary, Tensor], Tensor]


def _ranked(names: Vocabulary, atoms: Tensor, order: int) -> Tensor:
    """Variables numbered by their own numbers, smallest first (order 1) or largest first (order -1)."""
    terms = atoms[..., 1:].flatten(-2)
    place = torch.arange(terms.shape[-1])
    repeated = ((terms[..., :, None] == terms[..., None, :]) & (place[None, :] < place[:, None])).any(-1)
    fresh = is_variable(names, terms) & ~repeated
    before = (fresh[..., None, :] & (order * terms[..., None, :] < order * terms[..., :, None])).sum(-1)
    renamed = torch.where(is_variable(names, terms), len(names.constants) + 1 + before, terms)
    return torch.cat([atoms[..., :1], renamed.reshape(atoms[..., 1:].shape)], -1)


def by_size(subject: Renaming) -> Renaming:
    """Closes the gaps between the variables' numbers and keeps their order."""
    return evolve(subject, canonical=lambda names, atoms: _ranked(names, atoms, 1))


def by_size_downwards(subject: Renaming) -> Renaming:
    """Numbers variables from the largest down."""
    return evolve(subject, canonical=lambda names, atoms: _ranked(names, atoms, -1))


def last_constant_varies(subject: Renaming) -> Renaming:
    """Takes the last constant for a variable."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        return subject.canonical(evolve(names, constants=names.constants[:-1]), atoms)

    return evolve(subject, canonical=canonical)


def counts_on(subject: Renaming) -> Renaming:
    """Goes on counting from one state to the next."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        found = subject.canonical(names, atoms)
        used = (found[..., 1:].amax((-1, -2)) - len(names.constants)).clamp_min(0)
        before = (used.cumsum(-1) - used)[..., None, None] if used.ndim else 0
        terms = torch.where(is_variable(names, found[..., 1:]), found[..., 1:] + before, found[..., 1:])
        return torch.cat([found[..., :1], terms], -1)

    return evolve(subject, canonical=canonical)


def adds_up(subject: Renaming) -> Renaming:
    """Adds up hashes of single atoms, in whatever order they come."""

    def state_hash(names: Vocabulary, atoms: Tensor) -> Tensor:
        value = torch.zeros_like(atoms[..., 0, 0])
        for atom in atoms.unbind(-2):
            value = value + subject.state_hash(names, atom[..., None, :])
        return (value & POSITIVE).clamp_min(1)

    return evolve(subject, state_hash=state_hash)


def all_alike(subject: Renaming) -> Renaming:
    """Forgets which variables are one."""

    def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
        first = len(names.constants) + 1
        return torch.cat([atoms[..., :1], atoms[..., 1:].clamp_max(first)], -1)

    return evolve(subject, canonical=canonical)


def overflows(subject: Renaming) -> Renaming:
    """Reads the atoms as the digits of one number, of which only the lowest bits are kept."""

    def state_hash(names: Vocabulary, atoms: Tensor) -> Tensor:
        value = torch.zeros_like(atoms[..., 0, 0])
        for packed in pack(names, atoms).unbind(-1):
            value = (value << 12) + packed
        return (value & ((1 << 20) - 1)).clamp_min(1)

    return evolve(subject, state_hash=state_hash)


MUTANTS: dict[str, Callable[[Renaming], Renaming]] = {
    "forgets which variables are one": all_alike,
    "keeps the lowest bits of one large number": overflows,
}
