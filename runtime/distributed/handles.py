"""Handles for sharded pytrees: a leaf sharded over processes is referred to by a number instead of being sent.

One process decides the operations on trees. A leaf that is sharded over the processes cannot be sent, and need not be: every
process has its part. So such a leaf has a number, the same in every process, and a `Name` is sent in its place.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import frozen

from ...core.errors import StructureError, message
from ...core.tree import leaves, tree_map

T = TypeVar("T")
Divided = Callable[[Any], bool]  # whether a leaf is sharded over the processes


@frozen
class Name:
    """The handle of a sharded leaf."""

    number: int


def with_handles(tree: T, held: Mapping[int, Any], divided: Divided) -> T:
    """Return the tree with handles in place of its sharded leaves; `held` has all such leaves by number.

    A leaf is identified by `id`, not by its values. Raises: StructureError for a sharded leaf that is not held.

    >>> with_handles(("shard", 2), {7: "shard"}, lambda leaf: isinstance(leaf, str))
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


def without_handles(tree: T, held: Mapping[int, Any]) -> T:
    """Return a tree from `with_handles` with this process's leaves in place of their handles. Raises: StructureError.

    >>> without_handles({"a": Name(3), "b": 2}, {3: "here"})
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
    """Return the sharded leaves of a tree that are not held yet, with new numbers from `first` up, in the tree's order.

    Each leaf gets one number. Processes that build the same tree of the same leaves assign the same numbers.

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
