"""Names of leaves that stand on several processes, as people get them wrong; each an edit of what is right."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from purestep.core.errors import StructureError
from purestep.core.tree import leaves, tree_map
from purestep.runtime.ranks.naming import Name


@attrs.frozen
class Naming:
    """What the laws of naming judge."""

    named: Callable[[Any, Mapping[int, Any], Callable[[Any], bool]], Any]
    found: Callable[[Any, Mapping[int, Any]], Any]
    enrolled: Callable[[Any, Mapping[int, Any], int, Callable[[Any], bool]], dict[int, Any]]


def numbers_by_place(subject: Naming) -> Naming:
    """Names a leaf by its place in the tree that is told."""

    def named(tree: Any, held: Mapping[int, Any], divided: Callable[[Any], bool]) -> Any:
        subject.named(tree, held, divided)
        places = iter(range(len(leaves(tree))))

        def stand_in(leaf: Any) -> Any:
            place = next(places)
            return Name(place) if divided(leaf) else leaf

        return tree_map(stand_in, tree)

    return attrs.evolve(subject, named=named)


def sends_strangers(subject: Naming) -> Naming:
    """Lets leaves that nobody else knows pass as they are."""

    def named(tree: Any, held: Mapping[int, Any], divided: Callable[[Any], bool]) -> Any:
        known = {id(leaf) for leaf in held.values()}
        return subject.named(tree, held, lambda leaf: divided(leaf) and id(leaf) in known)

    return attrs.evolve(subject, named=named)


def leaves_names(subject: Naming) -> Naming:
    """Leaves the name of what is not here where it stands."""

    def found(tree: Any, held: Mapping[int, Any]) -> Any:
        try:
            return subject.found(tree, held)
        except StructureError:
            return tree

    return attrs.evolve(subject, found=found)


def enrols_again(subject: Naming) -> Naming:
    """Gives leaves that have a number another one."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        return subject.enrolled(tree, {}, first, divided)

    return attrs.evolve(subject, enrolled=enrolled)


def counts_twice(subject: Naming) -> Naming:
    """Gives a leaf that comes twice two numbers."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        new = set(map(id, subject.enrolled(tree, held, first, divided).values()))
        return dict(enumerate([leaf for leaf in leaves(tree) if divided(leaf) and id(leaf) in new], first))

    return attrs.evolve(subject, enrolled=enrolled)


def from_nothing(subject: Naming) -> Naming:
    """Counts from 0 in each tree."""

    def enrolled(tree: Any, held: Mapping[int, Any], first: int, divided: Callable[[Any], bool]) -> dict[int, Any]:
        return subject.enrolled(tree, held, 0, divided)

    return attrs.evolve(subject, enrolled=enrolled)


MUTANTS: dict[str, Callable[[Naming], Naming]] = {"counts from 0 in each tree": from_nothing}
