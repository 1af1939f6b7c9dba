"""Advantages over the tokens of a conversation as people get them wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TokenGae = Callable[..., Tensor]  # (rewards, values, mask, next_value, terminated, *, gamma, lambda_)


def _given(change: Callable[..., tuple[Tensor, ...]]) -> Callable[[TokenGae], TokenGae]:
    """An edit of the arguments; the result stays masked as it was."""

    def make(subject: TokenGae) -> TokenGae:
        def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
            found = subject(*change(rewards, values, mask, *rest), **numbers)
            return torch.where(mask, found, 0.0)

        return edited

    return make


def _up_to_the_last(mask: Tensor) -> Tensor:
    return mask.flip(-1).cummax(-1).values.flip(-1) if mask.shape[-1] else mask


def _reward_moved(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    earlier = torch.nn.functional.pad(rewards, (0, 1))[..., 1:]
    return (rewards + torch.where(torch.nn.functional.pad(~mask, (0, 1))[..., 1:], earlier, 0.0), values, mask, *rest)


context_takes_time = _given(lambda r, v, mask, *rest: (r, v, _up_to_the_last(mask.to(torch.uint8)) > 0, *rest))
pays_for_context = _given(_reward_moved)
truncation_terminates = _given(lambda r, v, m, after, terminated: (r, v, m, after, torch.ones_like(terminated)))
past_termination = _given(lambda r, v, m, after, terminated: (r, v, m, after, torch.zeros_like(terminated)))
next_row = _given(lambda r, v, m, after, terminated: (r, v, m, after.roll(1), terminated))


def cut_at_turns(subject: TokenGae) -> TokenGae:
    """Begins the trace anew after each stretch of context, bootstrapping from the value behind it."""

    def edited(
        rewards: Tensor, values: Tensor, mask: Tensor, next_value: Tensor, terminated: Tensor, **numbers: Any
    ) -> Tensor:
        right = subject(rewards, values, mask, next_value, terminated, **numbers)
        one_step = subject(rewards, values, mask, next_value, terminated, **{**numbers, "lambda_": 0.0})
        before_context = mask & torch.nn.functional.pad(~mask, (0, 1))[..., 1:]
        return torch.where(before_context, one_step, right)

    return edited


def multiplies_by_mask(subject: TokenGae) -> TokenGae:
    """0 times NaN is NaN."""

    def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
        return subject(rewards, values, mask, *rest, **numbers) + 0.0 * (values * ~mask).sum(-1, keepdim=True)

    return edited


def whitened(subject: TokenGae) -> TokenGae:
    """Centres the advantages over the batch before it hands them out."""

    def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
        found = subject(rewards, values, mask, *rest, **numbers)
        return torch.where(mask, found - found.sum() / mask.sum().clamp_min(1), 0.0)

    return edited


MUTANTS: dict[str, Callable[[TokenGae], TokenGae]] = {
    "bootstraps past a termination": past_termination,
    "takes the next value of another row": next_row,
}
