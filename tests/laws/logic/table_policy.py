"""A policy of integers: weights, choices and sums have the same bits in any batch and any lowering.

Laws about the slots in which proofs are played need a policy without rounding.
"""

from typing import Any

import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.canonical import state_hash
from purestep.core.logic.terms import Vocabulary
from purestep.core.policy import ActorCritic
from purestep.core.record import record, tensor

WEIGHTS = 16  # 0 where no action is, 1 .. WEIGHTS elsewhere


@record
class Weighted:
    """An action is as probable as its weight; for its log-prob stands the weight less the largest possible."""

    weights: Tensor = tensor("* A", "int")

    def log_prob(self, action: Tensor) -> Tensor:
        """A number from -WEIGHTS to 0: int64 [*] -> float [*]."""
        return (self.weights.gather(-1, action[..., None])[..., 0] - WEIGHTS).to(torch.float32)

    def entropy(self) -> Tensor:
        """The number of actions to choose from: [*]."""
        return (self.weights > 0).sum(-1).to(torch.float32)

    def mode(self) -> Tensor:
        """The first action of the largest weight: int64 [*]."""
        return self.weights.argmax(-1)

    def noise(self, key: Key) -> Tensor:
        """One word of 32 bits for each action: [*, 2] -> int64 [*]."""
        return keys.bits(key)

    def transform(self, noise: Tensor) -> Tensor:
        """The action whose slice of all weights holds the word: int64 [*] -> [*]."""
        total = self.weights.cumsum(-1)
        beyond = (total << 32) > (noise * total[..., -1])[..., None]
        return beyond.to(torch.int64).argmax(-1)

    def sample(self, key: Key) -> Tensor:
        """An action: [*, 2] -> int64 [*]."""
        return self.transform(self.noise(key))


def table_policy(names: Vocabulary, seed: int = 0) -> ActorCritic:
    """A policy for `ProofObservation` that weighs successors by their hashes, and values a state likewise; no two seeds agree.

    Its params, int64 [1], are mixed into the hashes.
    """

    def init(key: Key) -> Tensor:
        return keys.bits(keys.fold_in(key, seed), (1,))

    def numbers(params: Tensor, atoms: Tensor) -> Tensor:
        mixed = torch.cat([atoms, params.expand(*atoms.shape[:-2], 1, 3)], -2)
        return state_hash(names, mixed) % WEIGHTS

    def apply(params: Tensor, observation: Any, carry: Any) -> tuple[Weighted, Tensor, Any]:
        weights = torch.where(observation.action_mask, 1 + numbers(params, observation.derived_sub_indices), 0)
        return Weighted(weights=weights), numbers(params, observation.sub_index).to(torch.float32), carry

    return ActorCritic(init=init, apply=apply)
