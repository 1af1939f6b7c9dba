"""A policy as the guide of a search: log-probs of the successors of a state, of any number."""

from typing import Any

import torch
from torch import Tensor

from ...core.logic.derive import front
from ...core.logic.env import ProofObservation
from ...core.logic.terms import PADDING, Vocabulary
from ...core.policy import ActorCritic
from .search import Guide, States

CELLS = 1 << 14  # successors, with padding, that the policy compares at once


def policy_guide(names: Vocabulary, model: ActorCritic, params: Any) -> Guide:
    """Return the guide of a policy over the vocabulary it was trained with.

    The policy does not get the marked query; a state in which nothing else is left is the mark of a proof. Variables beyond
    those of the vocabulary are its last one.
    """

    def guide(states: States, after: States, row: Tensor) -> Tensor:
        if not row.shape[0]:
            return row.to(torch.float64)
        here, there = (plain(names, each.goals) for each in (states, after))
        count = torch.bincount(row, minlength=here.shape[0])
        first = count.cumsum(0) - count
        order = torch.sort(count, stable=True).indices
        told = torch.zeros(row.shape[0], dtype=torch.float64, device=row.device)
        begin = int((count == 0).sum())
        while begin < order.shape[0]:
            widest = int(count[order[begin]])
            size = max(1, CELLS // max(widest, 1))
            own = order[begin : begin + size]
            own = own[count[own] <= 2 * widest]  # little padding
            places = torch.arange(int(count[own].max()), device=row.device)
            mask = places < count[own, None]
            index = torch.where(mask, first[own, None] + places, 0)
            seen = ProofObservation(sub_index=here[own], derived_sub_indices=there[index], action_mask=mask)
            with torch.no_grad():
                distribution, _, _ = model.apply(params, seen, ())
                every = torch.stack([distribution.log_prob(place.expand(own.shape)) for place in places], -1)
            told = told.index_put((index[mask],), every[mask].to(torch.float64))
            begin += own.shape[0]
        return told

    return guide


def plain(names: Vocabulary, goals: Tensor) -> Tensor:
    """Return the states without the marked query, and the mark of a proof where nothing else is left."""
    own, left = front((goals[..., 0] != PADDING) & (goals[..., 0] != names.end), goals)
    first = torch.arange(own.shape[-2] * 3, device=own.device).reshape(own.shape[-2:]) == 0
    own = torch.where((left == 0)[:, None, None], torch.where(first, names.true, PADDING), own)
    return torch.cat([own[..., :1], own[..., 1:].clamp_max(names.base - 1)], -1)
