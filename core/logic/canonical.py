"""Canonical states: variables renamed in the order of appearance, and a hash of the result."""

import torch
from torch import Tensor

from .terms import Vocabulary, is_variable, pack_atoms

# Odd multipliers of a 64-bit mixer, as signed numbers; `state_hash` names the source.
GOLDEN, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
POSITIVE = (1 << 63) - 1


def canonical(names: Vocabulary, atoms: Tensor) -> Tensor:
    """Return the atoms with variables n+1, n+2, ... in order of first appearance: int64 [*, A, 3] -> [*, A, 3].

    Two states are the same up to renaming exactly if their canonical atoms are equal.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a"], variables=9)
    >>> canonical(names, torch.tensor([[1, 9, 1], [1, 5, 9], [0, 0, 0]]))
    tensor([[1, 2, 1],
            [1, 3, 2],
            [0, 0, 0]])
    """
    columns = atoms[..., 1:].flatten(-2).unbind(-1)
    numbers: list[Tensor] = []
    count = torch.zeros_like(columns[0])
    for column in columns:
        number = torch.zeros_like(count)
        for before, known in zip(columns, numbers, strict=False):
            number = torch.where(column == before, known, number)
        fresh = is_variable(names, column) & (number == 0)
        count = count + fresh.to(torch.int64)
        numbers.append(torch.where(fresh, count, number))
    pairs = zip(columns, numbers, strict=True)
    renamed = [torch.where(number > 0, len(names.constants) + number, column) for column, number in pairs]
    return torch.cat([atoms[..., :1], torch.stack(renamed, -1).reshape(atoms[..., 1:].shape)], -1)


def variables_in(names: Vocabulary, atoms: Tensor) -> Tensor:
    """Return the number of variables in canonical atoms: int64 [*, A, 3] -> [*].

    >>> from .terms import vocabulary
    >>> variables_in(vocabulary(["p"], ["a"], variables=9), torch.tensor([[1, 2, 1], [1, 3, 2]]))
    tensor(2)
    """
    return (atoms[..., 1:].amax((-1, -2)) - len(names.constants)).clamp_min(0)


def state_hash(names: Vocabulary, atoms: Tensor) -> Tensor:
    """Return a hash of canonical atoms in their order, at least 1: int64 [*, A, 3] -> [*].

    h_0 = 0,    h_i = mix(h_{i-1} + golden + packed atom i)

    with the mixing function of SplitMix64, in which every output bit depends on all input bits; two different states collide
    with probability 2^-63. Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".

    >>> from .terms import vocabulary
    >>> names, state = vocabulary(["p"], ["a"], variables=9), torch.tensor([[1, 2, 1], [1, 3, 2]])
    >>> state_hash(names, state) == state_hash(names, state.flip(0))
    tensor(False)
    """
    value = torch.zeros_like(atoms[..., 0, 0])
    for packed in pack_atoms(names, atoms).unbind(-1):
        value = _mix(value + packed + GOLDEN)
    return (value & POSITIVE).clamp_min(1)


def extended_hash(value: Tensor, number: Tensor) -> Tensor:
    """Return the hash of a sequence with one more number, at least 1: int64 [*], [*] -> [*]; see `state_hash`.

    >>> one, two = torch.tensor(1), torch.tensor(2)
    >>> extended_hash(extended_hash(one, one), two) == extended_hash(extended_hash(one, two), one)
    tensor(False)
    """
    return (_mix(value + number + GOLDEN) & POSITIVE).clamp_min(1)


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shifted(value, 30)) * FIRST
    value = (value ^ _shifted(value, 27)) * SECOND
    return value ^ _shifted(value, 31)


def _shifted(value: Tensor, places: int) -> Tensor:
    """Return the value shifted to the right, filled with zeros (a logical shift)."""
    return (value >> places) & ((1 << (64 - places)) - 1)
