"""The exact prover finds the shortest proofs that plain Python finds, and says where it cannot know."""

from collections.abc import Iterator

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.logic.borders import borders
from purestep.core.logic.derive import Successors, Widths
from purestep.core.logic.knowledge import Knowledge, knowledge
from purestep.core.logic.terms import atom_numbers
from purestep.properties import EXACT, require, same
from purestep.runtime.logic.breadth import Breadth, deriver, shortest_proofs

from ...laws.logic.game_strategies import Match, matches
from ...laws.logic.logic_strategies import NAMES, WIDE
from ...laws.logic.resolution import Atom, Program, State, shortest_proof, successors

DEPTH = 4
ROOMS = st.sampled_from([2, 3, 4])  # goals of a state


def sought(match: Match, goals: int, batch: int = 7, most: int = 10_000) -> Breadth:
    widths, queries = evolve(WIDE, atoms=goals), torch.tensor(match.queries)
    return shortest_proofs(NAMES, match.question.base(), widths, queries, depth=DEPTH, batch=batch, most=most)


def layers(program: Program, query: Atom, longest: int) -> Iterator[tuple[set[State], bool, int]]:
    """Step by step: the new states, whether there was a proof, and how many states too long were left out beside none."""
    frontier: set[State] = {(query,)}
    seen: set[State] = {(query,)}
    for _ in range(DEPTH):
        following = [successors(program, state, query) for state in frontier]
        every = {after for states in following for after in states}
        lost = sum(len(after) > longest for states in following if () not in states for after in states)
        frontier = {state for state in every - {()} if len(state) <= longest} - seen
        seen |= frontier
        yield frontier, () in every, lost


def left_out(program: Program, query: Atom, longest: int) -> int:
    """How many states were left out before the step of a proof, and before the last, which nothing follows."""
    total = 0
    for step, (_, proven, lost) in enumerate(layers(program, query, longest), 1):
        if proven or step == DEPTH:
            break
        total += lost
    return total


PROVEN, INEXACT = "proofs of two steps or more", "searches that left out states"
counted = {PROVEN: 0, INEXACT: 0}


@settings(max_examples=30)
@given(match=matches(), goals=ROOMS)
def search_is_the_reference(match: Match, goals: int) -> None:
    found, program = sought(match, goals), match.program()
    for number, query in enumerate(match.queries):
        depth, certain, lost = (int(part[number]) for part in (found.depth, found.exact, found.left_out))
        same(f"steps of {query}", depth, shortest_proof(program, query, DEPTH, goals) or 0, EXACT)
        same(f"what is left out for {query}", lost, left_out(program, query, goals), EXACT)
        require(bool(certain) == (lost == 0), f"{query} is decided where nothing was left out")
        if certain:  # then no room, however large, finds another proof
            same(f"steps of {query}, in any room", depth, shortest_proof(program, query, DEPTH, DEPTH + 1) or 0, EXACT)
        counted[PROVEN] += depth > 1
        counted[INEXACT] += not certain


def test_searches_in_breadth_are_those_of_plain_python() -> None:
    search_is_the_reference()
    assert min(counted.values()) > 0, counted


@settings(max_examples=10)
@given(match=matches(), batch=st.integers(1, 9))
def test_the_batch_size_changes_nothing(match: Match, batch: int) -> None:
    one, other = sought(match, 3, batch=batch), sought(match, 3, batch=64)
    same("depth and what is left out", (one.depth, one.left_out), (other.depth, other.left_out), EXACT)


@settings(max_examples=15)
@given(match=matches())
def test_a_crowd_of_states_is_given_up_and_said(match: Match) -> None:
    few, many = sought(match, 3, most=1), sought(match, 3)
    for number, query in enumerate(match.queries):
        widest = 0
        for step, (fresh, proven, _) in enumerate(layers(match.program(), query, 3), 1):
            if proven or step == DEPTH:
                break
            widest = max(widest, len(fresh))
        if widest > 1:
            require(int(few.depth[number]) == 0, f"{query} is given up")
            require(int(few.left_out[number]) > 1, f"{query} is not decided, and its crowd is counted")
        else:
            got, wanted = ((int(one.depth[number]), bool(one.exact[number])) for one in (few, many))
            same(f"{query}, of which there is no crowd", got, wanted, EXACT)


def test_padding_has_no_proof_and_two_slots_of_the_engine_are_enough() -> None:
    game, world = borders()
    atoms = [("in", "spain", "europe"), ("in", "portugal", "europe"), ("in", "peru", "europe")]
    queries = torch.cat([torch.zeros(1, 3, dtype=torch.int64), atom_numbers(game.names, atoms)])
    asked = []

    def engine(base: Knowledge, states: Tensor, excluded: Tensor) -> Successors:
        asked.append(len(states))
        return deriver(game.names, game.widths)(base, states, excluded)

    found = shortest_proofs(game.names, world.base, game.widths, queries, depth=6, batch=2, engine=engine)
    assert found.depth.tolist() == [0, 2, 4, 0]
    assert found.exact.tolist() == [True] * 4
    assert set(asked) == {2}


@pytest.mark.parametrize(("depth", "steps"), [(0, 0), (1, 0), (2, 2), (3, 2)])
def test_no_step_is_taken_beyond_the_depth(depth: int, steps: int) -> None:
    game, world = borders()
    found = shortest_proofs(game.names, world.base, game.widths, world.queries[:1], depth=depth)
    assert found.depth.tolist() == [steps]


@pytest.mark.parametrize(
    ("goals", "successors", "rules", "depth", "lost"),
    [
        (2, 2, 2, [2, 4], [0, 0]),
        (1, 2, 2, [0, 0], [2, 2]),  # what two rules lead to has two goals
        (2, 1, 2, [2, 4], [1, 2]),  # in(_, europe) is a first goal once, and for Portugal a second time
        (2, 2, 1, [2, 4], [1, 2]),
    ],
)
def test_what_there_was_no_room_for_is_counted(
    goals: int, successors: int, rules: int, depth: list[int], lost: list[int]
) -> None:
    """The world of borders with its rule twice."""
    game, world = borders()
    heads, bodies = (torch.cat([rule[:1]] * 2) for rule in (world.base.heads, world.base.bodies))
    base = knowledge(game.names, world.base.facts[:-1], heads, bodies)
    widths = Widths(goals, successors, 1, rules)
    found = shortest_proofs(game.names, base, widths, world.queries, depth=6)
    assert (found.depth.tolist(), found.left_out.tolist()) == (depth, lost)
    assert found.exact.tolist() == [count == 0 for count in lost]
