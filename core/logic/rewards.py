"""Rewards of terminated proofs, by the label of the query."""

import torch
from torch import Tensor

from .state import Game, ProofState

# reward type: proven positive, unproven positive, proven negative, unproven negative
REWARDS: tuple[tuple[float, float, float, float], ...] = (
    (1.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, -1.0, 0.0),
    (1.0, 0.0, 0.0, 1.0),
    (1.0, -0.5, -1.5, 1.0),
    (1.0, -1.0, -1.0, 1.0),
    (1.0, -1.0, -1.0, 1.0),
)
GIVEN_UP = 0.3  # reward type 5: bonus for a negative that the policy itself abandoned


def reward(game: Game, state: ProofState) -> Tensor:
    """Return the reward of the state if the episode has terminated in it, else 0: [*].

    A truncated episode gets no reward: its value is bootstrapped, so a reward would be counted twice.

    >>> from ..record import replace
    >>> from .borders import borders
    >>> from .state import first_state_of
    >>> game, world = borders(reward=3)
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> state = first_state_of(game, world.queries, torch.tensor([True, False]), zero, zero)
    >>> reward(game, replace(state, terminated=yes)), reward(game, replace(state, terminated=yes, success=yes))
    (tensor([-0.5000,  1.0000]), tensor([ 1.0000, -1.5000]))
    """
    proven, refuted, fooled, rejected = REWARDS[game.reward]
    weight = 1.0 / max(game.negatives, 1) if game.reward >= 4 else 1.0
    given_up = state.current[..., 0, 0] == game.names.end
    doubted = rejected * weight + torch.where(given_up, GIVEN_UP if game.reward == 5 else 0.0, 0.0)
    positive = torch.where(state.success, proven, refuted)
    negative = torch.where(state.success, fooled, doubted)
    return torch.where(state.terminated, torch.where(state.label, positive, negative), 0.0)
