"""What a policy did with a query, for people: a tree of goals, and for each of them what settled it and how likely that was."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.logic.env import observe
from ...core.logic.game import advance, look
from ...core.logic.knowledge import Knowledge
from ...core.logic.state import Game, ProofState, opened
from ...core.logic.terms import PADDING, Vocabulary, pack
from ...core.policy import ActorCritic
from ...core.record import select
from ...core.steps import ended

Atom = tuple[int, int, int]
OPEN = -1  # the origin of what nothing has settled
LETTERS = "XYZUVW"


@frozen
class Move:
    """One step of the policy."""

    probability: float
    origin: int  # the fact 0..F-1 or rule F..F+R-1 that led to the state taken, OPEN where nothing did
    choices: int  # among how many states


@frozen
class Attempt:
    """What the policy did with a query."""

    moves: tuple[Move, ...]
    end: Literal["proven", "dead end", "given up", "out of moves"]
    left_out: int  # states for which there was no room


@frozen
class Goal:
    """A goal of a proof."""

    atom: Atom
    origin: int = OPEN  # the fact or rule that settled it, as in `Move`
    probability: float = 1.0  # with which the policy chose that
    choices: int = 0  # among how many; 0 where the policy was not asked, as for known facts
    goals: "tuple[Goal, ...]" = ()  # what the rule put in its place

    def settled(self) -> bool:
        """Whether everything below is."""
        return self.origin != OPEN and all(goal.settled() for goal in self.goals)

    def height(self) -> int:
        """How many goals stand above one another."""
        return 1 + max((goal.height() for goal in self.goals), default=0)


@frozen
class Row:
    """A goal in words."""

    depth: int  # how many goals stand above it
    kind: Literal["rule", "fact", "known", "open"]
    goal: str
    by: str  # what settled it
    chosen: str  # how likely that was, among how many; empty where the policy was not asked


def attempts(game: Game, model: ActorCritic, params: Any, base: Knowledge, queries: Tensor) -> tuple[Attempt, ...]:
    """The policy's most probable moves from each query on, to the end of its episode: int64 [N, 3] -> N attempts.

    States that the game passes over because only one follows are moves here, so that no step of a proof is missing; they are
    still no moves to the game's `max_depth`.
    """
    plain = evolve(game, skip_unary=0, max_depth=game.max_depth * (1 + game.skip_unary))
    passed = made = torch.zeros_like(queries[:, 0])
    yes = torch.ones_like(passed, dtype=torch.bool)
    state = look(plain, base, opened(plain, queries, yes, passed, passed))
    going = ~ended(state.terminated, state.truncated)
    moves: list[list[Move]] = [[] for _ in queries]
    while bool(going.any()):
        distribution, _, _ = model.apply(params, observe(state), ())
        action = distribution.mode()
        origin = state.origin.gather(-1, action[:, None])[:, 0]
        columns = (distribution.log_prob(action).exp(), origin, state.derived_count)
        for row, asked, *told in zip(moves, going.tolist(), *(part.tolist() for part in columns), strict=True):
            row += [Move(*told)] if asked else []
        alone = _alone(game, state) & (passed < game.skip_unary)
        passed = torch.where(alone, passed + 1, 0)
        made = made + (~alone).to(torch.int64)
        state = select(going, look(plain, base, advance(plain, state, action)), state)
        going = going & ~ended(state.terminated, state.truncated) & (made < game.max_depth)
    left_out = (state.too_long + state.too_many).tolist()
    marks = state.current[:, 0, 0].tolist()
    return tuple(
        Attempt(tuple(row), _end(game.names, mark), lost)
        for row, mark, lost in zip(moves, marks, left_out, strict=True)
    )


def _alone(game: Game, state: ProofState) -> Tensor:
    """Whether one state follows, which is no mark."""
    goal = state.derived[:, 0, 0, 0]
    return (state.derived_count == 1) & (goal <= len(game.names.predicates)) & (goal != PADDING)


def _end(names: Vocabulary, mark: int) -> Literal["proven", "dead end", "given up", "out of moves"]:
    if mark == names.true:
        return "proven"
    return "dead end" if mark == names.false else "given up" if mark == names.end else "out of moves"


def proof_tree(names: Vocabulary, base: Knowledge, query: Sequence[int], moves: Sequence[Move]) -> Goal:
    """The tree that the moves build, with the bindings of all of them applied.

    As in `derive`, a move settles the first open goal, a rule's body takes the place of its goal, and goals that have become
    known facts are settled at once; the query itself is no fact.
    """
    root = _atom(query)
    atoms, settled, open_ = [root], dict[int, tuple[Move, Sequence[int]]](), [0]
    binding: Mapping[int, int] = {}
    for number, move in enumerate(moves, 1):
        if move.origin == OPEN:
            break
        goal, *rest = open_
        head, *body = _clause(names, base, move.origin, number * names.base)
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


def _atom(row: Sequence[int]) -> Atom:
    predicate, first, second = row
    return predicate, first, second


def _clause(names: Vocabulary, base: Knowledge, origin: int, apart: int = 0) -> list[Atom]:
    """A fact, or a rule's head and body with variables that lie `apart`."""
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


def _last(binding: Mapping[int, int], term: int) -> int:
    while term in binding:
        term = binding[term]
    return term


def _bound(binding: Mapping[int, int], atom: Atom) -> Atom:
    return atom[0], _last(binding, atom[1]), _last(binding, atom[2])


def _unified(names: Vocabulary, binding: Mapping[int, int], goal: Atom, head: Atom) -> Mapping[int, int]:
    """The binding with what makes goal and head one; a variable of the head goes before one of the goal."""
    for one, other in zip(goal[1:], head[1:], strict=True):
        left, right = _last(binding, one), _last(binding, other)
        if left != right:
            variable, term = (right, left) if right > len(names.constants) else (left, right)
            binding = {**binding, variable: term}
    return binding


def _fact(names: Vocabulary, base: Knowledge, atom: Atom, query: Atom) -> int:
    """The number of the fact that the atom is, OPEN where it is none or the query."""
    if max(atom[1:]) > len(names.constants) or atom == query:
        return OPEN
    wanted = pack(names, torch.tensor(atom, device=base.keys.device))
    place = torch.searchsorted(base.keys, wanted)
    return int(place) if bool(base.keys[place] == wanted) else OPEN


def rows(names: Vocabulary, base: Knowledge, root: Goal) -> tuple[Row, ...]:
    """The goals of a tree in words, from left to right and each before those below it.

    Variables that nothing has bound are X, Y, Z, ..., the same letter for the same one; a rule has letters of its own.
    """
    goals = list(_walk(root, 0))
    called = _letters(names, [goal.atom for _, goal in goals])
    return tuple(_row(names, base, depth, goal, called) for depth, goal in goals)


def _walk(goal: Goal, depth: int) -> Iterator[tuple[int, Goal]]:
    yield depth, goal
    for below in goal.goals:
        yield from _walk(below, depth + 1)


def _row(names: Vocabulary, base: Knowledge, depth: int, goal: Goal, called: Mapping[int, str]) -> Row:
    text = _text(names, goal.atom, called)
    if goal.origin == OPEN:
        return Row(depth, "open", text, "open", "")
    if not goal.choices:
        return Row(depth, "known", text, "known fact", "")
    among = "the only choice" if goal.choices == 1 else f"of {goal.choices} choices"
    chosen = f"p = {goal.probability:.2f}, {among}"
    if goal.origin < base.facts.shape[0] - 1:
        return Row(depth, "fact", text, "fact", chosen)
    clause = _clause(names, base, goal.origin)
    head, *body = (_text(names, atom, _letters(names, clause)) for atom in clause)
    return Row(depth, "rule", text, f"{head} :- {', '.join(body)}", chosen)


def _letters(names: Vocabulary, atoms: Sequence[Atom]) -> dict[int, str]:
    """A name for each variable, in the order of their appearance."""
    variables = dict.fromkeys(term for atom in atoms for term in atom[1:] if term > len(names.constants))
    return {
        variable: LETTERS[place] if place < len(LETTERS) else f"X{place}" for place, variable in enumerate(variables)
    }


def _text(names: Vocabulary, atom: Atom, called: Mapping[int, str]) -> str:
    first, second = (called[term] if term in called else names.constants[term - 1] for term in atom[1:])
    return f"{names.predicates[atom[0] - 1]}({first}, {second})"


def ending(attempt: Attempt) -> str:
    """How an attempt ended, in words.

    >>> ending(Attempt((Move(1.0, 0, 1),), "proven", 0))
    'proven in 1 move'
    """
    count = sum(move.origin != OPEN for move in attempt.moves)
    moves = f"{count} move{'s' * (count != 1)}"
    return {
        "proven": f"proven in {moves}",
        "dead end": f"not proven: after {moves} nothing followed that the policy had not seen",
        "given up": f"not proven: the policy gave up after {moves}",
        "out of moves": f"not proven: out of moves after {moves}",
    }[attempt.end]


def left_out(attempt: Attempt) -> tuple[str, ...]:
    """A line on what there was no room for, if there was not."""
    count = attempt.left_out
    remedy = "train with more --successors or --atoms to make room"
    return (f"{count} state{'s' * (count != 1)} left out for want of room; {remedy}",) if count else ()


def lines(told: Sequence[Row]) -> Iterator[str]:
    """The goals of a tree, one a line.

    >>> list(lines([Row(0, "rule", "q(a, b)", "q(X, Y) :- p(Y, X)", "p = 1.00"), Row(1, "known", "p(b, a)", "known fact", "")]))
    ['  q(a, b)     q(X, Y) :- p(Y, X)   p = 1.00', '    p(b, a)   known fact']
    """
    indented = ["  " * (row.depth + 1) + row.goal for row in told]
    wide, by = max(map(len, indented)), max(len(row.by) for row in told)
    for text, row in zip(indented, told, strict=True):
        yield f"{text:{wide}}   {row.by:{by}}   {row.chosen}".rstrip()
