"""A simulated shared memory for any interleaving of accesses: a schedule picks the next actor, and stores may arrive late."""

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any

from attrs import field, frozen, mutable
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import Ring, SharedWords, Steps

CELLS = 3  # of a slot: what stands for its bytes
Cell = tuple[Any, ...]


class NoRoomError(RuntimeError):
    """Raised by a fill that cannot write its bytes."""


@frozen
class Plan:
    """The publications, and a schedule of actors: 0 for the writer, 1 and 2 for readers, 3 for a late store."""

    versions: tuple[int, ...]  # one that does not go up is to be refused
    fails: tuple[bool, ...]  # whether the bytes of the publication cannot be written
    slots: int
    order: tuple[int, ...]


def plans(*, turns: int = 16, rising: bool = True, failing: bool = False) -> SearchStrategy[Plan]:
    """Draw plans of a few publications, with some steps per turn; `rising` versions are 0, 1, 2, ..., others are arbitrary."""
    versions = st.integers(1, 6).map(range).map(tuple) if rising else st.lists(st.integers(0, 4), max_size=6).map(tuple)
    fails = st.lists(st.booleans() if failing else st.just(False), min_size=6, max_size=6).map(tuple)
    turn = st.tuples(st.integers(0, 3), st.integers(1, 9)).map(lambda who_count: who_count[:1] * who_count[1])
    order = st.lists(turn, min_size=turns, max_size=turns).map(lambda parts: tuple(itertools.chain(*parts)))
    return st.builds(Plan, versions=versions, fails=fails, slots=st.integers(2, 3), order=order)


@frozen
class Operation:
    """A publication or a fetch, with the moments at which it began and ended; `given` is its result."""

    who: int
    began: int
    ended: int
    asked: int  # the version published, or the one to be newer than
    given: Any


@mutable
class World:
    """The memory, the clock and the history. `late`: stores arrive in any order, and no fence holds."""

    slots: int
    late: bool = False
    guarded: bool = False
    cells: dict[Cell, int] = field(factory=dict)
    waiting: list[tuple[Cell, int]] = field(factory=list)
    now: int = 0
    writing: int = -1  # the version that is being written
    vain: int = 0
    history: list[Operation] = field(factory=list)
    started: list[tuple[int, int]] = field(factory=list)  # (moment, version) of publications that began

    def load(self, cell: Cell) -> int:
        """Return the value of a cell for a reader."""
        return self.cells.get(cell, 0)

    def store(self, cell: Cell, value: int) -> None:
        """Store a value as the writer."""
        if self.late:
            self.waiting.append((cell, value))
        else:
            self.cells[cell] = value

    def arrive(self, which: int = 0) -> None:
        """Let one late store arrive; those to the same cell arrive in order."""
        if self.waiting:
            cell = self.waiting[which % len(self.waiting)][0]
            first = next(i for i, (other, _) in enumerate(self.waiting) if other == cell)
            self.cells[cell] = self.waiting.pop(first)[1]

    def own(self, cell: Cell) -> int:
        """Return the value of a cell for the writer, with its own stores at once."""
        return next((value for other, value in reversed(self.waiting) if other == cell), self.load(cell))

    def words(self, *, writer: bool) -> SharedWords:
        """The words, for the writer or for a reader."""
        read = self.own if writer else self.load
        return SharedWords(lambda i: read(("word", i)), lambda i, value: self.store(("word", i), value), lambda: None)


def fill(world: World, broken: bool) -> Callable[[int, int, int], Steps[int]]:
    """Return a fill that writes the version to every cell; a broken one stops in the middle."""

    def filling(slot: int, number: int, version: int) -> Steps[int]:
        world.writing = version
        for cell in range(CELLS):
            if broken and cell == CELLS - 1:
                raise NoRoomError
            world.store(("slot", slot, cell), version + 1)
            yield False
        world.writing = -1
        return _sum(number, version, [version + 1] * CELLS) if world.guarded else 0

    return filling


def copy(world: World) -> Callable[[int, int, int], Steps[tuple[Any, int]]]:
    """Return a load that copies the cells one by one; a cell holds the version that wrote it, -1 if none did."""

    def copying(slot: int, number: int, version: int) -> Steps[tuple[Any, int]]:
        found = []
        for cell in range(CELLS):
            found.append(world.load(("slot", slot, cell)))
            yield False
        given = tuple(value - 1 for value in found)
        return given, _sum(number, version, found) if world.guarded else 0

    return copying


def _sum(number: int, version: int, cells: Sequence[int]) -> int:
    return hash((number, version, *cells)) | 1


def _publishing(world: World, ring: Ring, plan: Plan) -> Generator[bool, None, None]:
    for version, fails in zip(plan.versions, plan.fails, strict=False):
        began, given = world.now, "published"
        world.started.append((began, version))
        try:
            yield from ring.publication(world.words(writer=True), plan.slots, version, fill(world, fails))
        except (ChoiceError, NoRoomError) as error:
            given = type(error).__name__
        world.history.append(Operation(0, began, world.now, version, given))
        yield False


def _fetching(world: World, ring: Ring, who: int) -> Generator[bool, None, None]:
    newer_than = -1
    while True:
        began = world.now
        given = yield from ring.fetching(world.words(writer=False), world.slots, newer_than, copy(world))
        world.history.append(Operation(who, began, world.now, newer_than, given))
        newer_than = given[0] if given else newer_than
        yield False


def played(ring: Ring, plan: Plan, *, late: bool = False, guarded: bool = False, crash: bool = False) -> World:
    """Run the plan; then the writer finishes, unless it crashed, and each reader continues alone for a while."""
    world = World(plan.slots, late=late, guarded=guarded)
    actors = [_publishing(world, ring, plan), _fetching(world, ring, 1), _fetching(world, ring, 2)]

    def go(who: int) -> None:
        world.now += 1
        world.vain += bool(next(actors[who], False))

    for turn, who in enumerate(plan.order):
        if who < 3:
            go(who)
        else:
            world.arrive(turn)
    if not crash:
        for _ in range(100):
            go(0)
    while world.waiting:
        world.arrive()
    for who in (1, 2):
        for _ in range(40):
            go(who)
    return world
