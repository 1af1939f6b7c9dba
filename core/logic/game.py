"""The proving game: the successors of a state, and the state after a move."""

import torch
from torch import Tensor

from ..record import replace, select
from ..steps import ended
from .canonical import state_hash, variables_in
from .derive import Successors, derive, front, mark_only
from .knowledge import Knowledge
from .rewards import reward
from .state import Game, ProofState, remember_current
from .terms import PADDING


def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
    """Return the state with its successors; there are none once the episode is over.

    The successors are those of `derive`, without states seen in this episode (`memory`). States with a single successor are
    skipped, at most `skip_unary` times. With `end_proof`, the mark of an abandoned proof is added, unless the proof is decided.

    >>> from .borders import borders
    >>> from .state import first_state_of
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> state = first_state_of(game, world.queries, yes, zero, zero)
    >>> look(game, world.base, state).derived[0, 0]  # borders(spain, X), in(X, europe)
    tensor([[1, 6, 7],
            [2, 7, 2]])
    """
    state = _look(game, base, state)
    for _ in range(game.skip_unary):
        goal = state.derived[..., 0, 0, 0]
        single = (state.derived_count == 1) & (goal <= len(game.names.predicates)) & (goal != PADDING)
        moved = remember_current(game, replace(state, current=state.derived[..., 0, :, :]), single)
        state = select(single, _look(game, base, _numbered(game, moved)), state)
    return _with_end(game, state) if game.end_proof else state


def _look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
    found = derive(game.names, base, game.widths, state.current, state.original_query)
    if game.memory:
        found = _unseen(game, state, found)
    going = ~ended(state.terminated, state.truncated)
    return replace(
        state,
        derived=torch.where(going[..., None, None, None], found.states, PADDING),
        derived_count=torch.where(going, found.count, 0),
        origin=torch.where(going[..., None], found.origin, -1),
        too_long=state.too_long + torch.where(going, found.too_long, 0),
        too_many=state.too_many + torch.where(going, found.too_many, 0),
    )


def _unseen(game: Game, state: ProofState, found: Successors) -> Successors:
    """Return the successors not yet seen in the episode; the mark `false` if there are none."""
    hashes = state_hash(game.names, found.states)
    again = (hashes[..., :, None] == state.history[..., None, :]).any(-1)
    used = torch.arange(hashes.shape[-1], device=hashes.device) < found.count[..., None]
    kept = used & ~again
    states, count = front(kept, found.states)
    origin, _ = front(kept, found.origin, empty=-1)
    none = count == 0
    dead = mark_only(torch.full_like(count, game.names.false), states)
    return replace(
        found,
        states=torch.where(none[..., None, None, None], dead, states),
        count=torch.where(none, 1, count),
        origin=origin,
    )


def _with_end(game: Game, state: ProofState) -> ProofState:
    """Return the state with the successor `end` added, unless the proof is decided; it replaces the last one if full."""
    count = state.derived_count
    slots = torch.arange(state.origin.shape[-1], device=count.device)
    open_ = (count > 0) & (state.derived[..., 0, 0, 0] <= len(game.names.predicates))
    place = count.clamp_max(slots.shape[0] - 1)
    here = (slots == place[..., None]) & open_[..., None]
    end = mark_only(torch.full_like(count, game.names.end), state.derived)[..., :1, :, :]
    lost = open_ & (count == slots.shape[0])
    return replace(
        state,
        derived=torch.where(here[..., None, None], end, state.derived),
        derived_count=torch.where(open_, place + 1, count),
        origin=torch.where(here, -1, state.origin),
        too_many=state.too_many + lost.to(torch.int64),
    )


def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
    """Return the state after a move, before its successors are computed: action int64 [*], clamped to the last successor.

    A proof or a mark terminates the episode; move number `max_depth` truncates it if it has not terminated. Termination gives
    the `reward`; a truncated episode needs a bootstrap value. A finished episode is returned unchanged, with a reward of 0.

    >>> from .borders import borders
    >>> from .state import first_state_of
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> state = look(game, world.base, first_state_of(game, world.queries, yes, zero, zero))
    >>> state = look(game, world.base, advance(game, state, zero))  # nothing is chosen: one state follows
    >>> state = advance(game, state, zero)
    >>> state.success, state.step_reward  # in(france, europe) is known; in(spain, europe) is not
    (tensor([ True, False]), tensor([1., 0.]))
    """
    going = ~ended(state.terminated, state.truncated)
    taken = torch.minimum(action, state.derived_count - 1).clamp_min(0)
    index = taken[..., None, None, None].expand(*taken.shape, 1, *state.current.shape[-2:])
    chosen = state.derived.gather(-3, index)[..., 0, :, :]
    current = torch.where(going[..., None, None], chosen, state.current)
    depth = state.depth + going.to(torch.int64)
    goal = current[..., 0, 0]
    terminated = state.terminated | (goal > len(game.names.predicates)) | (goal == PADDING)
    moved = replace(
        state,
        current=current,
        depth=depth,
        terminated=terminated,
        truncated=state.truncated | (~terminated & (depth >= game.max_depth)),
        success=goal == game.names.true,
    )
    earned = torch.where(going, reward(game, moved), 0.0)
    moved = replace(moved, step_reward=earned, cumulative_reward=state.cumulative_reward + earned)
    return _numbered(game, remember_current(game, moved, going & ~terminated))


def _numbered(game: Game, state: ProofState) -> ProofState:
    used = variables_in(game.names, state.current)
    return replace(state, next_variable=len(game.names.constants) + 1 + used)
