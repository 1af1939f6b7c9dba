"""Laws of the proving game, checked by resolution in plain Python: the begin of an episode, its moves and its end."""

from collections.abc import Callable

import torch
from attrs import evolve
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.keys import Key
from purestep.core.logic.canonical import state_hash
from purestep.core.logic.derive import front
from purestep.core.logic.knowledge import Knowledge
from purestep.core.logic.rewards import reward
from purestep.core.logic.state import Game, ProofState, ProofWorld
from purestep.core.record import replace, take
from purestep.core.steps import ended
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite

from .game_rewards import paid
from .game_strategies import (
    END,
    FALSE,
    FEW,
    TRUE,
    YES_OR_NO,
    Match,
    Moves,
    chosen,
    game_law,
    goals,
    is_mark,
    matches,
    offered,
    over,
    played,
)
from .initial_states import shares
from .logic_strategies import WIDE
from .resolution import shortest_proof

# --- mutants ---
# Common errors in the rules of the proving game.


def excludes_nothing(moves: Moves) -> Moves:
    """Ignore the excluded atom, so that a query proves itself."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        free = replace(state, original_query=torch.zeros_like(state.original_query))
        return replace(moves.look(game, base, free), original_query=state.original_query)

    return evolve(moves, look=look)


def forgets_the_query(moves: Moves) -> Moves:
    """Leave the first state of an episode out of the history."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        later = replace(state, history=state.history.index_fill(-1, torch.tensor([0]), 0))
        return replace(moves.look(game, base, later), history=state.history)

    return evolve(moves, look=look)


def remembers_always(moves: Moves) -> Moves:
    """Leave out states seen before, whatever the game's rules are."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        return moves.look(evolve(game, memory=True), base, state)

    return evolve(moves, look=look)


def terminates_at_the_limit(moves: Moves) -> Moves:
    """Terminate an episode at the limit of moves."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        return replace(after, terminated=after.terminated | after.truncated)

    return evolve(moves, advance=advance)


def one_move_less(moves: Moves) -> Moves:
    """Truncate one move too early."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        late = ~after.terminated & (after.depth >= game.max_depth - 1)
        return replace(after, truncated=after.truncated | late)

    return evolve(moves, advance=advance)


def pays_at_the_limit(moves: Moves) -> Moves:
    """Give the reward of termination at the limit of moves, too."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        stopped = after.truncated & ~state.truncated
        earned = torch.where(stopped, reward(game, replace(after, terminated=stopped)), after.step_reward)
        return replace(after, step_reward=earned, cumulative_reward=state.cumulative_reward + earned)

    return evolve(moves, advance=advance)


def pays_again(moves: Moves) -> Moves:
    """Give the reward of a finished episode once more."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after, over = moves.advance(game, state, action), ended(state.terminated, state.truncated)
        again = torch.where(over, state.step_reward, after.step_reward)
        return replace(after, step_reward=again, cumulative_reward=state.cumulative_reward + again)

    return evolve(moves, advance=advance)


def no_end_in_a_full_row(moves: Moves) -> Moves:
    """Offer to give up only if there is room besides all other successors."""

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
    """Count skipped states as moves."""

    def look(game: Game, base: Knowledge, state: ProofState) -> ProofState:
        after = moves.look(game, base, state)
        return replace(after, depth=after.depth + after.history_count - state.history_count)

    return evolve(moves, look=look)


def ends_together(moves: Moves) -> Moves:
    """Reduce over the batch too: where one episode ends, all do."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, state, action)
        return replace(after, terminated=after.terminated | after.terminated.any())

    return evolve(moves, advance=advance)


def one_negative_less(moves: Moves) -> Moves:
    """Play one negative fewer between positives: a positive after every `negatives` episodes."""

    def begin(game: Game, world: ProofWorld, key: Key, pointer: Tensor, counter: Tensor) -> ProofState:
        return moves.begin(evolve(game, negatives=max(game.negatives - 1, 0)), world, key, pointer, counter)

    return evolve(moves, begin=begin)


def in_any_order(moves: Moves) -> Moves:
    """Treat states with the same goals in another order as the same."""

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


# --- laws ---


def game_laws() -> Suite:
    """The laws of the parts of the game: `Moves(begin, look, advance)`."""
    every = (shares(), _sound(), _memory(), _limit(), paid(), _given_up(), _passed_over(), _stays(), _alone())
    return Suite("game_laws", every)


def _sound() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        states = played(moves, match)
        for slot, query in enumerate(match.queries):
            path = [goals(state.current[slot]) for state in states if not over(state, slot)]
            last = goals(states[len(path)].current[slot]) if len(path) < len(states) else path.pop()
            for before, after in zip(path, (*path[1:], last), strict=True):
                follows = match.following(slot, before)
                allowed = after in follows or (after == END and match.game.end_proof and not is_mark(follows[0]))
                stuck = match.game.memory and after == FALSE and all(state in path for state in follows)
                require(allowed or stuck, f"{after} does not follow from {before}, of the query {query}")
            proven = last == TRUE
            same(f"whether {query} is proven", bool(states[-1].success[slot]), proven, EXACT)
            seen("a query that is a fact", query in match.question.facts)
            seen("a proof", proven)
            if proven:
                least = shortest_proof(match.program(), query, len(path), WIDE.atoms)
                require(least is not None, f"{query} has no proof of {len(path)} steps")

    mutant = Mutant("proves a query by itself", excludes_nothing)
    claim = (
        "Each state follows from the one before by resolution without the query, so that what is proven has a proof."
    )
    inputs = matches(memory=YES_OR_NO, end_proof=YES_OR_NO)
    return game_law("sound", claim, mutant, check, "a query that is a fact", "a proof", inputs=inputs)


def _memory() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        states = played(moves, match)
        for slot in range(len(match.queries)):
            path = []
            for state in states:
                if over(state, slot):
                    break
                path.append(goals(state.current[slot]))
                follows = match.following(slot, path[-1])
                again = [after for after in follows if after in path]
                seen("a state seen before, left out", again and match.game.memory)
                seen("a state seen before, offered", again and not match.game.memory)
                seen("nothing but states seen before", match.game.memory and len(again) == len(follows))
                kept = [after for after in follows if after not in again] if match.game.memory else follows
                same(f"what may follow {path[-1]}", sorted(offered(state, slot)), sorted(kept or [FALSE]), EXACT)

    mutant = Mutant("remembers the states moved to, and not the one it began with", forgets_the_query)
    claim = (
        "With memory what follows is without the episode's own states, in any names of variables; else it is all there."
    )
    needs = ("a state seen before, left out", "a state seen before, offered", "nothing but states seen before")
    return game_law("memory", claim, mutant, check, *needs, inputs=matches(memory=st.sampled_from([True, True, False])))


def _limit() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        most, states = match.game.max_depth, played(moves, match)
        for slot in range(len(match.queries)):
            for number, state in enumerate(states):
                before = [is_mark(goals(earlier.current[slot])) for earlier in states[:number]]
                made = min(before.index(True) if any(before) else number, most)
                final = is_mark(goals(state.current[slot]))
                where = f"slot {slot} after {number} steps"
                same(f"{where}: moves", int(state.depth[slot]), made, EXACT)
                same(f"{where}: terminated", bool(state.terminated[slot]), final, EXACT)
                same(f"{where}: truncated", bool(state.truncated[slot]), made == most and not final, EXACT)
                seen("a truncation", made == most and not final)
                seen("a mark at the very limit", made == most and final and not any(before))

    mutant = Mutant("takes the limit of moves for an end of the world", terminates_at_the_limit)
    claim = (
        "Marks terminate; move number max_depth truncates, no earlier one does, and what terminates is not truncated."
    )
    return game_law(
        "limit", claim, mutant, check, "a truncation", "a mark at the very limit", inputs=matches(max_depth=FEW)
    )


def _given_up() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        base = match.question.base()
        for state in played(moves, match):
            plain = moves.look(evolve(match.game, end_proof=False), base, state)
            ending = moves.look(match.game, base, state)
            for slot in range(len(match.queries)):
                rest, room = offered(plain, slot), match.game.widths.successors
                open_ = bool(rest) and not is_mark(rest[0])
                lost = open_ and len(rest) == room
                seen("a row with room", open_ and not lost)
                seen("a full row", lost)
                seen("a decided proof", rest and not open_)
                wanted = [*rest[: room - 1], END] if open_ else rest
                same("what may follow", offered(ending, slot), wanted, EXACT)
                counted = int(ending.too_many[slot] - plain.too_many[slot])
                same("successors that gave way", counted, int(lost), EXACT)
                origins = plain.origin[slot].tolist()
                own = [*origins[: len(wanted) - 1], -1] if open_ else origins[: len(wanted)]
                same("their origins", ending.origin[slot, : len(wanted)].tolist(), own, EXACT)

    mutant = Mutant("offers to give up only where there is room", no_end_in_a_full_row)
    claim = (
        "A proof can be given up exactly where it is not decided; in a full row instead of the last successor, counted."
    )
    inputs = matches(
        end_proof=st.just(True),
        widths=st.sampled_from([1, 2, 3, WIDE.successors]).map(lambda room: evolve(WIDE, successors=room)),
    )
    return game_law("given_up", claim, mutant, check, "a row with room", "a full row", "a decided proof", inputs=inputs)


def _passed_over() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        base, room = match.question.base(), match.game.history()
        single = evolve(match.game, skip_unary=0, max_depth=room - 1)  # remembers as many states
        looked = match.begun()
        for numbers in match.moves:
            state = moves.look(match.game, base, looked)
            for slot in range(len(match.queries)):
                at, skipped = take(looked, slice(slot, slot + 1)), 0
                step = moves.look(single, base, at)
                while skipped < match.game.skip_unary and len(rest := offered(step, 0)) == 1 and not is_mark(rest[0]):
                    step = moves.look(single, base, moves.advance(single, step, torch.zeros_like(step.depth)))
                    skipped += 1
                seen("a state passed over", skipped == 1)
                seen("two in a row", skipped > 1)
                wanted = replace(step, depth=at.depth, step_reward=at.step_reward)
                same(f"slot {slot} after {skipped} states", take(state, slice(slot, slot + 1)), wanted, EXACT)
            looked = moves.advance(match.game, state, chosen(state, numbers))

    mutant = Mutant("counts states passed over as moves", counts_what_it_skips)
    claim = "Passing over states that one follows gives what single moves give, history included, and counts no move."
    inputs = matches(skip_unary=FEW, memory=YES_OR_NO, end_proof=st.just(False), max_depth=FEW)
    return game_law("passed_over", claim, mutant, check, "a state passed over", "two in a row", inputs=inputs)


def _stays() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        final, base = played(moves, match)[-1], match.question.base()
        gone = ended(final.terminated, final.truncated)
        seen("an episode that is over", gone.any())
        seen("a proof", final.success.any())
        after = moves.look(match.game, base, moves.advance(match.game, final, torch.zeros_like(final.depth)))
        resting = replace(final, step_reward=torch.zeros_like(final.step_reward))
        same("an episode that is over, a move later", take(after, gone), take(resting, gone), EXACT)
        same("what may follow it", after.derived_count[gone], torch.zeros_like(after.depth[gone]), EXACT)
        same("the successors", after.derived[gone], torch.zeros_like(after.derived[gone]), EXACT)

    mutant = Mutant("pays the reward of an episode that is over once more", pays_again)
    claim = "An episode that is over stays as it is: nothing follows, and a move earns nothing."
    needs = ("an episode that is over", "a proof")
    return game_law("stays", claim, mutant, check, *needs, inputs=matches(max_depth=FEW, end_proof=YES_OR_NO))


def _alone() -> Law:
    def check(moves: Moves, match: Match, seen: Seen) -> None:
        states = played(moves, match)
        seen("an episode over beside one that goes on", any(_mixed(state) for state in states))
        base = match.question.base()
        for slot in range(len(match.queries)):
            alone = moves.look(match.game, base, take(match.begun(), slot))
            same(f"slot {slot} at first", take(states[0], slot), alone, EXACT)
            for number, state in enumerate(states[1:]):
                action = chosen(states[number], match.moves[number])[slot]
                alone = moves.look(match.game, base, moves.advance(match.game, alone, action))
                same(f"slot {slot} after {number + 1} steps", take(state, slot), alone, EXACT)

    mutant = Mutant("ends all episodes where one ends", ends_together)
    claim = "An episode in a batch is the one that it is alone."
    need = "an episode over beside one that goes on"
    inputs = matches(skip_unary=st.integers(0, 1), end_proof=YES_OR_NO, max_depth=FEW)
    return game_law("alone", claim, mutant, check, need, inputs=inputs)


def _mixed(state: ProofState) -> bool:
    gone = ended(state.terminated, state.truncated)
    return bool(gone.any() & ~gone.all())
