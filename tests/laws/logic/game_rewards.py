"""The law of the reward of a proof: it comes with the termination of an episode, by the table of reward types."""

from itertools import pairwise

import torch
from attrs import evolve
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.logic.state import Game, ProofState
from purestep.core.record import replace
from purestep.properties.framework.compare import ROUNDING, same
from purestep.properties.framework.law import Law, Mutant, Seen

from .game_strategies import END, FEW, TRUE, YES_OR_NO, Match, Moves, game_law, goals, matches, over, played


def paid_like_a_positive(moves: Moves) -> Moves:
    """Give the reward of a positive query for all queries."""

    def advance(game: Game, state: ProofState, action: Tensor) -> ProofState:
        after = moves.advance(game, replace(state, label=torch.ones_like(state.label)), action)
        return replace(after, label=state.label)

    return evolve(moves, advance=advance)


# proven positive, unproven positive, proven negative, unproven negative
TABLE = {
    0: (1.0, 0.0, 0.0, 0.0),
    1: (1.0, 0.0, -1.0, 0.0),
    2: (1.0, 0.0, 0.0, 1.0),
    3: (1.0, -0.5, -1.5, 1.0),
    4: (1.0, -1.0, -1.0, 1.0),
    5: (1.0, -1.0, -1.0, 1.0),
}


def _worth(game: Game, last: object, positive: bool) -> float:
    """The return of an episode that ended in this state."""
    kind = 2 * (not positive) + (last != TRUE)
    if kind < 3 or game.reward < 4:
        return TABLE[game.reward][kind]
    return 1.0 / max(game.negatives, 1) + (0.3 if game.reward == 5 and last == END else 0.0)


def paid() -> Law:
    """The law of rewards."""

    def check(moves: Moves, match: Match, seen: Seen) -> None:
        states = played(moves, match)
        for slot, label in enumerate(match.labels):
            total = 0.0
            for before, state in pairwise(states):
                now = over(state, slot) and not over(before, slot)
                last = goals(state.current[slot])
                if now:
                    seen(f"a {'positive' if label else 'negative'} {'' if last == TRUE else 'un'}proven")
                    seen("a negative given up", last == END and not label and match.game.reward == 5)
                    seen("a truncation", state.truncated[slot])
                wanted = _worth(match.game, last, label) if now and not state.truncated[slot] else 0.0
                total += wanted
                got = torch.stack([state.step_reward[slot], state.cumulative_reward[slot]])
                same("reward of the step and of the episode", got, torch.tensor([wanted, total]), ROUNDING)

    mutant = Mutant("pays for any proof, also of what is not true", paid_like_a_positive)
    claim = "The reward comes with termination and is that of the table: by type, label and proof; else it is 0."
    kinds = [f"a {label} {proven}" for label in ("positive", "negative") for proven in ("proven", "unproven")]
    inputs = matches(
        reward=st.sampled_from([0, 1, 2, 3, 4, 5, 5, 5]),
        negatives=st.integers(0, 3),
        end_proof=YES_OR_NO,
        max_depth=FEW,
    )
    needs = (*kinds, "a negative given up", "a truncation")
    return game_law("paid", claim, mutant, check, *needs, inputs=inputs)
