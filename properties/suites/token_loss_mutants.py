"""Losses of tokens as people get them wrong: each an edit of f(log_prob, behaviour_log_prob, advantage, mask) -> [N, L]."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...algorithms.masking import mean_of_tokens

TokenLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Edit = Callable[[TokenLoss], TokenLoss]


def dual_step(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The dual clip of one step, by cases: clip 0.25, c 2."""
    ratio = torch.exp(log_prob - behaviour_log_prob)
    good, bad = ratio.clamp(max=1.25), ratio.clamp(min=0.75, max=2.0)
    return -advantage * torch.where(advantage > 0, good, bad)


def cispo_step(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """REINFORCE under a ratio kept between 0.5 and 2, of one step."""
    weight = (log_prob - behaviour_log_prob).detach().exp().clamp(0.5, 2.0)
    return -weight * advantage * log_prob


def reduced(loss: TokenLoss) -> TokenLoss:
    """Gives every token its sequence's sum."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask).sum(-1, keepdim=True).expand(mask.shape)
    )


def only_good(loss: TokenLoss) -> TokenLoss:
    """Learns from success alone."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, behaviour, advantage, mask) * (advantage > 0)


def live_advantage(loss: TokenLoss) -> TokenLoss:
    """Lets the critic learn from the policy's loss."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask) + torch.where(mask, advantage - advantage.detach(), 0.0)
    )


def live_behaviour(loss: TokenLoss) -> TokenLoss:
    """Moves the policy that acted."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask) + torch.where(mask, behaviour - behaviour.detach(), 0.0)
    )


def masks_afterwards(loss: TokenLoss) -> TokenLoss:
    """Hides the value of a padded token, not its gradient."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        ratio = torch.exp(log_prob - behaviour)
        return loss(log_prob, behaviour, advantage, mask) + torch.where(mask, 0.0, ratio * 0.0)

    return wrong


def mean_of_nothing(loss: TokenLoss) -> TokenLoss:
    """Divides by the length of a sequence that has none."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        length = mask.sum(-1, keepdim=True)
        return loss(log_prob, behaviour, advantage, mask) * (length / length)

    return wrong


def batch_ratio(loss: TokenLoss) -> TokenLoss:
    """Takes the batch for one long sequence."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        quiet = torch.where(mask, behaviour - log_prob, 0.0)
        shift = (quiet.sum() / mask.sum().clamp(min=1)).detach()
        return loss(log_prob, torch.where(mask, behaviour + shift, 0.0), advantage, mask)

    return wrong


def shifted(loss: TokenLoss) -> TokenLoss:
    """Is off by one between tokens and their log-probs."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, behaviour.roll(1, -1), advantage, mask)


def ratio_to_itself(loss: TokenLoss) -> TokenLoss:
    """Stands on the policy it is, not on the one that acted."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, log_prob.detach(), advantage, mask)


def sequence_for_token(loss: TokenLoss) -> TokenLoss:
    """Takes the ratio of the sequence for that of each token."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        mean = mean_of_tokens(log_prob - behaviour, mask)[..., None]
        return loss(log_prob, torch.where(mask, log_prob.detach() - mean.detach(), 0.0), advantage, mask)

    return wrong


def unnormalised(loss: TokenLoss) -> TokenLoss:
    """Takes the product of a sequence's ratios, which grows with its length."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        length = mask.sum(-1, keepdim=True)
        difference = (log_prob - behaviour).detach() * (length - 1)
        return loss(log_prob, torch.where(mask, behaviour - difference, 0.0), advantage, mask)

    return wrong


def ignores_behaviour(loss: TokenLoss) -> TokenLoss:
    """Weighs by the probability, not by the ratio."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, torch.zeros_like(behaviour), advantage, mask)


def by_place(loss: TokenLoss) -> TokenLoss:
    """Discounts a bandit's tokens as if they were steps."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return loss(log_prob, behaviour, advantage * 0.5 ** torch.arange(mask.shape[-1]), mask)

    return wrong


MUTANTS: dict[str, Edit] = {
    "forgets to detach the behaviour log-prob": live_behaviour,
    "gives up the ratio": ignores_behaviour,
    "shifts the behaviour log-probs by one token": shifted,
}
