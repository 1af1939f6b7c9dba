"""Laws of per-token losses (L1, L5, L6, S7): f(log_prob, behaviour_log_prob, advantage, mask), each [N, L], returns [N, L]."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ....algorithms.language.masking import mean_of_tokens
from ...framework.compare import ROUNDING, require, same
from ...framework.law import Law, Seen, Suite, law_constructor
from ..loss import PADDING, PPO, Batch, map_batch
from .masked_loss import Padded, draw_padded_rows

# --- mutants ---
# Common errors in per-token losses: each an edit of f(log_prob, behaviour_log_prob, advantage, mask) -> [N, L].


TokenLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Edit = Callable[[TokenLoss], TokenLoss]


def dual_step(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The dual-clip loss of one step, by cases: clip 0.25, c 2."""
    ratio = torch.exp(log_prob - behaviour_log_prob)
    good, bad = ratio.clamp(max=1.25), ratio.clamp(min=0.75, max=2.0)
    return -advantage * torch.where(advantage > 0, good, bad)


def cispo_step(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The CISPO loss of one step: REINFORCE weighted by the detached ratio, clamped to [0.5, 2]."""
    weight = (log_prob - behaviour_log_prob).detach().exp().clamp(0.5, 2.0)
    return -weight * advantage * log_prob


def reduced(loss: TokenLoss) -> TokenLoss:
    """Return the sum over its sequence for every token."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask).sum(-1, keepdim=True).expand(mask.shape)
    )


def only_good(loss: TokenLoss) -> TokenLoss:
    """Set the loss of tokens with a negative advantage to 0."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, behaviour, advantage, mask) * (advantage > 0)


def advantage_gradient(loss: TokenLoss) -> TokenLoss:
    """Add a gradient with respect to the advantage."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask) + torch.where(mask, advantage - advantage.detach(), 0.0)
    )


def live_behaviour(loss: TokenLoss) -> TokenLoss:
    """Add a gradient with respect to the behaviour log-prob."""
    return lambda log_prob, behaviour, advantage, mask: (
        loss(log_prob, behaviour, advantage, mask) + torch.where(mask, behaviour - behaviour.detach(), 0.0)
    )


def masks_afterwards(loss: TokenLoss) -> TokenLoss:
    """Mask the value of a padded token, but not its gradient."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        ratio = torch.exp(log_prob - behaviour)
        return loss(log_prob, behaviour, advantage, mask) + torch.where(mask, 0.0, ratio * 0.0)

    return wrong


def mean_of_nothing(loss: TokenLoss) -> TokenLoss:
    """Divide by the length of each sequence, which may be 0."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        length = mask.sum(-1, keepdim=True)
        return loss(log_prob, behaviour, advantage, mask) * (length / length)

    return wrong


def batch_ratio(loss: TokenLoss) -> TokenLoss:
    """Shift the ratios by the mean log-ratio of the whole batch."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        quiet = torch.where(mask, behaviour - log_prob, 0.0)
        shift = (quiet.sum() / mask.sum().clamp(min=1)).detach()
        return loss(log_prob, torch.where(mask, behaviour + shift, 0.0), advantage, mask)

    return wrong


def shifted_tokens(loss: TokenLoss) -> TokenLoss:
    """Shift the behaviour log-probs by one token against the log-probs."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, behaviour.roll(1, -1), advantage, mask)


def ratio_to_itself(loss: TokenLoss) -> TokenLoss:
    """Take the ratio to the current policy, not to the behaviour policy."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, log_prob.detach(), advantage, mask)


def sequence_for_token(loss: TokenLoss) -> TokenLoss:
    """Use the ratio of the sequence for each of its tokens."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        mean = mean_of_tokens(log_prob - behaviour, mask)[..., None]
        return loss(log_prob, torch.where(mask, log_prob.detach() - mean.detach(), 0.0), advantage, mask)

    return wrong


def unnormalised(loss: TokenLoss) -> TokenLoss:
    """Scale the log-ratio by the sequence length, as in the product of a sequence's ratios."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        length = mask.sum(-1, keepdim=True)
        difference = (log_prob - behaviour).detach() * (length - 1)
        return loss(log_prob, torch.where(mask, behaviour - difference, 0.0), advantage, mask)

    return wrong


def ignores_behaviour(loss: TokenLoss) -> TokenLoss:
    """Weight by the probability, not by the ratio."""
    return lambda log_prob, behaviour, advantage, mask: loss(log_prob, torch.zeros_like(behaviour), advantage, mask)


def by_position(loss: TokenLoss) -> TokenLoss:
    """Discount the advantage by the position of the token."""

    def wrong(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return loss(log_prob, behaviour, advantage * 0.5 ** torch.arange(mask.shape[-1]), mask)

    return wrong


MUTANTS: dict[str, Edit] = {
    "forgets to detach the behaviour log-prob": live_behaviour,
    "gives up the ratio": ignores_behaviour,
    "shifts the behaviour log-probs by one token": shifted_tokens,
}


# --- laws ---


Single = Callable[[Tensor, Tensor, Tensor], Tensor]  # log_prob, behaviour_log_prob, advantage [*] -> [*]


def token_loss_laws(single: Single, *, level: str = "token") -> Suite:
    """The laws of a per-token loss. `single` is the same loss for a single token.

    With `level` "token" every token has its own ratio; with "sequence" the ratio of a sequence is exp of the mean of its
    tokens' log-ratios.
    """
    laws = (_per_token(), _on_policy(), _constants(), _padding(), _nothing(), _sequences(), _turned(), _alone(single))
    return Suite("token_loss_laws", (*laws, _of_sequences(single) if level == "sequence" else _of_tokens(single)))


_law = law_constructor(draw_padded_rows, PPO, numeric=True)


def _ask(loss: TokenLoss, batch: Batch, mask: Tensor) -> Tensor:
    return loss(batch.log_prob, batch.behaviour_log_prob, batch.advantage, mask)


def _both(loss: TokenLoss, batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The losses and the gradient of their sum, each [N, L]."""
    leaf = batch.log_prob.detach().clone().requires_grad_()
    value = loss(leaf, batch.behaviour_log_prob, batch.advantage, mask)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def _one_advantage(batch: Batch) -> Batch:
    """The batch with the first advantage of each sequence at all of its tokens."""
    return attrs.evolve(batch, advantage=batch.advantage[:, :1].expand(batch.advantage.shape).clone())


def _per_token() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        got = _ask(loss, drawn.batch, drawn.mask)
        seen("padding", (~drawn.mask & drawn.mask.any(-1, keepdim=True)).any())
        require(got.shape == drawn.mask.shape, f"got {list(got.shape)}, wanted {list(drawn.mask.shape)}")
        require(not bool(got[~drawn.mask].any()), "a padded token has a loss")

    claim = "One number a token, 0 in the padding; reducing is left to others."
    return _law("per_token", claim, ("gives each token the sum of its sequence", reduced), check, "padding")


def _on_policy() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        batch = _one_advantage(attrs.evolve(drawn.batch, behaviour_log_prob=drawn.batch.log_prob.clone()))
        seen("a bad action", (batch.advantage < 0)[drawn.mask].any())
        wanted = torch.where(drawn.mask, -batch.advantage, 0.0)
        same("the gradient at ratio 1", _both(loss, batch, drawn.mask)[1], wanted, ROUNDING)

    claim = "At ratio 1 the gradient is REINFORCE's: -A at every token that counts."
    mutant = ("drops tokens of negative advantage", only_good)
    return _law("on_policy_gradient", claim, mutant, check, "a bad action", source="Williams 1992")


def _constants() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        seen("a token", drawn.mask.any())
        batch = map_batch(drawn.batch, lambda x: x.clone().requires_grad_())
        value = _ask(loss, batch, drawn.mask).sum()
        leaves = {"behaviour_log_prob": batch.behaviour_log_prob, "advantage": batch.advantage}
        slopes = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        for name, slope in zip(leaves, slopes, strict=True):
            require(not bool(slope.any()), f"the gradient with respect to {name} is {slope.tolist()}, wanted 0")

    claim = "No gradient flows into advantages and behaviour log-probs."
    return _law("constants", claim, ("forgets to detach the advantage", advantage_gradient), check, "a token")


def _padding() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        seen("padding beside tokens", (~drawn.mask).any() & drawn.mask.any())
        wanted = _both(loss, drawn.batch, drawn.mask)
        poisoned = map_batch(drawn.batch, lambda x: torch.where(drawn.mask, x, drawn.poison))
        same(f"(losses, gradient) with padding of {drawn.poison}", _both(loss, poisoned, drawn.mask), wanted)

    claim = "Whatever stands in the padding, NaN and infinity included, losses and gradient keep their bits."
    mutant = ("masks the ratio after it was made", masks_afterwards)
    return _law("padding_is_nothing", claim, mutant, check, "padding beside tokens", source=PADDING)


def _nothing() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        leaf = drawn.batch.log_prob.clone().requires_grad_()
        value = _ask(loss, attrs.evolve(drawn.batch, log_prob=leaf), torch.zeros_like(drawn.mask))
        same("the losses of nothing", value, torch.zeros_like(value))
        require(value.requires_grad, "the losses of nothing have no graph behind them")
        same("their gradient", torch.autograd.grad(value.sum(), leaf)[0], torch.zeros_like(leaf))

    claim = "A batch in which no token counts has losses and gradients of 0, never NaN, and a graph."
    mutant = ("divides by a length of 0", mean_of_nothing)
    return _law("nothing", claim, mutant, check, source="verl 785, prime-rl 1961")


def _sequences() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        seen("several sequences", drawn.mask.any(-1).sum() > 1)
        wanted = _both(loss, drawn.batch, drawn.mask)
        for i in range(len(drawn.mask)):
            alone = map_batch(drawn.batch, lambda x, i=i: x[i : i + 1])  # type: ignore[misc]
            got = _both(loss, alone, drawn.mask[i : i + 1])
            same(f"sequence {i} alone", got, (wanted[0][i : i + 1], wanted[1][i : i + 1]), ROUNDING)

    claim = "A sequence's losses and gradient do not depend on the others in the batch."
    mutant = ("takes the ratio against the mean of the batch", batch_ratio)
    return _law("sequences_alone", claim, mutant, check, "several sequences", source="derived")


def _turned() -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        mask = torch.ones_like(drawn.mask)
        seen("several tokens", mask.shape[1] > 1)
        value, slope = _both(loss, drawn.batch, mask)
        got = _both(loss, map_batch(drawn.batch, lambda x: x.flip(-1)), mask)
        same("tokens in reverse", got, (value.flip(-1), slope.flip(-1)), ROUNDING)

    claim = "Another order of a sequence's tokens gives the same losses in that order."
    mutant = ("discounts by the place of a token", by_position)
    return _law("tokens_permute", claim, mutant, check, "several tokens", source="derived")


def _pair(single: Single, batch: Batch) -> tuple[Tensor, Tensor]:
    leaf = batch.log_prob.clone().requires_grad_()
    value = single(leaf, batch.behaviour_log_prob, batch.advantage)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def _alone(single: Single) -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        batch = map_batch(drawn.batch, lambda x: x.reshape(-1, 1))
        seen("an off-policy token", (batch.log_prob != batch.behaviour_log_prob).any())
        mask = torch.ones_like(batch.log_prob, dtype=torch.bool)
        same("(losses, gradient) at length 1", _both(loss, batch, mask), _pair(single, batch), ROUNDING)

    claim = "A sequence of one token has the loss and gradient of a single step."
    mutant = ("takes the ratio to its own detached log-prob", ratio_to_itself)
    return _law("length_one", claim, mutant, check, "an off-policy token", source="Zheng et al. 2025, arXiv:2507.18071")


def _of_tokens(single: Single) -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        seen("several tokens of a sequence", (drawn.mask.sum(-1) > 1).any())
        value, slope = _pair(single, drawn.batch)
        wanted = torch.where(drawn.mask, value, 0.0), torch.where(drawn.mask, slope, 0.0)
        same("(losses, gradient)", _both(loss, drawn.batch, drawn.mask), wanted, ROUNDING)

    claim = "Each token has the loss and gradient of a single step, whatever stands beside it."
    mutant = ("takes the ratio of the sequence", sequence_for_token)
    return _law("ratio_of_tokens", claim, mutant, check, "several tokens of a sequence")


def _of_sequences(single: Single) -> Law:
    def check(loss: TokenLoss, drawn: Padded, seen: Seen) -> None:
        batch = _one_advantage(drawn.batch)
        seen("several tokens of a sequence", (drawn.mask.sum(-1) > 1).any())

        def wanted(log_prob: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
            means = mean_of_tokens(log_prob, drawn.mask), mean_of_tokens(behaviour, drawn.mask)
            return torch.where(drawn.mask, single(*means, advantage[:, 0])[:, None], 0.0)

        same("(losses, gradient)", _both(loss, batch, drawn.mask), _pair(wanted, batch), ROUNDING)

    claim = (
        "Each token has the loss of one step whose log-probs are the means over its sequence, and the sum its gradient."
    )
    mutant = ("takes the product of ratios, not their mean", unnormalised)
    needs, source = "several tokens of a sequence", "Zheng et al. 2025, arXiv:2507.18071, equation 7"
    return _law("ratio_of_sequences", claim, mutant, check, needs, source=source)


def as_token_loss(function: Callable[..., Tensor], **named: Any) -> TokenLoss:
    """Return a loss with its further arguments filled in, in the form that the laws take."""

    def loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return function(log_prob, behaviour_log_prob, advantage, mask, **named)

    return loss
