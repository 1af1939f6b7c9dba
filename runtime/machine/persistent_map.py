"""Persistent maps from numbers, and queues: a change makes a new value that shares all but a few short tuples with the old.

A map is a tree of tuples of 32, indexed by the digits of the key, so that looking up, putting and removing cost one short
copy for each digit of the largest key. Both have a JSON form, being tuples within attrs values.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from attrs import frozen

V = TypeVar("V")

BITS = 5
MASK = (1 << BITS) - 1
DEEPEST = 12  # levels, which 64 bits do not exceed
Node = tuple[Any, ...]
NOTHING: Node = ()  # marks a missing value; never a value itself
BLANK: Node = (NOTHING,) * (MASK + 1)


@frozen
class Numbered(Generic[V]):
    """A map from numbers 0, 1, ... to values other than `()`."""

    TAG: ClassVar[str] = "numbered"
    depth: int = 0  # levels of tuples above the lowest one
    root: Node = NOTHING


EMPTY: Numbered[Any] = Numbered()


@frozen
class Fifo(Generic[V]):
    """A first-in, first-out queue."""

    TAG: ClassVar[str] = "line"
    first: int = 0  # the number of the next item to leave
    next: int = 0  # the number of the next item to come
    items: Numbered[V] = EMPTY

    def __len__(self) -> int:
        return self.next - self.first


NO_ONE: Fifo[Any] = Fifo()


def is_sound(numbered: Numbered[Any]) -> bool:
    """Return whether a map has the structure that `put_value` makes, which a decoded one may not have.

    >>> is_sound(put_value(Numbered(), 70, "b")), is_sound(Numbered(depth=1, root=(1, 2)))
    (True, False)
    """
    layer = [numbered.root] if numbered.root else []
    if not 0 <= numbered.depth <= DEEPEST:
        return False
    for _ in range(numbered.depth + 1):
        if not all(type(node) is tuple and len(node) == MASK + 1 for node in layer):
            return False
        layer = [child for node in layer for child in node if child != NOTHING]
    return True


def value_at(numbered: Numbered[V], key: int) -> V | tuple[()]:
    """Return the value of a key, `()` if it has none.

    >>> far, near = put_value(Numbered(), 1000, "a"), put_value(Numbered(), 0, "a")
    >>> value_at(far, 1000), value_at(Numbered(), 3), value_at(near, 1 << 40)
    ('a', (), ())
    """
    node, shift = numbered.root, BITS * numbered.depth
    if key < 0 or key >> (shift + BITS):
        return ()
    while node and shift >= 0:
        node = node[(key >> shift) & MASK]
        shift -= BITS
    return node


def put_value(numbered: Numbered[V], key: int, value: V) -> Numbered[V]:
    """Return the map in which `key`, 0 or more, has this value.

    >>> list(entries(put_value(put_value(Numbered(), 70, "b"), 2, "a")))
    [(2, 'a'), (70, 'b')]
    """
    depth, root = numbered.depth, numbered.root
    while key >> (BITS * (depth + 1)):
        depth, root = depth + 1, (root, *BLANK[1:]) if root else NOTHING
    return Numbered(depth, _put(root, BITS * depth, key, value))


def _put(node: Node, shift: int, key: int, value: Any) -> Node:
    places, place = list(node or BLANK), (key >> shift) & MASK
    places[place] = _put(places[place], shift - BITS, key, value) if shift else value
    return tuple(places)


def without_key(numbered: Numbered[V], key: int) -> Numbered[V]:
    """Return the map without a key; the map itself if the key is not there.

    >>> without_key(put_value(Numbered(), 3, "a"), 3), without_key(Numbered(), 3)
    (Numbered(depth=0, root=()), Numbered(depth=0, root=()))
    """
    if value_at(numbered, key) == NOTHING:
        return numbered
    root = _remove(numbered.root, BITS * numbered.depth, key)
    return Numbered(numbered.depth, root) if root else EMPTY


def _remove(node: Node, shift: int, key: int) -> Node:
    place = (key >> shift) & MASK
    below = _remove(node[place], shift - BITS, key) if shift else NOTHING
    left = (*node[:place], below, *node[place + 1 :])
    return NOTHING if below is NOTHING and left == BLANK else left


def entries(numbered: Numbered[V]) -> Iterator[tuple[int, V]]:
    """Yield keys and values, the smallest key first."""
    yield from _entries(numbered.root, BITS * numbered.depth, 0)


def _entries(node: Node, shift: int, above: int) -> Iterator[tuple[int, Any]]:
    for place, below in enumerate(node):
        if below != NOTHING:
            key = (above << BITS) | place
            if shift:
                yield from _entries(below, shift - BITS, key)
            else:
                yield key, below


def push(line: Fifo[V], value: V) -> Fifo[V]:
    """Return the queue with one more item at its end.

    >>> len(push(push(Fifo(), "a"), "b"))
    2
    """
    return Fifo(line.first, line.next + 1, put_value(line.items, line.next, value))


def pop(line: Fifo[V]) -> tuple[V, Fifo[V]]:
    """Return the first item and the queue without it; the queue must not be empty.

    >>> pop(push(push(Fifo(), "a"), "b"))[0]
    'a'
    """
    value: Any = value_at(line.items, line.first)
    first = line.first + 1
    return value, Fifo(first, line.next, without_key(line.items, line.first)) if first < line.next else NO_ONE


def queue_items(line: Fifo[V]) -> Iterator[V]:
    """Return all items of the queue, the first one first.

    >>> list(queue_items(push(push(Fifo(), "a"), "b")))
    ['a', 'b']
    """
    return (value for _, value in entries(line.items))
