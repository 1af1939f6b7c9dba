"""Negatives as people make them wrongly."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.corrupt import Domains, domains, known_atoms
from purestep.core.logic.knowledge import LARGEST
from purestep.core.logic.terms import PADDING, Vocabulary, pack
from purestep.core.record import replace


class Corrupt(Protocol):
    """One negative for each atom."""

    def __call__(
        self, names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        """Negatives [*, 3] and whether there is one [*]."""
        ...


class Corruptions(Protocol):
    """All negatives of each atom."""

    def __call__(
        self, names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        """Negatives [*, most, 3]."""
        ...


def nothing_known(make: Any) -> Any:
    """Forgets to leave out what is known."""

    def mutant(names: Vocabulary, within: Domains, known: Tensor, *rest: Any, **options: Any) -> Any:
        return make(names, within, known_atoms(names, known.new_zeros(0, 3)), *rest, **options)

    return mutant


def any_constant(make: Any) -> Any:
    """Draws from all constants, whatever the domain."""

    def mutant(names: Vocabulary, within: Domains, *rest: Any, **options: Any) -> Any:
        return make(names, domains(names), *rest, **options)

    return mutant


def other_argument(make: Any) -> Any:
    """Replaces the argument that should stay."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Any, *rest: Any, **options: Any
    ) -> Any:
        return make(names, within, known, atom, 1 - argument, *rest, **options)

    return mutant


def without_the_last(make: Any) -> Any:
    """Takes the excluded end of a range for the last constant of a domain."""

    def mutant(names: Vocabulary, within: Domains, *rest: Any, **options: Any) -> Any:
        return make(names, replace(within, count=(within.count - 1).clamp_min(1)), *rest, **options)

    return mutant


def _one_key(key: Key) -> Key:
    return key.reshape(-1, 2)[:1].expand_as(key) if key.ndim > 1 else key


def zeros_on_failure(corrupt: Corrupt) -> Corrupt:
    """Returns padding where nothing is found: a query that fails, and is paid for failing."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        negative, found = corrupt(names, within, known, atom, argument, key, tries=tries)
        return torch.where(found[..., None], negative, PADDING), found

    return mutant


def one_key(corrupt: Corrupt) -> Corrupt:
    """Draws for all of a batch with the first one's key."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        return corrupt(names, within, known, atom, argument, _one_key(key), tries=tries)

    return mutant


def always_found(corrupt: Corrupt) -> Corrupt:
    """Takes the atom that comes back for a negative."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: Tensor, key: Key, *, tries: int
    ) -> tuple[Tensor, Tensor]:
        negative, found = corrupt(names, within, known, atom, argument, key, tries=tries)
        return negative, torch.ones_like(found)

    return mutant


def with_replacement(corruptions: Corruptions) -> Corruptions:
    """Draws from the negatives again and again."""

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
    """Puts the negatives drawn in the order of their constants."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        every = corruptions(names, within, known, atom, argument, most, key)
        order = torch.where(every[..., 0] == PADDING, LARGEST, pack(names, every))
        return every.gather(-2, order.argsort(-1)[..., None].expand_as(every))

    return mutant


def one_order(corruptions: Corruptions) -> Corruptions:
    """Shuffles once and for all."""

    def mutant(
        names: Vocabulary, within: Domains, known: Tensor, atom: Tensor, argument: int, most: int, key: Key
    ) -> Tensor:
        return corruptions(names, within, known, atom, argument, most, torch.zeros_like(key))

    return mutant


def one_key_for_all(corruptions: Corruptions) -> Corruptions:
    """Shuffles all of a batch with the first one's key."""

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
