"""Trees that stand on several processes at once, each of which has its own part of a leaf: told of by numbers, not sent.

One process says what is to be done with which trees. A leaf that is divided among the processes cannot travel, and need not:
every process has its part. So such a leaf has a number, the same everywhere, and in its place a `Name` travels.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import frozen

from ...core.errors import StructureError, message
from ...core.tree import leaves, tree_map

T = TypeVar("T")
Divided = Callable[[Any], bool]  # whether a leaf is one of which each process has a part


@frozen
class Name:
    """Stands for a leaf that all processes have their parts of."""

    number: int


def named(tree: T, held: Mapping[int, Any], divided: Divided) -> T:
    """The tree with names in place of the leaves that are divided; `held` has all such leaves by number.

    A leaf is known by its identity, not by its numbers. Raises: StructureError for a divided leaf that is not held.

    >>> named(("shard", 2), {7: "shard"}, lambda leaf: isinstance(leaf, str))
    (Name(number=7), 2)
    """
    numbers = {id(leaf): number for number, leaf in held.items()}

    def stand_in(leaf: Any) -> Any:
        if not divided(leaf):
            return leaf
        if id(leaf) not in numbers:
            got, remedy = "a leaf that other processes do not know", "pass leaves as they were given, or whole ones"
            raise StructureError(message("named: tree", got=got, wanted="those held", remedy=remedy))
        return Name(numbers[id(leaf)])

    return tree_map(stand_in, tree)


def found(tree: T, held: Mapping[int, Any]) -> T:
    """The tree that `named` gave, with this process's leaves in place of their names. Raises: StructureError.

    >>> found({"a": Name(3), "b": 2}, {3: "here"})
    {'a': 'here', 'b': 2}
    """

    def leaf_of(leaf: Any) -> Any:
        if not isinstance(leaf, Name):
            return leaf
        if leaf.number not in held:
            wanted, remedy = f"one of {sorted(held)[:8]}", "do on every process what is done on the first"
            raise StructureError(message("found: the leaf", got=leaf.number, wanted=wanted, remedy=remedy))
        return held[leaf.number]

    return tree_map(leaf_of, tree)


def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Divided) -> dict[int, Any]:
    """The divided leaves of a tree that are not held yet, by new numbers: from `first` up, in the tree's order, each once.

    Processes that make the same tree of the same leaves give the same numbers.

    >>> enrolled(("x", "kept", "y", "x"), {0: "kept"}, 5, lambda leaf: isinstance(leaf, str))
    {5: 'x', 6: 'y'}
    """
    known = {id(leaf) for leaf in held.values()}
    new: dict[int, Any] = {}
    for leaf in leaves(tree):
        if divided(leaf) and id(leaf) not in known:
            new[first + len(new)] = leaf
            known.add(id(leaf))
    return new
