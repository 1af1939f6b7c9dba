"""Matches of the proving game: a random program, queries, and moves, small enough for the reference in plain Python."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core.keys import Key
from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.state import Game, ProofState, ProofWorld, first_state_of
from purestep.core.logic.terms import PADDING
from purestep.properties.framework.law import law_constructor

from .logic_strategies import CONSTANTS, GOALS, NAMES, OPEN, PREDICATES, RULES, WIDE, Question, mark, questions
from .resolution import Atom, Program, State, unifier

Begin = Callable[[Game, ProofWorld, Key, Tensor, Tensor], ProofState]


Look = Callable[[Game, Knowledge, ProofState], ProofState]


Advance = Callable[[Game, ProofState, Tensor], ProofState]


@frozen
class Moves:
    """The parts of the game: the begin of an episode, the successors of a state, and the effect of a move."""

    begin: Begin
    look: Look
    advance: Advance


T = TypeVar("T")
SOURCE = "core.logic.game: what look and advance promise"
YES_OR_NO = st.booleans()
FEW = st.integers(1, 3)
SLOTS = 6  # episodes side by side
MOVES = 5  # of an episode, then it is truncated
BYTES = 1 + 4 * SLOTS + SLOTS * (MOVES + 1)
# Rules that lead back to where they were used, at once and by way of another predicate.
ROUND = (
    ((1, OPEN, OPEN + 1), ((1, OPEN + 1, OPEN),)),
    ((2, OPEN, OPEN + 1), ((3, OPEN, OPEN + 1),)),
    ((3, OPEN, OPEN + 1), ((2, OPEN, OPEN + 1),)),
)
TRUE, FALSE, END = mark(NAMES.true), mark(NAMES.false), mark(NAMES.end)


@frozen
class Match:
    """Episodes of one game, played side by side."""

    question: Question  # facts and rules; its states play no part
    queries: tuple[Atom, ...]
    labels: tuple[bool, ...]
    moves: tuple[tuple[int, ...], ...]  # of all slots at each step: which successor, counted round and round
    game: Game

    def begun(self) -> ProofState:
        """The first states, before their successors are computed."""
        zero = torch.zeros(len(self.queries), dtype=torch.int64)
        return first_state_of(self.game, torch.tensor(self.queries), torch.tensor(self.labels), zero, zero)

    def program(self) -> Program:
        """The program for the reference."""
        return self.question.program()

    def following(self, slot: int, state: State) -> list[State]:
        """The successors of a state of this slot by the reference, without states that are too long."""
        return evolve(self.question, states=(state,), excluded=(self.queries[slot],)).following(0, GOALS)[0]


def chosen(state: ProofState, numbers: Sequence[int]) -> Tensor:
    """The indices of the successors that the numbers select."""
    return torch.tensor(numbers) % state.derived_count.clamp_min(1)


def played(moves: Moves, match: Match) -> list[ProofState]:
    """The states [N] before and after each step of a match."""
    game, base = match.game, match.question.base()
    states = [moves.look(game, base, match.begun())]
    for numbers in match.moves:
        state = states[-1]
        states.append(moves.look(game, base, moves.advance(game, state, chosen(state, numbers))))
    return states


def goals(atoms: Tensor) -> State:
    """A state [A, 3] without padding."""
    return tuple((p, a, b) for p, a, b in atoms.tolist() if p != PADDING)


def offered(state: ProofState, slot: int) -> list[State]:
    """The successors in a slot, in its order."""
    return [goals(atoms) for atoms in state.derived[slot, : int(state.derived_count[slot])]]


def is_mark(state: State) -> bool:
    """Return whether a state marks an ended proof."""
    return state in (TRUE, FALSE, END)


def over(state: ProofState, slot: int) -> bool:
    """Return whether a slot's episode has ended."""
    return bool(state.terminated[slot] | state.truncated[slot])


def matches(**changes: SearchStrategy[Any]) -> SearchStrategy[Match]:
    """Draw matches by rules of the game in which these are drawn."""
    data = st.binary(min_size=BYTES, max_size=BYTES)
    return st.builds(_match, questions(), data, st.fixed_dictionaries(changes))


def _match(question: Question, data: bytes, changes: dict[str, Any]) -> Match:
    rest = iter(data)

    def pick(options: Sequence[T]) -> T:
        return options[next(rest) % len(options)]

    rules = (*pick(((), ROUND, ROUND)), *question.rules)[:RULES]
    question = evolve(question, rules=tuple(sorted(rules, key=lambda rule: rule[0][0])))
    facts, wanted = list(question.facts), sorted(_consequences(question))

    def query() -> Atom:
        """A fact, a consequence of one rule, or any atom."""
        options, number = pick((wanted or facts, wanted or facts, facts or wanted, ())), next(rest)
        loose = (PREDICATES[number % 8], pick(CONSTANTS), CONSTANTS[number % len(CONSTANTS)])
        return options[number % len(options)] if options else loose

    queries = tuple(query() for _ in range(SLOTS))
    labels = tuple(number % 2 == 0 for number in range(SLOTS))
    depth = changes.get("max_depth", MOVES)
    steps = tuple(tuple(next(rest) for _ in range(SLOTS)) for _ in range(depth + 1))
    made = {"names": NAMES, "widths": WIDE, "max_depth": MOVES, **changes}
    return Match(question=question, queries=queries, labels=labels, moves=steps, game=Game(**made))


def _consequences(question: Question) -> set[Atom]:
    """The atoms that one rule with one or two atoms in its body derives from the facts."""
    program, found = question.program(), set[Atom]()
    for head, body in question.rules:
        bindings: list[dict[int, int]] = [{}]
        for atom in body:
            bindings = [
                {**before, **more}
                for before in bindings
                for fact in question.facts
                if (more := unifier(program, _under(before, atom), fact)) is not None
            ]
        atoms = {_under(binding, head) for binding in bindings}
        found |= {atom for atom in atoms if not any(map(program.variable, atom[1:]))}
    return found


def _under(binding: dict[int, int], atom: Atom) -> Atom:
    return atom[0], binding.get(atom[1], atom[1]), binding.get(atom[2], atom[2])


game_law = law_constructor(st.nothing, SOURCE)  # of the proving game, on matches
