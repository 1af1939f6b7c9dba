"""Decoupled losses as people get them wrong: each an edit of what is right."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.algorithms.token_losses import token_clip


@attrs.frozen
class Anchoring:
    """What the laws of decoupled losses judge."""

    decoupled_clip: Callable[..., Tensor]  # (log_prob, proximal, behaviour, advantage, mask, *, clip)
    interpolation: Callable[[Tensor, int], Tensor]  # (version, current)
    interpolated: Callable[..., Tensor]  # (log_prob, behaviour, share, mask, *, form)


def _clip(change: Callable[..., Tensor]) -> Callable[[Anchoring], Anchoring]:
    def make(subject: Anchoring) -> Anchoring:
        def edited(*given: Tensor, **numbers: Any) -> Tensor:
            return change(subject.decoupled_clip, *given, **numbers)

        return attrs.evolve(subject, decoupled_clip=edited)

    return make


def _share(change: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Anchoring], Anchoring]:
    def make(subject: Anchoring) -> Anchoring:
        return attrs.evolve(
            subject,
            interpolation=lambda version, current: change(subject.interpolation(version, current), version, current),
        )

    return make


clips_against_behaviour = _clip(lambda right, p, q, b, a, mask, **numbers: right(p, b, b, a, mask, **numbers))
unweighted = _clip(lambda right, p, q, b, a, mask, **numbers: right(p, q, q, a, mask, **numbers))
inverse_weight = _clip(
    lambda right, p, q, b, a, mask, **numbers: (
        torch.where(mask, torch.exp(b - q), 0.0) * token_clip(p, q, a, mask, **numbers)
    )
)
masks_afterwards = _clip(
    lambda right, p, q, b, a, mask, **numbers: right(p, q, b, a, torch.ones_like(mask), **numbers) * mask
)
live_weight = _clip(
    lambda right, p, q, b, a, mask, **numbers: torch.exp(p - p.detach()) * right(p, q, b, a, mask, **numbers)
)
one_more = _share(lambda share, version, current: (1 / (2 - share)).to(share.dtype))
forgets_version_0 = _share(lambda share, version, current: torch.where(version > 0, share, 0.0))


def live_anchor(subject: Anchoring) -> Anchoring:
    """Lets a gradient into the proximal policy."""

    def edited(log_prob: Tensor, *given: Tensor, **named: Any) -> Tensor:
        return subject.interpolated(log_prob, *given, **named) + (log_prob - log_prob.detach())

    return attrs.evolve(subject, interpolated=edited)


def the_other_end(subject: Anchoring) -> Anchoring:
    """Takes the share from the wrong end."""

    def edited(log_prob: Tensor, behaviour: Tensor, share: Tensor, mask: Tensor, **named: Any) -> Tensor:
        return subject.interpolated(log_prob, behaviour, 1 - share, mask, **named)

    return attrs.evolve(subject, interpolated=edited)


MUTANTS: dict[str, Callable[[Anchoring], Anchoring]] = {
    "weighs by the inverse": inverse_weight,
    "clips against what sampled": clips_against_behaviour,
    "takes version 0 for none": forgets_version_0,
}
