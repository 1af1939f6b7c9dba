"""Laws of sum trees: priorities by index, their sum, and the index at a mass below it.

The subject is `make(capacity)`, which returns an object with `update(index, priority)`, `retrieve(mass)`, and `total` (a number
or a method). Such trees draw indices in proportion to priorities: `retrieve(u * total)`, u uniform in [0, 1).

    test_mine = check(sum_tree_laws(), lambda capacity: MyTree(capacity))

>>> from purestep.properties import sum_tree_laws, verify
>>> bool(verify(sum_tree_laws(), CumulatedPriorities))
True
"""

import itertools
from collections.abc import Callable
from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ..framework.compare import require
from ..framework.law import Law, Seen, Suite, law_constructor

MakeTree = Callable[[int], Any]


class CumulatedPriorities:
    """The contract of a sum tree, by a sum over all priorities."""

    def __init__(self, capacity: int) -> None:
        self.priorities = [0.0] * capacity

    def update(self, index: int, priority: float) -> None:
        self.priorities[index] = priority

    @property
    def total(self) -> float:
        return sum(self.priorities)

    def retrieve(self, mass: float) -> int:
        sums = itertools.accumulate(self.priorities)
        return next(i for i, total in enumerate(sums) if total > mass)


# --- mutants ---
# Common mistakes in sum trees: each wraps a correct factory.


class _EditedTree:
    def __init__(self, inner: Any, capacity: int) -> None:
        self.inner, self.capacity = inner, capacity

    def update(self, index: int, priority: float) -> None:
        self.inner.update(index, priority)

    @property
    def total(self) -> float:
        return _total(self.inner)

    def retrieve(self, mass: float) -> int:
        return int(self.inner.retrieve(mass))


class _Adds(_EditedTree):
    """Add each priority to the total, and take the old one of its index off nowhere."""

    def __init__(self, inner: Any, capacity: int) -> None:
        super().__init__(inner, capacity)
        self.added = 0.0

    def update(self, index: int, priority: float) -> None:
        self.added += priority
        self.inner.update(index, priority)

    @property
    def total(self) -> float:
        return self.added


class _LeftAtEdges(_EditedTree):
    """Give a mass that is a sum of priorities to the index before it."""

    def retrieve(self, mass: float) -> int:
        return int(self.inner.retrieve(max(mass - 1e-6, 0.0)))


class _Turned(_EditedTree):
    """Lay the indices out in another order."""

    def update(self, index: int, priority: float) -> None:
        self.inner.update((index + 1) % self.capacity, priority)

    def retrieve(self, mass: float) -> int:
        return (int(self.inner.retrieve(mass)) - 1) % self.capacity


def _around(kind: type[_EditedTree]) -> Callable[[MakeTree], MakeTree]:
    return lambda make: lambda capacity: kind(make(capacity), capacity)


# --- laws ---

SOURCE = "Schaul et al. 2015, arXiv:1511.05952, appendix B.2.1"


@frozen
class Updates:
    """A capacity, and pairs of an index and its priority, a multiple of 1/4, in the order of updates."""

    capacity: int
    updates: tuple[tuple[int, float], ...]

    def priorities(self) -> list[float]:
        """Return the last priority of each index."""
        found = [0.0] * self.capacity
        for index, priority in self.updates:
            found[index] = priority
        return found

    def tree(self, make: MakeTree) -> Any:
        """Return the subject's tree after the updates."""
        made = make(self.capacity)
        for index, priority in self.updates:
            made.update(index, priority)
        return made

    def masses(self) -> list[float]:
        """Return all multiples of 1/8 below the sum: every edge between two indices, and masses between edges."""
        return [step / 8 for step in range(int(8 * sum(self.priorities())))]


@st.composite
def _updates(draw: DrawFn) -> Updates:
    capacity = draw(st.sampled_from((3, 4, 6, 5, 8, 1)))
    pair = st.tuples(st.integers(0, capacity - 1), st.sampled_from((1.0, 0.0, 0.25, 2.0, 1.75)))
    pairs = draw(st.lists(pair, min_size=1, max_size=2 * capacity))
    return Updates(capacity, (*pairs, (capacity - 1, 0.5)))


def sum_tree_laws(*, ordered: bool = True) -> Suite:
    """Return the laws of a sum tree; in one that is `ordered`, indices lie in their order: index i follows i - 1."""
    return Suite("sum_tree_laws", (_sum(), _shares(), *([_first()] if ordered else [])))


_law = law_constructor(_updates, SOURCE)


def _total(tree: Any) -> float:
    total = tree.total
    value: Any = total() if callable(total) else total
    return float(value)


def _sum() -> Law:
    def check(make: MakeTree, drawn: Updates, seen: Seen) -> None:
        seen("an index that is written again", len({index for index, _ in drawn.updates}) < len(drawn.updates))
        got, wanted = _total(drawn.tree(make)), sum(drawn.priorities())
        require(abs(got - wanted) < 1e-5, f"the total is {got}, wanted {wanted}")

    mutant = ("counts the old priority of an index that is written again", _around(_Adds))
    claim = "The total is the sum of the last priorities."
    return _law("total", claim, mutant, check, "an index that is written again")


def _shares() -> Law:
    def check(make: MakeTree, drawn: Updates, seen: Seen) -> None:
        tree, priorities = drawn.tree(make), drawn.priorities()
        seen("a priority of 0", 0.0 in priorities and len(priorities) > 1)
        seen("a capacity that is no power of 2", drawn.capacity not in (1, 4, 8))
        found = [int(tree.retrieve(mass)) for mass in drawn.masses()]
        for index, priority in enumerate(priorities):
            got = found.count(index) / 8
            require(got == priority, f"index {index} of priorities {priorities} gets a mass of {got}")

    mutant = ("gives a mass on an edge to the index before it", _around(_LeftAtEdges))
    claim = "Of all multiples of 1/8 below the total an index gets as many as its priority holds: at 0 none."
    return _law("shares", claim, mutant, check, "a priority of 0", "a capacity that is no power of 2")


def _first() -> Law:
    def check(make: MakeTree, drawn: Updates, seen: Seen) -> None:
        tree, priorities = drawn.tree(make), drawn.priorities()
        seen("several indices with a priority", sum(priority > 0 for priority in priorities) > 1)
        for mass in drawn.masses():
            wanted = next(i for i, total in enumerate(itertools.accumulate(priorities)) if total > mass)
            got = int(tree.retrieve(mass))
            require(got == wanted, f"at the mass {mass} of priorities {priorities}: index {got}, wanted {wanted}")

    mutant = ("lays the indices out in another order", _around(_Turned))
    claim = "The index at a mass is the first at which the sum of priorities up to it exceeds the mass."
    return _law("first_index", claim, mutant, check, "several indices with a priority")
