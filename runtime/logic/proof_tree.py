"""A proof as a tree of goals: the rule or fact that settled each goal, and the subgoals of a rule."""

from collections.abc import Mapping, Sequence

import torch
from attrs import frozen

from ...core.logic.knowledge import Knowledge
from ...core.logic.terms import PADDING, Vocabulary, pack_atoms
from .attempts import OPEN, Move

Atom = tuple[int, int, int]


@frozen
class Goal:
    """A goal of a proof."""

    atom: Atom
    origin: int = OPEN  # the fact or rule that settled it, as in `Move`
    probability: float = 1.0  # of the policy's choice
    choices: int = 0  # number of choices; 0 where the policy did not choose, as for known facts
    goals: "tuple[Goal, ...]" = ()  # the subgoals from the rule's body

    def settled(self) -> bool:
        """Return whether this goal and all goals below it are settled.

        >>> Goal((1, 1, 2), 4, goals=(Goal((1, 2, 1)),)).settled()
        False
        """
        return self.origin != OPEN and all(goal.settled() for goal in self.goals)

    def height(self) -> int:
        """Return the height of the tree, in goals.

        >>> Goal((1, 1, 2), 4, goals=(Goal((1, 2, 1)),)).height()
        2
        """
        return 1 + max((goal.height() for goal in self.goals), default=0)


def proof_tree(
    names: Vocabulary, base: Knowledge, query: Sequence[int], moves: Sequence[Move], *, bound_first: bool = False
) -> Goal:
    """Return the tree that the moves build, with all their bindings applied: an atom [3] and its moves -> its root.

    As in `derive`, a move settles the first open goal, a rule's body replaces its goal, and goals that have become
    known facts are settled at once; the query itself is no fact. A move that led to no state ends the tree. With `bound_first`
    a move settles the first open goal that has a constant, as in `search`, and the first one where none has.
    Source: Kowalski 1974, "Predicate logic as programming language".

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> spain = world.queries[0].tolist()  # in(spain, europe): by rule 4, in(X, Z) :- borders(X, Y), in(Y, Z)
    >>> tree = proof_tree(game.names, world.base, spain, [Move(1.0, 4, 1), Move(1.0, 1, 1)])
    >>> [(goal.atom, goal.origin) for goal in tree.goals]  # by the facts borders(spain, france), in(france, europe)
    [((1, 6, 3), 1), ((2, 3, 2), 2)]
    """
    root = _atom(query)
    atoms, settled, open_ = [root], dict[int, tuple[Move, Sequence[int]]](), [0]
    binding: Mapping[int, int] = {}
    for number, move in enumerate(moves, 1):
        if move.origin == OPEN:
            break
        chosen = _first_bound(names, binding, [atoms[place] for place in open_]) if bound_first else 0
        goal, rest = open_[chosen], [*open_[:chosen], *open_[chosen + 1 :]]
        head, *body = clause(names, base, move.origin, number * names.base)
        binding = _unified(names, binding, atoms[goal], head)
        below = range(len(atoms), len(atoms) + len(body))
        atoms += body
        settled[goal] = (move, below)
        known = {place: _fact(names, base, _bound(binding, atoms[place]), root) for place in (*below, *rest)}
        settled |= {place: (Move(1.0, fact, 0), ()) for place, fact in known.items() if fact != OPEN}
        open_ = [place for place, fact in known.items() if fact == OPEN]

    def grown(place: int) -> Goal:
        atom = _bound(binding, atoms[place])
        if place not in settled:
            return Goal(atom)
        move, below = settled[place]
        return Goal(atom, move.origin, move.probability, move.choices, tuple(map(grown, below)))

    return grown(0)


def clause(names: Vocabulary, base: Knowledge, origin: int, apart: int = 0) -> list[Atom]:
    """Return the clause of an origin: a fact, or a rule's head and then its body, with variables shifted by `apart`.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()  # borders, in are predicates 1, 2; spain is constant 6, variables begin at 7
    >>> clause(game.names, world.base, 1), clause(game.names, world.base, 4)  # in(X, Z) :- borders(X, Y), in(Y, Z)
    ([(1, 6, 3)], [(2, 7, 8), (1, 7, 9), (2, 9, 8)])
    """
    facts = base.facts.shape[0] - 1
    if origin < facts:
        return [_atom(base.facts[origin].tolist())]
    rows = [base.heads[origin - facts].tolist(), *base.bodies[origin - facts].tolist()]
    beyond = len(names.constants)
    return [
        (predicate, *(term + apart if term > beyond else term for term in terms))
        for predicate, *terms in rows
        if predicate != PADDING
    ]


def _atom(row: Sequence[int]) -> Atom:
    predicate, first, second = row
    return predicate, first, second


def _last(binding: Mapping[int, int], term: int) -> int:
    while term in binding:
        term = binding[term]
    return term


def _first_bound(names: Vocabulary, binding: Mapping[int, int], goals: Sequence[Atom]) -> int:
    """Return the place of the first goal with a constant, 0 if none has one."""
    constants = len(names.constants)
    return next((place for place, goal in enumerate(goals) if min(_bound(binding, goal)[1:]) <= constants), 0)


def _bound(binding: Mapping[int, int], atom: Atom) -> Atom:
    return atom[0], _last(binding, atom[1]), _last(binding, atom[2])


def _unified(names: Vocabulary, binding: Mapping[int, int], goal: Atom, head: Atom) -> Mapping[int, int]:
    """Return the binding extended to unify goal and head; a variable of the head is bound before one of the goal."""
    for one, other in zip(goal[1:], head[1:], strict=True):
        left, right = _last(binding, one), _last(binding, other)
        if left != right:
            variable, term = (right, left) if right > len(names.constants) else (left, right)
            binding = {**binding, variable: term}
    return binding


def _fact(names: Vocabulary, base: Knowledge, atom: Atom, query: Atom) -> int:
    """Return the number of the fact that equals the atom; OPEN if there is none or it is the query."""
    if max(atom[1:]) > len(names.constants) or atom == query:
        return OPEN
    wanted = pack_atoms(names, torch.tensor(atom, device=base.keys.device))
    place = torch.searchsorted(base.keys, wanted)
    return int(place) if bool(base.keys[place] == wanted) else OPEN
