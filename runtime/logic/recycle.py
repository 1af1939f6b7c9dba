"""Proofs of many candidates in a fixed number of slots: a slot whose proof has finished takes the next candidate at once."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ...core.errors import choose
from ...core.logic.env import observe
from ...core.logic.game import advance, look
from ...core.logic.knowledge import Knowledge
from ...core.logic.state import Game, ProofState, first_state_of
from ...core.policy import ActorCritic
from ...core.record import record, select, tensor
from ...core.scan import scan
from ...core.steps import ended
from ...core.tree import tree_map

IDLE = -1
Feeding = Literal["recycled", "batches"]


@record
class Slots:
    """Proofs under way. Leading axis: slots [B]."""

    state: ProofState
    number: Tensor = tensor("* B", "int")  # of its candidate; IDLE where a slot has none
    score: Tensor = tensor("* B", "float")  # log-probs of the moves so far, summed


@record
class FinishedProofs:
    """Results of candidates. Leading axes: steps and slots [T, B], or candidates [N]."""

    number: Tensor = tensor("*", "int")  # of the candidate; IDLE where a slot finished none
    proven: Tensor = tensor("*", "bool")
    score: Tensor = tensor("*", "float")
    depth: Tensor = tensor("*", "int")  # moves made
    too_long: Tensor = tensor("*", "int")  # successors left out, see `Successors`
    too_many: Tensor = tensor("*", "int")


Play = Callable[[Any, Knowledge, Slots, Tensor, Tensor], tuple[Slots, FinishedProofs, Tensor]]


def empty_proof_slots(game: Game, count: int, device: torch.device | None = None) -> Slots:
    """Return this number of slots without a candidate."""
    zero = torch.zeros(count, dtype=torch.int64, device=device)
    label = torch.zeros(count, dtype=torch.bool, device=device)
    query = torch.zeros(count, 3, dtype=torch.int64, device=device)
    state = first_state_of(game, query, label, zero, zero.clone())
    return Slots(state=state, number=torch.full_like(zero, IDLE), score=torch.zeros(count, device=device))


def play(game: Game, model: ActorCritic, steps: int, *, feeding: Feeding = "recycled") -> Play:
    """Return a function (params, base, slots [B], feed [F, 3], first) -> (slots, Finished [T, B], taken) of `steps` steps.

    In each step every slot moves to its policy's most probable successor. A slot without a candidate first takes the next
    row of `feed`, whose rows are candidates number `first`, `first` + 1, ...; a row of padding and rows after the last one
    are no candidates. `taken` counts the rows used. With feeding "batches", slots take candidates in the first step only, so
    that a batch waits for its longest proof. Of a training run only `params` is read, and nothing is written.
    Raises: ChoiceError.
    """
    always = choose("play: feeding", feeding, {"recycled": True, "batches": False})

    def run(
        params: Any, base: Knowledge, slots: Slots, feed: Tensor, first: Tensor
    ) -> tuple[Slots, FinishedProofs, Tensor]:
        def step(carry: tuple[Slots, Tensor], tick: Tensor) -> tuple[tuple[Slots, Tensor], FinishedProofs]:
            slots, taken = carry
            free = slots.number == IDLE
            slots, taken = _filled(game, base, slots, free if always else free & (tick == 0), feed, first, taken)
            distribution, _, _ = model.apply(params, observe(slots.state), ())
            action = distribution.mode()
            state = advance(game, slots.state, action)
            score = slots.score + torch.where(slots.number == IDLE, 0.0, distribution.log_prob(action))
            over = ended(state.terminated, state.truncated) & (slots.number != IDLE)
            told = FinishedProofs(
                number=torch.where(over, slots.number, IDLE),
                proven=state.success & over,
                score=torch.where(over, score, 0.0),
                depth=torch.where(over, state.depth, 0),
                too_long=torch.where(over, state.too_long, 0),
                too_many=torch.where(over, state.too_many, 0),
            )
            after = Slots(state=state, number=torch.where(over, IDLE, slots.number), score=score)
            return (after, taken), told

        ticks = torch.arange(steps, device=feed.device)
        one = FinishedProofs(number=first, proven=first, score=first, depth=first, too_long=first, too_many=first)
        (slots, taken), finished = scan(step, (slots, torch.zeros_like(first)), ticks, output=one)
        return slots, finished, taken

    return run


def _filled(
    game: Game, base: Knowledge, slots: Slots, free: Tensor, feed: Tensor, first: Tensor, taken: Tensor
) -> tuple[Slots, Tensor]:
    """Return the slots, free ones with the next candidates of the feed, all with their successors; and the rows used so far."""
    row = taken + free.to(torch.int64).cumsum(-1) - 1
    there = free & (row < feed.shape[0])
    query = torch.where(there[..., None], feed[row.clamp(0, feed.shape[0] - 1)], 0)
    real = there & (query[..., 0] != 0)
    fresh = first_state_of(game, query, torch.ones_like(real), torch.zeros_like(row), torch.zeros_like(row))
    state = look(game, base, select(free, fresh, slots.state))
    after = Slots(
        state=state,
        number=torch.where(real, first + row, torch.where(free, IDLE, slots.number)),
        score=torch.where(free, 0.0, slots.score),
    )
    return after, taken + there.sum()


def proven_all(run: Play, params: Any, base: Knowledge, slots: Slots, queries: Tensor, *, feed: int) -> FinishedProofs:
    """Return the result of each query: [N, 3] -> Finished [N], in the order of the queries.

    `run` is called with `feed` rows at a time, padded after the last query, until every query has finished, so that one
    program serves any number of queries. Padding among the queries keeps number IDLE.
    """
    count = queries.shape[0]
    padded = torch.cat([queries, queries.new_zeros(feed, 3)])
    # A spare last row receives the reports of slots that have finished nothing.
    results = FinishedProofs(
        number=torch.full((count + 1,), IDLE, device=queries.device),
        proven=torch.zeros(count + 1, dtype=torch.bool, device=queries.device),
        score=torch.zeros(count + 1, device=queries.device),
        depth=torch.zeros(count + 1, dtype=torch.int64, device=queries.device),
        too_long=torch.zeros(count + 1, dtype=torch.int64, device=queries.device),
        too_many=torch.zeros(count + 1, dtype=torch.int64, device=queries.device),
    )
    begun = 0
    while begun < count or bool((slots.number != IDLE).any()):
        first = torch.tensor(begun, device=queries.device)
        slots, told, taken = run(params, base, slots, padded[begun : begun + feed].clone(), first)
        place = torch.where(told.number == IDLE, count, told.number).flatten()
        results = _put(results, place, told)
        begun = min(begun + int(taken), count)
    return tree_map(lambda leaf: leaf[:count], results)


def _put(results: FinishedProofs, place: Tensor, told: FinishedProofs) -> FinishedProofs:
    return tree_map(lambda before, new: before.index_copy(0, place, new.flatten()), results, told)
