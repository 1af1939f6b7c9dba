"""The law of an episode's query: from the pool in its order, or a negative with the given frequency, and then never true."""

from typing import Literal

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.corrupt import HEAD, TAIL, domains, known_atoms
from purestep.core.logic.knowledge import knowledge
from purestep.core.logic.state import Game, ProofState, ProofWorld
from purestep.core.record import replace
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, always

from .corrupt import replaced
from .game_strategies import Moves
from .logic_strategies import NAMES, WIDE
from .resolution import Atom


def failed_draws_are_false(moves: Moves) -> Moves:
    """Label a query as false even if no negative was found: a reward for failing to prove a true one."""

    def begin(game: Game, world: ProofWorld, key: Key, pointer: Tensor, counter: Tensor) -> ProofState:
        state = moves.begin(game, world, key, pointer, counter)
        return replace(state, label=counter % (game.negatives + 1) == 0)

    return evolve(moves, begin=begin)


SOURCE = "core.logic.env: what begin promises"
EPISODES = 24
FREE: tuple[Atom, ...] = ((1, 1, 2), (1, 3, 4))  # of a predicate without any other known atom
FULL: tuple[Atom, ...] = ((2, 1, 2), (2, 5, 6))  # of one whose atoms are all known: nothing can be made false
EVERYONE = range(1, len(NAMES.constants) + 1)
SIDES = {"head": (HEAD,), "tail": (TAIL,), "both": (HEAD, TAIL)}


@frozen
class Beginnings:
    """Episodes that begin one after the other."""

    queries: tuple[Atom, ...]
    negatives: int
    argument: Literal["head", "tail", "both"]
    order: Literal["random", "in_turn"]
    first: int  # pointer and counter of the first episode
    seed: int

    def game(self) -> Game:
        """The rules."""
        return Game(names=NAMES, widths=WIDE, negatives=self.negatives, argument=self.argument, order=self.order)

    def world(self) -> ProofWorld:
        """The pool, and the known atoms."""
        known = [*self.queries, *((2, a, b) for a in EVERYONE for b in EVERYONE)]
        none = torch.zeros(0, 3, dtype=torch.int64)
        return ProofWorld(
            base=knowledge(NAMES, none, none, none[:, None]),
            queries=torch.tensor(self.queries),
            within=domains(NAMES),
            known=known_atoms(NAMES, torch.tensor(known)),
        )

    def false(self, positive: Atom) -> set[Atom]:
        """The negatives of a query."""
        sides = SIDES[self.argument] if positive in FREE else ()
        every = {replaced(positive, side, constant) for side in sides for constant in EVERYONE}
        return every - set(self.queries)


def beginnings() -> SearchStrategy[Beginnings]:
    """Draw pools in which some queries have negatives and others have none."""
    pools = st.lists(st.sampled_from([*FREE, *FULL]), min_size=1, max_size=4, unique=True).map(tuple)
    sides, orders = st.sampled_from(sorted(SIDES)), st.sampled_from(["random", "in_turn"])
    numbers = st.integers(0, 3), st.integers(0, 9), st.integers(0, 1000)
    negatives, first, seed = numbers
    return st.builds(Beginnings, pools, negatives, sides, orders, first, seed)


def shares() -> Law:
    """The law of queries and negatives."""

    def check(moves: Moves, drawn: Beginnings, seen: Seen) -> None:
        places = drawn.first + torch.arange(EPISODES)
        each = keys.split(keys.key(drawn.seed), EPISODES)
        state = moves.begin(drawn.game(), drawn.world(), each, places, places)
        asked: list[Atom] = [(p, a, b) for p, a, b in state.original_query.tolist()]
        same("pointers and counters", (state.pointer, state.negative_counter), (places, places), EXACT)
        for place, query, label in zip(places.tolist(), asked, state.label.tolist(), strict=True):
            turn = drawn.queries[place % len(drawn.queries)]
            pool = (turn,) if drawn.order == "in_turn" else drawn.queries
            mine = [one for one in pool if query == one or query in drawn.false(one)]
            require(mine, f"{query} is neither of the pool {pool} nor made of it")
            wanted = place % (drawn.negatives + 1) != 0
            seen("a negative", not label)
            seen("a positive in its turn", label and not wanted)
            seen("a negative that cannot be made", label and wanted)
            could = any(drawn.false(one) for one in mine)
            same(f"whether {query} is true, in turn {place}", label, not (wanted and could), EXACT)
            same(f"whether {query} is of the pool", query in pool, label, EXACT)

    mutant = Mutant("calls a query false that it could not make false", failed_draws_are_false)
    claim = (
        "Of negatives + 1 episodes all but one are false; where nothing false can be made the query stays, and is true."
    )
    needs = ("a negative", "a positive in its turn", "a negative that cannot be made")
    return Law(
        name="shares",
        claim=claim,
        source=SOURCE,
        inputs=always(beginnings()),
        check=check,
        mutant=mutant,
        needs=needs,
    )
