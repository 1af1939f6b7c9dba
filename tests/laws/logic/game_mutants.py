"""The proving game as people play it by wrong rules."""

from collections.abc import Callable

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.keys import Key
from purestep.core.logic.canonical import state_hash
from purestep.core.logic.derive import front
from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.rewards import reward
from purestep.core.logic.state import Game, ProofState, ProofWorld
from purestep.core.record import replace
from purestep.core.steps import ended

from .game_strategies import Moves


def excludes_nothing(moves: Moves) -> Moves:
    """Proves a query by itself."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        free = replace(state, original_query=torch.zeros_like(state.original_query))
        return replace(moves.look(game, base, free), original_query=state.original_query)

    return evolve(moves, look=look)


def forgets_the_query(moves: Moves) -> Moves:
    """Remembers the states moved to, and not the one an episode began with."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        later = replace(state, history=state.history.index_fill(-1, torch.tensor([0]), 0))
        return replace(moves.look(game, base, later), history=state.history)

    return evolve(moves, look=look)


def remembers_always(moves: Moves) -> Moves:
    """Leaves out states seen before, whatever the rules say."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        return moves.look(evolve(game, memory=True), base, state)

    return evolve(moves, look=look)


def terminates_at_the_limit(moves: Moves) -> Moves:
    """Takes the limit of moves for an end of the world."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        return replace(after, terminated=after.terminated | after.truncated)

    return evolve(moves, advance=advance)


def one_move_less(moves: Moves) -> Moves:
    """Truncates one move too early."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        late = ~after.terminated & (after.depth >= game.max_depth - 1)
        return replace(after, truncated=after.truncated | late)

    return evolve(moves, advance=advance)


def pays_at_the_limit(moves: Moves) -> Moves:
    """Pays where moves have run out, too."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        stopped = after.truncated & ~state.truncated
        earned = torch.where(stopped, reward(game, replace(after, terminated=stopped)), after.step_reward)
        return replace(after, step_reward=earned, cumulative_reward=state.cumulative_reward + earned)

    return evolve(moves, advance=advance)


def pays_again(moves: Moves) -> Moves:
    """Pays the reward of an episode that is over once more."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after, over = moves.advance(game, state, action), ended(state.terminated, state.truncated)
        again = torch.where(over, state.step_reward, after.step_reward)
        return replace(after, step_reward=again, cumulative_reward=state.cumulative_reward + again)

    return evolve(moves, advance=advance)


def no_end_in_a_full_row(moves: Moves) -> Moves:
    """Offers to give up only where there is room beside all other successors."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        plain = moves.look(evolve(game, end_proof=False), base, state)
        full = plain.derived_count == game.widths.successors
        ending = moves.look(game, base, state)
        return replace(
            ending,
            derived=torch.where(full[..., None, None, None], plain.derived, ending.derived),
            origin=torch.where(full[..., None], plain.origin, ending.origin),
            too_many=torch.where(full, plain.too_many, ending.too_many),
        )

    return evolve(moves, look=look)


def counts_what_it_skips(moves: Moves) -> Moves:
    """Counts states passed over as moves."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        after = moves.look(game, base, state)
        return replace(after, depth=after.depth + after.history_count - state.history_count)

    return evolve(moves, look=look)


def ends_together(moves: Moves) -> Moves:
    """Reduces over the batch too: where one episode ends, all do."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        return replace(after, terminated=after.terminated | after.terminated.any())

    return evolve(moves, advance=advance)


def one_negative_less(moves: Moves) -> Moves:
    """Plays a positive after every `negatives` episodes, not after so many negatives."""

    def begin(game: Game, world: ProofWorld, key: Key, pointer: Tensor, counter: Tensor) -> ProofState:
        return moves.begin(evolve(game, negatives=max(game.negatives - 1, 0)), world, key, pointer, counter)

    return evolve(moves, begin=begin)


def in_any_order(moves: Moves) -> Moves:
    """Takes two states with the same goals in another order for one."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        found = moves.look(evolve(game, memory=False), base, state)
        if not game.memory:
            return found
        again = _hashed(game, found.derived)[..., None] == _hashed(game, state.current)[..., None, None]
        used = torch.arange(found.origin.shape[-1]) < found.derived_count[..., None]
        derived, count = front(used & ~again.any(-1), found.derived)
        return replace(found, derived=derived, derived_count=count)

    return evolve(moves, look=look)


def _hashed(game: Game, states: Tensor) -> Tensor:
    return state_hash(game.names, states[..., None, :]).sum(-1)


MUTANTS: dict[str, Callable[[Moves], Moves]] = {
    "leaves out states seen before, whatever the rules say": remembers_always,
    "truncates one move too early": one_move_less,
    "pays where moves have run out, too": pays_at_the_limit,
    "pays the reward of an episode that is over once more": pays_again,
    "plays a positive after every `negatives` episodes": one_negative_less,
    "takes the same goals in another order for one state": in_any_order,
}
