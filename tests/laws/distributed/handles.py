"""Laws of handles for sharded leaves: a handle that is sent is resolved to the same leaf on every rank.

A sequence of messages is run on several ranks at once. The first rank selects the trees to make from others, and forgets some;
every rank makes them from its own leaves. `held` maps handles to a rank's leaves, as in `runtime.effects.distributed.driver`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core.errors import StructureError
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.runtime.distributed import handles
from purestep.runtime.distributed.handles import Name

# --- mutants ---
# Common errors in handles of sharded leaves; each an edit of a right function.


@attrs.frozen
class Naming:
    """The subject of the laws of handles."""

    named: Callable[[Any, Mapping[int, Any], Callable[[Any], bool]], Any]
    found: Callable[[Any, Mapping[int, Any]], Any]
    enrolled: Callable[[Any, Mapping[int, Any], int, Callable[[Any], bool]], dict[int, Any]]


def numbers_by_place(subject: Naming) -> Naming:
    """Use a leaf's position in the tree as its handle."""

    def named(tree: Any, held: Mapping[int, Any], divided: Callable[[Any], bool]) -> Any:
        subject.named(tree, held, divided)
        places = iter(range(len(leaves(tree))))

        def stand_in(leaf: Any) -> Any:
            place = next(places)
            return Name(place) if divided(leaf) else leaf

        return tree_map(stand_in, tree)

    return attrs.evolve(subject, named=named)


def sends_strangers(subject: Naming) -> Naming:
    """Send sharded leaves without a handle as they are."""

    def named(tree: Any, held: Mapping[int, Any], divided: Callable[[Any], bool]) -> Any:
        known = {id(leaf) for leaf in held.values()}
        return subject.named(tree, held, lambda leaf: divided(leaf) and id(leaf) in known)

    return attrs.evolve(subject, named=named)


def leaves_names(subject: Naming) -> Naming:
    """Leave an unknown handle unresolved."""

    def found(tree: Any, held: Mapping[int, Any]) -> Any:
        try:
            return subject.found(tree, held)
        except StructureError:
            return tree

    return attrs.evolve(subject, found=found)


def enrols_again(subject: Naming) -> Naming:
    """Give leaves that have a handle another one."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        return subject.enrolled(tree, {}, first, divided)

    return attrs.evolve(subject, enrolled=enrolled)


def counts_twice(subject: Naming) -> Naming:
    """Give a leaf that occurs twice two handles."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        new = set(map(id, subject.enrolled(tree, held, first, divided).values()))
        return dict(enumerate([leaf for leaf in leaves(tree) if divided(leaf) and id(leaf) in new], first))

    return attrs.evolve(subject, enrolled=enrolled)


def from_nothing(subject: Naming) -> Naming:
    """Count from 0 in each tree."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        return subject.enrolled(tree, held, 0, divided)

    return attrs.evolve(subject, enrolled=enrolled)


MUTANTS: dict[str, Callable[[Naming], Naming]] = {"counts from 0 in each tree": from_nothing}


# --- laws ---


RANKS = 2


def own_naming() -> Naming:
    """Return the library's functions for handles."""
    return Naming(named=handles.with_handles, found=handles.without_handles, enrolled=handles.enrolled)


@attrs.frozen(eq=False)
class Part:
    """A rank's shard of a leaf; the shards on other ranks have another `rank` and the same `born`."""

    rank: int
    born: tuple[int, int]  # in which word, as which of its new leaves


def divided(leaf: Any) -> bool:
    """Return whether a leaf is sharded over the ranks."""
    return isinstance(leaf, Part)


@attrs.frozen
class Word:
    """A message of the first rank: the trees to pass, the number of new leaves, and the leaves to return."""

    given: tuple[int, ...]  # numbers of trees, counted modulo those there are
    new: int
    kept: tuple[int, ...]  # places among the leaves passed, counted modulo those there are
    twice: bool  # give the last leaf twice
    forgets: int  # how many of the oldest trees the first has forgotten before


@st.composite
def _talks(draw: DrawFn) -> tuple[Word, ...]:
    few = st.lists(st.integers(0, 5), max_size=2).map(tuple)
    word = st.builds(
        Word, given=few, new=st.integers(0, 3), kept=few, twice=st.booleans(), forgets=st.sampled_from((0, 0, 1))
    )
    return tuple(draw(st.lists(word, min_size=3, max_size=8)))


@attrs.define
class Rank:
    """The state of one rank."""

    rank: int
    held: dict[int, Any] = attrs.Factory(dict)


def _made(rank: int, number: int, word: Word, given: Any) -> Any:
    """The result of a rank's handler: new leaves, some of those passed, and a number."""
    passed = [leaf for leaf in leaves(given) if divided(leaf)]
    new = [Part(rank, (number, place)) for place in range(word.new)]
    kept = [passed[place % len(passed)] for place in word.kept] if passed else []
    found = [*kept, *new]
    return {"leaves": tuple(found), "number": number, "again": tuple(found[-1:] if word.twice else [])}


@attrs.frozen
class Told:
    """One message, on the first rank and on another."""

    meant: Any  # the trees that were passed, as the first has them
    heard: Any  # as the other has them
    held: tuple[dict[int, Any], dict[int, Any]]  # of both, before
    new: tuple[dict[int, Any], dict[int, Any]]  # of both, by number
    first: int  # the number of the next leaf, before
    made: tuple[Any, Any]


def played(subject: Naming, talk: tuple[Word, ...]) -> list[Told]:
    """Run a sequence of messages. Raises: StructureError if a leaf is not known."""
    ranks = [Rank(rank) for rank in range(RANKS)]
    trees, following, told = list[Any](), 0, list[Told]()
    for number, word in enumerate(talk):
        del trees[: word.forgets]
        alive = {id(leaf) for tree in trees for leaf in leaves(tree)}
        gone = [name for name, leaf in ranks[0].held.items() if id(leaf) not in alive]
        for rank in ranks:
            for name in gone:
                rank.held.pop(name, None)
        given = tuple(trees[place % len(trees)] for place in word.given) if trees else ()
        sent = subject.named(given, ranks[0].held, divided)
        heard = [subject.found(sent, rank.held) for rank in ranks]
        made = [_made(rank.rank, number, word, own) for rank, own in zip(ranks, heard, strict=True)]
        new = [subject.enrolled(tree, rank.held, following, divided) for rank, tree in zip(ranks, made, strict=True)]
        before = (dict(ranks[0].held), dict(ranks[1].held))
        told.append(Told(given, heard[1], before, (new[0], new[1]), following, (made[0], made[1])))
        for rank, own in zip(ranks, new, strict=True):
            rank.held.update(own)
        following += len(new[0])
        trees.append(made[0])
    return told


def naming_laws() -> Suite:
    """The laws of `Naming(named, found, enrolled)`."""
    return Suite("naming_laws", (_arrives(), _once(), _one_number(), _strangers(), _absent()))


_of_talks = law_constructor(_talks, "derived")


def _through(subject: Naming, talk: tuple[Word, ...]) -> list[Told]:
    try:
        return played(subject, talk)
    except StructureError as error:
        require(False, f"a leaf that both ranks have is refused: {error}")
        return []


def _arrives() -> Law:
    def check(subject: Naming, talk: tuple[Word, ...], seen: Seen) -> None:
        for told in _through(subject, talk):
            pairs = list(zip(leaves(told.meant), leaves(told.heard), strict=True))
            for meant, heard in pairs:
                own = divided(meant)
                seen("a leaf of an earlier word", own)
                right = divided(heard) and (heard.rank, heard.born) == (1, meant.born) if own else heard == meant
                require(right, f"{meant} is told of and {heard} is heard")
            seen("something that is sent", len(pairs) > sum(divided(meant) for meant, _ in pairs))

    mutant = ("names a leaf by its place in the tree", numbers_by_place)
    claim = "A rank hears of its own part of each leaf that is told of, and what is not divided as it is."
    return _of_talks("arrives", claim, mutant, check, "a leaf of an earlier word", "something that is sent")


def _once() -> Law:
    def check(subject: Naming, talk: tuple[Word, ...], seen: Seen) -> None:
        for told in _through(subject, talk):
            known = {id(leaf) for leaf in told.held[0].values()}
            seen("a leaf that has a number", any(id(leaf) in known for leaf in leaves(told.made[0])))
            again = [leaf for leaf in told.new[0].values() if id(leaf) in known]
            require(not again, f"leaves that have numbers get others: {again}")
            require(
                {id(leaf) for leaf in leaves(told.made[0]) if divided(leaf)}
                <= known | {id(leaf) for leaf in told.new[0].values()},
                "a leaf has no number",
            )

    mutant = ("gives leaves that have a number another one", enrols_again)
    claim = "A leaf that has a number keeps it, and one that has none gets one."
    return _of_talks("kept", claim, mutant, check, "a leaf that has a number")


def _one_number() -> Law:
    def check(subject: Naming, talk: tuple[Word, ...], seen: Seen) -> None:
        for told in _through(subject, talk):
            one, other = told.new
            seen("a new leaf that comes twice", len(told.made[0]["again"]) and len(one))
            require(len({id(leaf) for leaf in one.values()}) == len(one), "one leaf has two numbers")
            wanted = list(range(told.first, told.first + len(one)))
            require(sorted(one) == wanted, f"numbers are {sorted(one)}, wanted {wanted}")
            same = {name: leaf.born for name, leaf in one.items()} == {name: leaf.born for name, leaf in other.items()}
            require(same, "ranks number the same leaves differently")

    mutant = ("gives a leaf that comes twice two numbers", counts_twice)
    claim = "New leaves get the next numbers, each one, and on all ranks the same."
    return _of_talks("one_number", claim, mutant, check, "a new leaf that comes twice")


def _some(talk: tuple[Word, ...]) -> dict[int, Any]:
    """Return as many leaves as there are messages, with gaps between their handles."""
    return {3 * number + 1: Part(0, (number, 0)) for number in range(len(talk))}


def _strangers() -> Law:
    def check(subject: Naming, talk: tuple[Word, ...], seen: Seen) -> None:
        held = _some(talk)
        seen("leaves that are known", held)
        stranger = Part(0, (len(talk), 0))
        try:
            sent = subject.named((*held.values(), stranger), held, divided)
        except StructureError:
            return
        require(False, f"a leaf that nobody else has is told of as {sent[-1]}")

    mutant = ("lets leaves that nobody else knows pass", sends_strangers)
    claim = "A divided leaf that the others do not have is refused."
    return _of_talks("strangers", claim, mutant, check, "leaves that are known")


def _absent() -> Law:
    def check(subject: Naming, talk: tuple[Word, ...], seen: Seen) -> None:
        held = _some(talk)
        for number in list(held):
            seen("a leaf that is missing")
            sent = subject.named(held[number], held, divided)
            less = {name: leaf for name, leaf in held.items() if name != number}
            try:
                found = subject.found(sent, less)
            except StructureError:
                continue
            require(False, f"{found} is taken for a leaf that is not here")

    mutant = ("leaves the name of what is not here", leaves_names)
    claim = "A name of what is not held is refused, not passed on."
    return _of_talks("absent", claim, mutant, check, "a leaf that is missing")
