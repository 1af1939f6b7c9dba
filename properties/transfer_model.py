"""A publisher, a reader, and a link that loses, doubles, damages and reorders: the schedule says what is next."""

import itertools
from collections.abc import Callable
from typing import Any

from attrs import evolve, field, frozen, mutable
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..core.errors import ChoiceError
from ..runtime.effects.transfer import words as word
from ..runtime.effects.transfer.rules import Pull, pull
from ..runtime.effects.transfer.words import NONE, Ask, Inquire, Into, Publication

CHUNKS, WINDOW, KEEP = 4, 3, 2
DAMAGED = "damaged"
Cell = (
    Any  # what stands for the bytes of a chunk: (version, content, chunk), DAMAGED, or None where nothing was written
)
Acts = tuple[tuple[str, int], ...]
QUIET = ("publish", "serve", "serve", "hear", "hear", "fetch", "fetch")
ROUGH = (*QUIET, *QUIET, "late", "late", "drop", "double", "double", "damage", "damage", "cut", "restart", "leave")


@frozen
class Pulling:
    """The rules of a pull: the reader's step, and what a publisher keeps and answers."""

    step: Callable[[Pull, word.Event], tuple[Pull, tuple[word.Action, ...]]]
    shelved: Callable[[tuple[Publication, ...], Publication, int], tuple[Publication, ...]]
    answered: Callable[[tuple[Publication, ...], Inquire], word.Offered | word.Nothing]


@frozen
class Chunk:
    """A chunk on its way."""

    digest: str
    chunk: int
    cell: Cell


@frozen
class Given:
    """What a fetch gave, and when it began and ended; `cells` is what was in the reader's memory then."""

    began: int
    ended: int
    newer_than: int
    publication: Publication
    cells: tuple[Cell, ...]


@frozen
class Moment:
    """An event, the states around it, and the actions."""

    before: Pull
    event: word.Event
    after: Pull
    actions: tuple[word.Action, ...]


def schedules(verbs: tuple[str, ...] = ROUGH, *, least: int = 80, most: int = 120) -> SearchStrategy[Acts]:
    """What happens, one after the other; the number of an act says which message, or what is published again."""

    def acts(drawn: bytes) -> Acts:
        return tuple(
            (verbs[what % len(verbs)], number % 8) for what, number in zip(drawn[::2], drawn[1::2], strict=True)
        )

    return st.integers(least, most).flatmap(lambda count: st.binary(min_size=2 * count, max_size=2 * count)).map(acts)


def publication(version: int, content: int) -> Publication:
    """The publication of that content under that version."""
    return Publication(version, f"{version}/{content}", CHUNKS)


def cells_of(of: Publication) -> tuple[Cell, ...]:
    """Its bytes."""
    return tuple((of.digest, chunk) for chunk in range(of.chunks))


@mutable
class World:
    """Both ends, the link, and what has happened."""

    rules: Pulling
    reader: Pull = field(factory=lambda: pull(WINDOW))
    cells: list[Cell] = field(factory=list)
    kept: tuple[Publication, ...] = ()
    wants_link: bool = False
    up: list[Any] = field(factory=list)  # to the publisher
    down: list[Any] = field(factory=list)  # to the reader
    now: int = 0
    began: int = 0
    newer_than: int = -1
    silences: int = 0
    published: list[tuple[int, Publication]] = field(factory=list)
    given: list[Given] = field(factory=list)
    refused: list[int] = field(factory=list)  # newest versions that the reader would not take
    moments: list[Moment] = field(factory=list)

    def tell(self, event: word.Event) -> None:
        """Feeds the reader an event and does what it asks for."""
        before = self.reader
        if isinstance(event, word.Fetch):
            self.began, self.newer_than = self.now, event.newer_than
        self.reader, actions = self.rules.step(before, event)
        self.moments.append(Moment(before, event, self.reader, actions))
        for action in actions:
            self.do(action)

    def do(self, action: word.Action) -> None:
        """One action."""
        if isinstance(action, word.Link):
            self.wants_link, self.up, self.down = True, [], []
        elif isinstance(action, Inquire | Ask):
            self.up.append(action)
        elif isinstance(action, word.Begin):
            self.cells = [None] * action.publication.chunks
        elif isinstance(action, word.Check):
            good = tuple(self.cells) == cells_of(self.reader.goal)
            self.tell(word.Judged(good))
        elif isinstance(action, word.Give):
            self.given.append(Given(self.began, self.now, self.newer_than, action.publication, tuple(self.cells)))
        elif isinstance(action, word.Refuse):
            self.refused.append(action.version)

    def hear(self, which: int = 0) -> None:
        """The reader takes what came; or gets the link it wants."""
        if self.wants_link:
            self.wants_link = False
            self.tell(word.Linked())
        elif self.down:
            found = self.down.pop(which % len(self.down))
            if isinstance(found, Chunk):
                self.take(found)
            else:
                self.tell(found)

    def take(self, found: Chunk) -> None:
        """The head of a chunk, then its bytes, where they are wanted."""
        self.tell(word.Coming(found.digest, found.chunk))
        places = [action for action in self.moments[-1].actions if isinstance(action, Into)]
        for place in places:
            self.cells[place.chunk] = found.cell
            self.tell(word.Came(found.cell == cells_of(self.reader.goal)[place.chunk]))

    def serve(self) -> None:
        """The publisher answers what came first."""
        if not self.up:
            return
        asked = self.up.pop(0)
        if isinstance(asked, Inquire):
            self.down.append(self.rules.answered(self.kept, asked))
            return
        found = next((each for each in self.kept if each.digest == asked.digest), None)
        if found is None:
            self.down.append(word.Gone(asked.digest))
        else:
            self.down += [Chunk(found.digest, chunk, cells_of(found)[chunk]) for chunk in asked.chunks]

    def publish(self, new: Publication) -> None:
        """The publisher has something new, if its rules allow it."""
        try:
            self.kept = self.rules.shelved(self.kept, new, KEEP)
        except ChoiceError:
            return
        self.published.append((self.now, new))

    def cut(self) -> None:
        """The link breaks."""
        self.up, self.down = [], []
        self.tell(word.Cut())


def act(world: World, verb: str, number: int) -> None:
    """One act of a schedule."""
    world.now += 1
    newest = world.kept[-1] if world.kept else NONE
    if verb == "publish":
        world.publish(publication(newest.version + (number < 7), number))
    elif verb == "serve":
        world.serve()
    elif verb in ("hear", "late"):
        for _ in range(1 + number % 4):
            world.hear(number if verb == "late" else 0)
    elif verb == "fetch" and not world.reader.wants:
        world.tell(word.Fetch(world.reader.last if number % 2 else -1))
    elif verb == "leave" and world.reader.wants:
        world.tell(word.Leave())
    elif verb == "cut":
        world.cut()
    elif verb in ("restart", "go back") and newest != NONE:
        world.kept = ()  # another publisher in its place, with the same or with other bytes, or one that lost much
        again = newest if number % 3 else publication(newest.version, 1 + number)
        world.publish(again if verb == "restart" else publication(newest.version // 2, number))
        world.cut()
    elif verb in ("drop", "double", "damage") and world.down:
        _spoil(world, verb, number % len(world.down))


def _spoil(world: World, verb: str, place: int) -> None:
    found = world.down[place]
    if verb == "drop":
        del world.down[place]
    elif verb == "double":
        world.down.append(found)
    else:
        world.down = [evolve(each, cell=DAMAGED) if isinstance(each, Chunk) else each for each in world.down]


def played(rules: Pulling, acts: Acts, *, patience: bool = True) -> World:
    """What happens by the schedule; then a last fetch, over a link that is good: silence on it ends it, with `patience`."""
    world = World(rules)
    world.publish(publication(0, 0))
    world.tell(word.Fetch(-1))
    for verb, number in acts:
        act(world, verb, number)
    _calm(world, patience)
    world.now += 1
    if not world.reader.wants:
        world.tell(word.Fetch(-1))
        _calm(world, patience)
    return world


def _calm(world: World, patience: bool) -> None:
    for _ in range(40 * CHUNKS):
        if not world.reader.wants:
            return
        if not (world.up or world.down or world.wants_link):
            if not patience:
                return
            world.silences += 1
            world.cut()
        world.serve()
        world.hear()


def fetched(world: World) -> list[Given]:
    """The fetches that gave something."""
    return [each for each in world.given if each.publication != NONE]


def asks(world: World) -> list[tuple[Moment, int]]:
    """Every chunk that was asked for, with the moment."""
    found = [(moment, action) for moment in world.moments for action in moment.actions if isinstance(action, Ask)]
    return list(itertools.chain.from_iterable([(moment, chunk) for chunk in ask.chunks] for moment, ask in found))
