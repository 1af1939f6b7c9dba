"""Laws of many proofs in few slots: the slot and the time of a candidate do not change its result."""

from collections.abc import Callable
from typing import Any, Protocol, get_args

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.logic.env import observe
from purestep.core.logic.game import advance, look
from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.state import Game, first_state_of
from purestep.core.logic.terms import PADDING
from purestep.core.policy import ActorCritic
from purestep.core.record import replace, take
from purestep.core.steps import ended
from purestep.core.tree import leaf_names, leaves
from purestep.properties.framework.compare import EXACT, bits_of, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.logic.recycle import IDLE, Feeding, FinishedProofs, Play, Slots, empty_proof_slots

from .game_strategies import Match, matches
from .logic_strategies import NAMES
from .resolution import Atom
from .table_policy import table_policy

# --- mutants ---
# Common errors in running many proofs in few slots.


class MakePlay(Protocol):
    """The type of functions that make a `Play`, which plays some steps."""

    def __call__(self, game: Game, model: ActorCritic, steps: int, *, feeding: Feeding = "recycled") -> Play:
        """Return a function (params, base, slots, feed, first) -> (slots, finished, taken)."""
        ...


class ProveAll(Protocol):
    """The type of functions that play until every query has finished."""

    def __call__(
        self, run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int
    ) -> FinishedProofs:
        """Return the results of all queries."""
        ...


@frozen
class Recycling:
    """The subject: functions that play candidates in slots, and return the results of all queries."""

    play: MakePlay
    proven_all: ProveAll


Run = tuple[Slots, FinishedProofs, Tensor]


def _around(recycling: Recycling, change: Callable[[Run, Any, Slots], Run]) -> Recycling:
    """Return the subject with `change` applied to the result of each call, given (result, params, slots before)."""

    def play(game: Game, model: ActorCritic, steps: int, *, feeding: Feeding = "recycled") -> Play:
        inner = recycling.play(game, model, steps, feeding=feeding)

        def run(params: Any, base: Knowledge, slots: Slots, feed: Tensor, first: Tensor) -> Run:
            return change(inner(params, base, slots, feed, first), params, slots)

        return run

    return evolve(recycling, play=play)


def keeps_the_score(recycling: Recycling) -> Recycling:
    """Add the score of a finished candidate to that of the next one in its slot."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        score = torch.where(told.number == IDLE, 0.0, told.score.cumsum(0))
        return slots, replace(told, score=score), taken

    return _around(recycling, change)


def idle_is_the_first(recycling: Recycling) -> Recycling:
    """Report the result of an idle slot for the first query."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        return slots, replace(told, number=torch.where(told.number == IDLE, 0, told.number)), taken

    return _around(recycling, change)


def forgets_who_plays_on(recycling: Recycling) -> Recycling:
    """Reset the scores of unfinished candidates at the end of each call."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        return replace(slots, score=torch.zeros_like(slots.score)), told, taken

    return _around(recycling, change)


def in_order_of_finishing(recycling: Recycling) -> Recycling:
    """Return results in the order in which proofs ended."""

    def proven_all(
        run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int
    ) -> FinishedProofs:
        told = recycling.proven_all(run, params, base, slots, queries, feed=feed)
        order = torch.sort(told.depth, stable=True).indices
        parts = {name: getattr(told, name)[order] for name in ("proven", "score", "depth", "too_long", "too_many")}
        return replace(told, **parts)

    return evolve(recycling, proven_all=proven_all)


def padding_is_a_query(recycling: Recycling) -> Recycling:
    """Report padding as a query that was not proven."""

    def proven_all(
        run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int
    ) -> FinishedProofs:
        told = recycling.proven_all(run, params, base, slots, queries, feed=feed)
        return replace(told, number=torch.arange(queries.shape[0]))

    return evolve(recycling, proven_all=proven_all)


def trains_meanwhile(recycling: Recycling) -> Recycling:
    """Write to the params in each call."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        params.add_(0)
        return result

    return _around(recycling, change)


MUTANTS: dict[str, Callable[[Recycling], Recycling]] = {
    "what is under way when a call ends goes on without its score": forgets_who_plays_on,
}


# --- laws ---


SOURCE = "runtime.logic.recycle: what play and proven_all promise"
VOID: Atom = (PADDING, PADDING, PADDING)


@frozen
class Room:
    """The numbers of slots, of steps per call and of rows per feed, and the kind of feeding."""

    slots: int
    steps: int
    feed: int
    feeding: Feeding


@frozen
class Exam:
    """Queries of one program, and a policy of integers that tries to prove them."""

    match: Match
    padding: tuple[bool, ...]  # instead of which query
    order: tuple[int, ...]  # another order of the queries
    rooms: tuple[Room, Room]
    seed: int

    def queries(self) -> Tensor:
        """[N, 3]"""
        pairs = zip(self.match.queries, self.padding, strict=True)
        return torch.tensor([VOID if padding else query for query, padding in pairs])

    def params(self) -> Tensor:
        """The parameters of the policy."""
        params: Tensor = table_policy(NAMES).init(keys.key(self.seed))
        return params


Check = Callable[[Recycling, Exam, Seen], None]


def rooms() -> SearchStrategy[Room]:
    """Draw one or more slots and steps; few rows at a time leave slots without a candidate."""
    slots, steps, feed = st.sampled_from([1, 2, 3, 8]), st.sampled_from([1, 3, 6]), st.sampled_from([2, 6, 9])
    return st.builds(Room, slots, steps, feed, st.sampled_from(get_args(Feeding)))


def exams() -> SearchStrategy[Exam]:
    """Six queries, some of them padding."""
    count = 6
    padding = st.lists(st.sampled_from([False, False, False, True]), min_size=count, max_size=count).map(tuple)
    order = st.permutations(range(count)).map(tuple)
    games = matches(max_depth=st.integers(2, 3), skip_unary=st.sampled_from([0, 0, 1]), memory=st.booleans())
    return st.builds(Exam, games, padding, order, st.tuples(rooms(), rooms()), st.integers(0, 1000))


def recycle_laws() -> Suite:
    """The laws of `Recycling(play, proven_all)`."""
    return Suite("recycle_laws", (_one_by_one(), _any_room(), _any_order(), _padding(), _untouched()))


_law = law_constructor(exams, SOURCE, most=200)


def _finished(recycling: Recycling, exam: Exam, room: Room, queries: Tensor) -> FinishedProofs:
    game, base = exam.match.game, exam.match.question.base()
    run = recycling.play(game, table_policy(NAMES), room.steps, feeding=room.feeding)
    begun = empty_proof_slots(game, room.slots)
    return recycling.proven_all(run, exam.params(), base, begun, queries, feed=room.feed)


def _by_itself(exam: Exam, query: Tensor) -> FinishedProofs:
    """The result of one query, played without slots."""
    game, base, model = exam.match.game, exam.match.question.base(), table_policy(NAMES)
    zero, yes, score = torch.tensor(0), torch.tensor(True), torch.tensor(0.0)
    state = look(game, base, first_state_of(game, query, yes, zero, zero))
    while not ended(state.terminated, state.truncated):
        distribution, _, _ = model.apply(exam.params(), observe(state), ())
        action = distribution.mode()
        score = score + distribution.log_prob(action)
        state = look(game, base, advance(game, state, action))
    lost = {"too_long": state.too_long, "too_many": state.too_many}
    return FinishedProofs(number=zero, proven=state.success, score=score, depth=state.depth, **lost)


def _one_by_one() -> Law:
    def check(recycling: Recycling, exam: Exam, seen: Seen) -> None:
        queries = exam.queries()
        told = _finished(recycling, exam, exam.rooms[0], queries)
        for number, query in enumerate(queries):
            if query[0] != PADDING:
                alone = _by_itself(exam, query)
                seen("a proof", alone.proven)
                seen("several moves", alone.depth > 1)
                same(f"query {number}", take(told, number), replace(alone, number=torch.tensor(number)), EXACT)

    mutant = Mutant("a slot that has finished keeps its old score", keeps_the_score)
    claim = "What becomes of a query is what becomes of it alone: proof, moves, the sum of their log-probs, states left out."
    return _law("one_by_one", claim, mutant, check, "a proof", "several moves")


def _any_room() -> Law:
    def check(recycling: Recycling, exam: Exam, seen: Seen) -> None:
        one, other = (_finished(recycling, exam, room, exam.queries()) for room in exam.rooms)
        seen("fewer slots than queries", exam.rooms[0].slots < len(exam.padding))
        seen("more moves than a call has steps", (one.depth > exam.rooms[0].steps).any())
        seen("one that waits and one that does not", exam.rooms[0].feeding != exam.rooms[1].feeding)
        same(f"in {exam.rooms[0]}, against {exam.rooms[1]}", one, other, EXACT)

    mutant = Mutant("gives what idle slots report to the first query", idle_is_the_first)
    claim = "The number of slots, the steps and rows at a time, and whether slots are recycled, change no bit."
    needs = ("fewer slots than queries", "more moves than a call has steps", "one that waits and one that does not")
    return _law("any_room", claim, mutant, check, *needs)


def _any_order() -> Law:
    def check(recycling: Recycling, exam: Exam, seen: Seen) -> None:
        order, queries = torch.tensor(exam.order), exam.queries()
        one = _finished(recycling, exam, exam.rooms[0], queries)
        other = _finished(recycling, exam, exam.rooms[1], queries[order])
        seen("results that differ", (one.depth[:-1] != one.depth[1:]).any())
        place = torch.where(other.number == IDLE, IDLE, torch.arange(len(order)))
        same("numbers in another order", other.number, place, EXACT)
        none = torch.zeros_like(place)
        same("in another order", replace(other, number=none), replace(take(one, order), number=none), EXACT)

    mutant = Mutant("gives results in the order in which proofs ended", in_order_of_finishing)
    claim = "Queries in another order have their results in that order."
    return _law("any_order", claim, mutant, check, "results that differ")


def _padding() -> Law:
    def check(recycling: Recycling, exam: Exam, seen: Seen) -> None:
        empty = torch.tensor(exam.padding)
        told = _finished(recycling, exam, exam.rooms[0], exam.queries())
        whole = evolve(exam, padding=(False,) * len(exam.padding))
        full = _finished(recycling, whole, exam.rooms[1], whole.queries())
        seen("padding", empty.any())
        same("beside padding", take(told, ~empty), take(full, ~empty), EXACT)
        wanted = torch.arange(len(empty))
        same("numbers", told.number, torch.where(empty, IDLE, wanted), EXACT)
        scores = torch.stack([told.score, told.depth, told.too_long, told.too_many, told.proven])[:, empty]
        same("of padding", scores, torch.zeros_like(scores), EXACT)

    mutant = Mutant("reports padding as a query not proven", padding_is_a_query)
    claim = "Padding among the queries has no number and no score, and changes nothing about the others."
    return _law("padding", claim, mutant, check, "padding")


def _untouched() -> Law:
    def check(recycling: Recycling, exam: Exam, seen: Seen) -> None:
        game, room = exam.match.game, exam.rooms[0]
        run = recycling.play(game, table_policy(NAMES), room.steps, feeding=room.feeding)
        given: Any = (exam.params(), exam.match.question.base(), empty_proof_slots(game, room.slots), exam.queries())
        before = [(leaf._version, leaf.clone()) for leaf in leaves(given)]
        recycling.proven_all(run, *given, feed=room.feed)
        seen("several calls", len(exam.queries()) > room.feed)
        for name, leaf, (version, old) in zip(leaf_names(given), leaves(given), before, strict=True):
            same(f"{name} afterwards", bits_of(leaf), bits_of(old), EXACT)
            require(leaf._version == version, f"{name} was written to")

    mutant = Mutant("writes to the params, with the value they had", trains_meanwhile)
    claim = "Params, knowledge base, slots and queries stay as they were, bits and versions."
    return _law("untouched", claim, mutant, check, "several calls")
