"""Many proofs in few slots, as people mix them up."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.state import Game
from purestep.core.policy import ActorCritic
from purestep.core.record import replace
from purestep.runtime.logic.recycle import IDLE, Feeding, Finished, Play, Slots


class MakePlay(Protocol):
    """What makes the function that plays some steps."""

    def __call__(self, game: Game, model: ActorCritic, steps: int, *, feeding: Feeding = "recycled") -> Play:
        """A function (params, base, slots, feed, first) -> (slots, finished, taken)."""
        ...


class ProveAll(Protocol):
    """What plays until every query has finished."""

    def __call__(
        self, run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int
    ) -> Finished:
        """What becomes of each query."""
        ...


@frozen
class Recycling:
    """How candidates are put into slots, and what they came to taken out."""

    play: MakePlay
    proven_all: ProveAll


Run = tuple[Slots, Finished, Tensor]


def _around(recycling: Recycling, change: Callable[[Run, Any, Slots], Run]) -> Recycling:
    """With `change` made to what each call of the program gives, of (result, params, slots before)."""

    def play(game: Game, model: ActorCritic, steps: int, *, feeding: Feeding = "recycled") -> Play:
        inner = recycling.play(game, model, steps, feeding=feeding)

        def run(params: Any, base: Knowledge, slots: Slots, feed: Tensor, first: Tensor) -> Run:
            return change(inner(params, base, slots, feed, first), params, slots)

        return run

    return evolve(recycling, play=play)


def keeps_the_score(recycling: Recycling) -> Recycling:
    """A slot that has finished adds the next candidate's score to the old one."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        score = torch.where(told.number == IDLE, 0.0, told.score.cumsum(0))
        return slots, replace(told, score=score), taken

    return _around(recycling, change)


def idle_is_the_first(recycling: Recycling) -> Recycling:
    """What slots report that have finished nothing goes to the first query."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        return slots, replace(told, number=torch.where(told.number == IDLE, 0, told.number)), taken

    return _around(recycling, change)


def forgets_who_plays_on(recycling: Recycling) -> Recycling:
    """What is under way when a call ends begins the next call without its score."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        slots, told, taken = result
        return replace(slots, score=torch.zeros_like(slots.score)), told, taken

    return _around(recycling, change)


def in_order_of_finishing(recycling: Recycling) -> Recycling:
    """Gives results in the order in which proofs ended."""

    def proven_all(run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int) -> Finished:
        told = recycling.proven_all(run, params, base, slots, queries, feed=feed)
        order = torch.sort(told.depth, stable=True).indices
        parts = {name: getattr(told, name)[order] for name in ("proven", "score", "depth", "too_long", "too_many")}
        return replace(told, **parts)

    return evolve(recycling, proven_all=proven_all)


def padding_is_a_query(recycling: Recycling) -> Recycling:
    """Reports padding as a query that was not proven."""

    def proven_all(run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int) -> Finished:
        told = recycling.proven_all(run, params, base, slots, queries, feed=feed)
        return replace(told, number=torch.arange(queries.shape[0]))

    return evolve(recycling, proven_all=proven_all)


def trains_meanwhile(recycling: Recycling) -> Recycling:
    """Counts its calls in the params."""

    def change(result: Run, params: Any, before: Slots) -> Run:
        params.add_(0)
        return result

    return _around(recycling, change)


MUTANTS: dict[str, Callable[[Recycling], Recycling]] = {
    "what is under way when a call ends goes on without its score": forgets_who_plays_on,
}
