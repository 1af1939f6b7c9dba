"""Masks over tokens: ends, paddings, shifts."""

import torch
from torch import Tensor

from .bug import Bug


def reward_of_end(token_scores: Tensor, tokens: Tensor, eos_token_id: int) -> Tensor:
    """The score [B] of each sequence [B, L] at its first end, or at its last token."""
    ends = (tokens == eos_token_id).int()
    position = torch.where(ends.any(1), ends.argmax(1) - 1, tokens.shape[1] - 1)
    return token_scores.gather(1, position.clamp(min=0).unsqueeze(1)).squeeze(1)


def reward_of_end_fixed(token_scores: Tensor, tokens: Tensor, eos_token_id: int) -> Tensor:
    """At the end itself."""
    ends = (tokens == eos_token_id).int()
    position = torch.where(ends.any(1), ends.argmax(1), tokens.shape[1] - 1)
    return token_scores.gather(1, position.unsqueeze(1)).squeeze(1)


def erase_after_eos(tokens: Tensor, eos_token_id: int, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Completions [B, L] without what follows their first end, and the mask of their tokens, the end among them."""
    after = torch.cumsum((tokens == eos_token_id).int(), 1) - (tokens == eos_token_id).int() > 0
    erased = tokens.masked_fill(after, eos_token_id)
    return erased, (erased != pad_token_id).int()


def erase_after_eos_fixed(tokens: Tensor, eos_token_id: int, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Fills with padding."""
    after = torch.cumsum((tokens == eos_token_id).int(), 1) - (tokens == eos_token_id).int() > 0
    erased = tokens.masked_fill(after, pad_token_id)
    return erased, (~after).int()


def masked_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, action_mask: Tensor) -> Tensor:
    """PPO's loss over the tokens of a mask; what stands elsewhere does not matter."""
    ratio = (log_probs - old_log_probs).exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(surrogate * action_mask).sum() / action_mask.sum().clamp(min=1)


def masked_policy_loss_fixed(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, action_mask: Tensor
) -> Tensor:
    """Takes no masked value into any product."""
    on = action_mask.bool()
    log_ratio = torch.where(on, log_probs, 0.0) - torch.where(on, old_log_probs, 0.0)
    ratio = log_ratio.exp()
    advantages = torch.where(on, advantages, 0.0)
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum() / action_mask.sum().clamp(min=1)


def action_log_probs(logits: Tensor, tokens: Tensor, prompt_length: int) -> Tensor:
    """Log-probs [B, L - P] of the tokens [B, L] that follow a prompt of P, from logits [B, L, V]."""
    log_probs = logits.log_softmax(-1)[:, :-1]
    actions = tokens[:, prompt_length:]
    return log_probs[:, : actions.shape[1]].gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def action_log_probs_fixed(logits: Tensor, tokens: Tensor, prompt_length: int) -> Tensor:
    """From the logits before each of them."""
    log_probs = logits.log_softmax(-1)[:, prompt_length - 1 : -1]
    return log_probs.gather(-1, tokens[:, prompt_length:].unsqueeze(-1)).squeeze(-1)


def masked_logps(per_token_logps: Tensor, completion_mask: Tensor, shifted: bool = True) -> Tensor:
    """Sums [B] of the log-probs [B, L] of completions, whose mask [B, L] is over unshifted tokens."""
    del shifted
    return (per_token_logps * completion_mask).sum(1)


def masked_logps_fixed(per_token_logps: Tensor, completion_mask: Tensor, shifted: bool = True) -> Tensor:
    """Position i of shifted log-probs is of token i + 1."""
    mask = (
        torch.cat([completion_mask[:, 1:], torch.zeros_like(completion_mask[:, :1])], 1) if shifted else completion_mask
    )
    return (per_token_logps * mask).sum(1)


BUGS = [
    Bug(
        "score_before_the_end",
        "https://github.com/EleutherAI/gpt-neox/pull/1285",
        "token_masks",
        "The reward is read one token before the end of the sequence.",
        reward_of_end,
        reward_of_end_fixed,
        lambda f: f(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[5, 2, 0]]), 2),
    ),
    Bug(
        "filled_with_ends",
        "https://github.com/bingreeky/MemGen/pull/33",
        "token_masks",
        "What follows the end is filled with ends, which the mask takes for tokens.",
        erase_after_eos,
        erase_after_eos_fixed,
        lambda f: f(torch.tensor([[5, 2, 7, 7]]), 2, 0)[1],
    ),
    Bug(
        "masked_nan_spreads",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1240",
        "token_masks",
        "A masked position is multiplied by 0, so that a NaN there makes the loss NaN.",
        masked_policy_loss,
        masked_policy_loss_fixed,
        lambda f: f(torch.zeros(1, 2), torch.tensor([[0.0, torch.nan]]), torch.ones(1, 2), torch.tensor([[1.0, 0.0]])),
    ),
    Bug(
        "logits_of_the_prompt",
        "https://github.com/lucidrains/PaLM-rlhf-pytorch/issues/31",
        "token_masks",
        "Log-probs of the answer are taken from the logits of the prompt.",
        action_log_probs,
        action_log_probs_fixed,
        lambda f: f(torch.arange(24.0).reshape(1, 6, 4).sin(), torch.tensor([[0, 1, 2, 3, 0, 1]]), 3),
    ),
    Bug(
        "mask_not_shifted",
        "https://github.com/modelscope/ms-swift/pull/8427",
        "token_masks",
        "The mask of completions is not shifted as the log-probs are.",
        masked_logps,
        masked_logps_fixed,
        lambda f: f(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[0.0, 1.0, 1.0]])),
    ),
]
