"""Random programs and states, small enough for the reference in plain Python."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core.logic.derive import Successors, Widths
from purestep.core.logic.knowledge import Knowledge, knowledge
from purestep.core.logic.rules import VOID
from purestep.core.logic.terms import PADDING, vocabulary

from .resolution import Atom, Program, State, renamed, successors, unifier

GOALS = 4  # of a state
BODY = 2  # atoms of a rule
FACTS, RULES = 8, 5  # of a program
STATES = 8  # asked at once
NAMES = vocabulary(["p", "q", "r", "s"], ["a", "b", "c", "d", "e", "f"], variables=2 * (GOALS + BODY) + 4)
OPEN = len(NAMES.constants) + 1  # the first variable
WIDE = Widths(GOALS, FACTS + RULES, FACTS, RULES)  # room for all that follows but states that are too long

# Few names come often, so that atoms meet; the last ones come too.
PREDICATES = (1, 1, 1, 1, 2, 2, 3, 4)
CONSTANTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6)
TERMS = (*range(OPEN, OPEN + 4), *range(OPEN, OPEN + 4), 1, 1, 2, 3)
BYTES = 256  # more than a question takes

T = TypeVar("T")
Rule = tuple[Atom, State]


@frozen
class Question:
    """A program, states, and for each of these an atom that is no fact."""

    facts: tuple[Atom, ...]
    rules: tuple[Rule, ...]  # in the order of their heads' predicates
    states: tuple[State, ...]  # canonical, without padding
    excluded: tuple[Atom, ...]  # padding where all facts are facts

    def program(self) -> Program:
        """The program for the reference."""
        return Program(frozenset(self.facts), self.rules, OPEN)

    def base(self) -> Knowledge:
        """The knowledge base for the engine."""
        heads, bodies = zip(*self.rules, strict=True) if self.rules else ((), ())
        facts, head_rows = (torch.tensor(rows, dtype=torch.int64).reshape(-1, 3) for rows in (self.facts, heads))
        body_rows = [padded(body, BODY) for body in bodies]
        return knowledge(NAMES, facts, head_rows, torch.tensor(body_rows, dtype=torch.int64).reshape(-1, BODY, 3))

    def asked(self, goals: int = GOALS) -> tuple[Tensor, Tensor]:
        """Return states [N, A, 3] and excluded atoms [N, 3]."""
        return torch.tensor([padded(state, goals) for state in self.states]), torch.tensor(self.excluded)

    def every(self, number: int) -> list[State]:
        """The successors of a state by the reference, however long; () is a proof."""
        return successors(self.program(), self.states[number], self.excluded[number])

    def sources(self, number: int) -> dict[int, State]:
        """The successors by the number of the fact or rule that each comes from; rules are numbered after the facts."""
        program, goal, excluded = self.program(), self.states[number][0], self.excluded[number]
        usable = [place for place, fact in enumerate(self.facts) if fact != excluded]
        numbers = [place for place in usable if unifier(program, goal, self.facts[place]) is not None]
        by_facts = len(evolve(self, rules=()).every(number))
        for place, rule in enumerate(self.rules, len(self.facts)):
            if len(evolve(self, rules=(rule,)).every(number)) > by_facts:
                numbers.append(place)
        return dict(zip(numbers, self.every(number), strict=True))

    def following(self, number: int, goals: int = GOALS) -> tuple[list[State], int]:
        """The expected successors of a state, and the expected number of states that are too long."""
        every = self.every(number)
        if () in every:
            return [mark(NAMES.true)], 0
        fitting = [state for state in every if len(state) <= goals]
        return fitting or [mark(NAMES.false)], len(every) - len(fitting)


def mark(predicate: int) -> State:
    """The state of an ended proof."""
    return ((predicate, PADDING, PADDING),)


def padded(state: State, goals: int) -> list[Atom]:
    """The atoms of a state, and padding behind them."""
    return [*state, *[VOID] * (goals - len(state))]


def listed(found: Successors, number: int) -> list[State]:
    """The states found to follow from state `number`, without padding, in their order."""
    states = found.states[number, : int(found.count[number])].tolist()
    return [tuple((p, a, b) for p, a, b in state if p != PADDING) for state in states]


def by_origin(found: Successors, number: int) -> dict[int, State]:
    """The states found to follow from state `number`, by the number of the fact or rule that each came by."""
    states = listed(found, number)
    return dict(zip(found.origin[number, : len(states)].tolist(), states, strict=True))


def questions() -> SearchStrategy[Question]:
    """Up to 8 facts about 6 constants, up to 5 rules with one or two atoms in the body, and up to 8 states.

    One draw of bytes makes them all: it is fast, and examples are as large as they may be, not mostly small.
    """
    return st.binary(min_size=BYTES, max_size=BYTES).map(_question)


def _question(data: bytes) -> Question:
    rest = iter(data)

    def pick(options: Sequence[T]) -> T:
        return options[next(rest) % len(options)]

    def atom(terms: Sequence[int]) -> Atom:
        return pick(PREDICATES), pick(terms), pick(terms)

    def loose() -> list[Atom]:
        """Any atoms and facts, some arguments left open."""
        kinds = [pick(facts) if pick((0, 1)) and facts else atom(TERMS) for _ in range(pick((1, 2, 3, GOALS, GOALS)))]
        return [(predicate, pick((first, OPEN)), second) for predicate, first, second in kinds]

    def joined() -> list[Atom]:
        """Two facts with a shared argument left open: some ways to prove the first leave the second to fail."""
        one = pick(facts)
        other = pick([fact for fact in facts if fact[1] == one[2]] or facts)
        return [(one[0], pick((one[1], OPEN + 1, OPEN + 1)), OPEN), (other[0], OPEN, other[2])]

    facts = sorted({atom(CONSTANTS) for _ in range(pick((0, 1, 4, FACTS, FACTS)))})
    rules = [(atom(TERMS), tuple(atom(TERMS) for _ in range(pick((1, 2))))) for _ in range(pick(range(RULES + 1)))]
    program = Program(frozenset(facts), (), OPEN)
    states = [pick((loose, joined, joined))() if facts else loose() for _ in range(pick((1, 2, STATES, STATES)))]
    return Question(
        facts=tuple(facts),
        rules=tuple(sorted(rules, key=lambda rule: rule[0][0])),
        states=tuple(renamed(program, state) for state in states),
        excluded=tuple(pick((VOID, *facts)) for _ in states),
    )
