"""Policies over successors as people build them wrongly."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.distributions import Categorical, Distribution
from purestep.core.logic.terms import PADDING
from purestep.core.policy import ActorCritic
from purestep.core.record import replace

Judged = tuple[Any, Tensor, Any]


def _after(model: ActorCritic, change: Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor]]) -> ActorCritic:
    """With `change` made to logits and value, given the observation."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Distribution, Tensor, Any]:
        distribution, value, carry = model.apply(params, observation, carry)
        logits, value = change(distribution.logits, value, observation)  # type: ignore[attr-defined]
        return Categorical(logits=logits), value, carry

    return evolve(model, apply=apply)


def _before(model: ActorCritic, change: Callable[[Any], Any]) -> ActorCritic:
    """With `change` made to what it sees."""

    def apply(params: Any, observation: Any, carry: Any) -> Judged:
        return model.apply(params, change(observation), carry)

    return evolve(model, apply=apply)


def prefers_the_first(model: ActorCritic) -> ActorCritic:
    """Learns a bias for each place, so that the order of successors counts."""

    def change(logits: Tensor, value: Tensor, observation: Any) -> tuple[Tensor, Tensor]:
        return logits - 0.1 * torch.arange(logits.shape[-1]), value

    return _after(model, change)


def forgets_the_mask(model: ActorCritic) -> ActorCritic:
    """Gives places without a successor a probability too."""
    return _before(model, lambda seen: replace(seen, action_mask=torch.ones_like(seen.action_mask)))


def reads_padding(model: ActorCritic) -> ActorCritic:
    """Embeds padding as if it were an atom of the first predicate."""

    def named(atoms: Tensor) -> Tensor:
        first = atoms[..., :1]
        return torch.cat([torch.where(first == PADDING, 1, first), atoms[..., 1:]], -1)

    return _before(
        model,
        lambda seen: replace(
            seen, sub_index=named(seen.sub_index), derived_sub_indices=named(seen.derived_sub_indices)
        ),
    )


def values_what_follows(model: ActorCritic) -> ActorCritic:
    """Adds the best successor's logit to the value."""
    return _after(model, lambda logits, value, observation: (logits, value + logits.amax(-1)))


def judges_together(model: ActorCritic) -> ActorCritic:
    """Divides logits by their deviation over the whole batch, which acting and learning have of different sizes."""

    def change(logits: Tensor, value: Tensor, observation: Any) -> tuple[Tensor, Tensor]:
        legal = torch.where(observation.action_mask, logits, 0.0)
        return torch.where(observation.action_mask, logits / (1.0 + legal.abs().mean()), logits), value

    return _after(model, change)


def goals_in_order(model: ActorCritic) -> ActorCritic:
    """Reads the first goal alone."""
    return _before(
        model,
        lambda seen: replace(
            seen,
            sub_index=seen.sub_index[..., :1, :],
            derived_sub_indices=seen.derived_sub_indices[..., :1, :],
        ),
    )
