"""Policy losses as people get them wrong, each the reference with one edit."""

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

Loss = Callable[..., Tensor]


@attrs.frozen
class Batch:
    """What a policy loss takes: [*] each, and the clip."""

    log_prob: Tensor
    behaviour_log_prob: Tensor
    advantage: Tensor
    clip: float


def reference(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """max(-A r, -A clip(r)): the definition."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    scale = -advantage.detach()
    return torch.maximum(scale * ratio, scale * ratio.clamp(1 - clip, 1 + clip))


def reduced(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Takes the mean at the end."""
    return reference(log_prob, behaviour_log_prob, advantage, clip=clip).mean()


def ignores_bad_actions(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Learns from success alone."""
    return reference(log_prob, behaviour_log_prob, advantage, clip=clip) * (advantage > 0)


def log_prob_for_ratio(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Has the right gradient on policy, and the value of another loss."""
    surrogate = reference(log_prob, behaviour_log_prob, advantage, clip=clip)
    return surrogate + advantage.detach() * (1 - log_prob.detach())


def optimistic(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """min where max belongs: the sign of the loss was turned, the minimum was not."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    scale = -advantage.detach()
    return torch.minimum(scale * ratio, scale * ratio.clamp(1 - clip, 1 + clip))


def clips_both_sides(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Forgets the unclipped half."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    return -advantage.detach() * ratio.clamp(1 - clip, 1 + clip)


def ratio_to_itself(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Stands on the policy it is, not on the one that acted."""
    return reference(log_prob, log_prob.detach(), advantage, clip=clip)


def live_advantage(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Lets the value network learn from the policy's loss."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))


def centred(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Normalises inside the loss."""
    return reference(log_prob, behaviour_log_prob, advantage - advantage.mean(), clip=clip)


def shifted(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Is off by one between tokens and their log-probs."""
    return reference(log_prob, behaviour_log_prob.roll(1, -1), advantage, clip=clip)


def detached(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """A straight-through estimate: right value, right on policy, wrong slope elsewhere."""
    value = reference(log_prob, behaviour_log_prob, advantage, clip=clip).detach()
    through = -advantage.detach() * (log_prob - log_prob.detach())
    return value + through


def squared_ratio(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Weighs by importance what is a ratio already."""
    ratio = torch.exp(log_prob - behaviour_log_prob).detach()
    return ratio * reference(log_prob, behaviour_log_prob, advantage, clip=clip)


MUTANTS: dict[str, Loss] = {"weighs the clipped loss by the ratio once more": squared_ratio}
