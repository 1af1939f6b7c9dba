"""The loss of a language model's update, for a batch or parts of it, from log-probs; usable by another trainer.

    L = reduce(w_i (w_t l_t + beta k_t - eta H_t)) + c mean over tokens of w_i (v_t - G_t)^2 / 2

l_t is the objective's loss against the proximal policy, w_t its importance weight against the sampler (`correction`), w_i
the sample's weight, k_t a divergence from a reference, H_t an entropy. Every part is divided by counts of the whole batch, so
that losses, gradients and metrics of parts add up: see `aggregate`.
"""

import math
from collections.abc import Callable

import torch
from attrs import frozen
from torch import Tensor

from ...core.language.types import Counts, TokenBatch
from ...core.record import record, tensor
from ...core.tree import tree_map
from ..aggregate import divided, token_mean, token_sum
from ..decoupled import interpolated
from ..hyperparameters import Number
from ..kl import Estimator, k3, token_kl
from ..losses import clipped, squared
from .masking import neutral, spread_over_tokens
from .scoring import Scores

TokenLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (log_prob, proximal, advantage, mask) -> [N, L]
Reduction = Callable[[Tensor, Tensor, Counts], Tensor]  # (loss [N, L], mask, counts of the whole) -> []
Weights = Callable[[Tensor, Tensor, Tensor], Tensor]  # (log_prob, sampler_log_prob, mask) -> [N, L]
Outside = Callable[[Tensor, Tensor], Tensor]  # (log_ratio [N, L], mask) -> bool [N, L]


def everywhere(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Return False for every token: the clip bounds of a loss without a clip. [*, L], bool [*, L] -> bool [*, L].

    >>> everywhere(torch.tensor([9.0]), torch.tensor([True]))
    tensor([False])
    """
    return torch.zeros_like(mask)


@frozen(kw_only=True)
class Terms:
    """The terms of a loss; by default the policy loss, and the value loss if there is a critic."""

    loss: TokenLoss
    reduce: Reduction
    outside: Outside = everywhere  # the tokens whose ratios are outside the clip
    correction: Weights | tuple[()] = ()  # against the sampler
    kl_coefficient: Number = 0.0  # of the divergence from the reference, in the loss
    kl_estimator: Estimator = k3
    entropy_coefficient: Number = 0.0
    value_coefficient: Number = 0.5
    value_clip: Number = math.inf


@record
class Sums:
    """The contribution of a part of a batch to the metrics of the whole. `combined` adds two."""

    loss: Tensor = tensor("*", "float")  # already divided, like the next two
    policy_loss: Tensor = tensor("*", "float")
    value_loss: Tensor = tensor("*", "float")
    tokens: Tensor = tensor("*", "float")  # number of tokens in the sums below
    entropy: Tensor = tensor("*", "float")
    kl: Tensor = tensor("*", "float")  # from the reference
    approximate_kl: Tensor = tensor("*", "float")  # between proximal and current policy, by k3
    outside: Tensor = tensor("*", "float")
    weight: Tensor = tensor("*", "float")  # against the sampler
    weight_squared: Tensor = tensor("*", "float")
    difference: Tensor = tensor("*", "float")  # the largest |log-prob - sampler's log-prob|
    outside_support: Tensor = tensor("*", "float")  # tokens that the policy's own nucleus leaves out


FIGURES = (
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "approximate_kl",
    "clip_fraction",
    "effective_fraction",
    "log_prob_difference",
    "outside_support",
)


def language_loss(terms: Terms, scores: Scores, batch: TokenBatch, counts: Counts) -> tuple[Tensor, Sums]:
    """Return the loss [] of a batch, or of a part of one, and its contribution to the metrics.

    `counts` are those of the whole batch. Values outside the mask do not change a bit of the loss or its gradient.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> from functools import partial
    >>> from .token_losses import token_clip
    >>> mask, zero = torch.tensor([[False, True]]), torch.zeros(1, 2)
    >>> batch = TokenBatch(token=mask.long(), sampled=mask, mask=mask, behaviour_log_prob=zero, proximal_log_prob=zero,
    ...                    temperature=zero + 1, advantage=zero + 2, weight=torch.ones(1), length=torch.tensor([2]))
    >>> terms = Terms(loss=partial(token_clip, clip=0.2), reduce=lambda loss, mask, counts: loss.sum() / counts.tokens)
    >>> one = Counts(tokens=torch.tensor(1), sequences=torch.tensor(1))
    >>> language_loss(terms, Scores(log_prob=zero, entropy=zero), batch, one)[0]
    tensor(-2.)
    """
    mask = batch.mask
    anchor = proximal(scores.log_prob, batch)
    loss = terms.loss(scores.log_prob, anchor, batch.advantage, mask)
    weight = mask.to(loss.dtype) if isinstance(terms.correction, tuple) else _corrected(terms, anchor, batch)
    sample = spread_over_tokens(batch.weight, mask)
    divergence = _divergence(terms, scores, batch)
    regular = sample * (
        terms.kl_coefficient * divergence - terms.entropy_coefficient * neutral(mask, scores.entropy)[0]
    )
    policy_loss = terms.reduce(sample * weight * loss, mask, counts)
    value_loss = _value_loss(terms, scores, batch, sample, counts)
    total = policy_loss + terms.reduce(regular, mask, counts) + terms.value_coefficient * value_loss
    figures = (total, policy_loss, value_loss, divergence, weight)
    return total, _sums(terms, scores, batch, anchor, tree_map(torch.detach, figures))


def proximal(log_prob: Tensor, batch: TokenBatch) -> Tensor:
    """Return the proximal log-probs, a constant: the batch's column, interpolated towards `log_prob` by its share, if any.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> from .batch import token_batch
    >>> batch = token_batch(empty(2, 1, id=torch.tensor([0])))
    >>> half = replace(batch, mask=torch.tensor([[False, True]]), share=torch.full((1, 2), 0.5))
    >>> proximal(torch.tensor([[-1.0, -1.0]]), batch), proximal(torch.tensor([[-1.0, -1.0]]), half)
    (tensor([[0., 0.]]), tensor([[ 0.0000, -0.5000]]))
    """
    if isinstance(batch.share, tuple):
        return batch.proximal_log_prob
    return interpolated(log_prob, batch.proximal_log_prob, batch.share, batch.mask)


def _corrected(terms: Terms, anchor: Tensor, batch: TokenBatch) -> Tensor:
    return terms.correction(anchor, batch.behaviour_log_prob, batch.mask)  # type: ignore[operator]


def _divergence(terms: Terms, scores: Scores, batch: TokenBatch) -> Tensor:
    if isinstance(batch.reference_log_prob, tuple):
        return torch.zeros_like(scores.log_prob)
    return token_kl(scores.log_prob, batch.reference_log_prob, batch.mask, estimator=terms.kl_estimator)


def _value_loss(terms: Terms, scores: Scores, batch: TokenBatch, sample: Tensor, counts: Counts) -> Tensor:
    if isinstance(scores.values, tuple):
        return scores.log_prob.new_zeros(())
    value, before, target = neutral(batch.mask, scores.values, batch.behaviour_value, batch.target)
    if isinstance(terms.value_clip, float) and math.isinf(terms.value_clip):
        error = squared(value, target)
    else:
        error = clipped(value, before, target, clip=terms.value_clip)
    return token_mean(sample * error, batch.mask, denominator=counts.tokens)


def _sums(terms: Terms, scores: Scores, batch: TokenBatch, anchor: Tensor, figures: tuple[Tensor, ...]) -> Sums:
    total, policy_loss, value_loss, divergence, weight = figures
    mask = batch.mask
    now, before, entropy = neutral(mask, scores.log_prob.detach(), anchor, scores.entropy.detach())
    return Sums(
        loss=total,
        policy_loss=policy_loss,
        value_loss=value_loss,
        tokens=mask.sum().to(total.dtype),
        entropy=entropy.sum(),
        kl=token_sum(divergence, mask),
        approximate_kl=token_sum(k3(before, now), mask),
        outside=(terms.outside(now - before, mask) & mask).sum().to(total.dtype),
        weight=weight.sum(),
        weight_squared=weight.square().sum(),
        difference=farthest(now, batch),
        outside_support=_left_out(scores, mask),
    )


def _left_out(scores: Scores, mask: Tensor) -> Tensor:
    if isinstance(scores.outside, tuple):
        return scores.log_prob.new_zeros(())
    return token_sum(scores.outside, mask)


def farthest(log_prob: Tensor, batch: TokenBatch) -> Tensor:
    """Return the largest |log-prob - sampler's log-prob| of the tokens in the mask: [N, L] -> [], 0 for an empty mask.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> from .batch import token_batch
    >>> batch = replace(token_batch(empty(2, 1, id=torch.tensor([0]))), mask=torch.tensor([[False, True]]))
    >>> farthest(torch.tensor([[-9.0, -3.0]]), batch)
    tensor(3.)
    """
    now, sampler = neutral(batch.mask, log_prob, batch.behaviour_log_prob)
    return (now - sampler).abs().amax()


def combined(one: Sums, other: Sums) -> Sums:
    """Return the sums of two parts, added.

    >>> two = Sums(**{name: torch.tensor(2.0) for name in Sums.__record_fields__})
    >>> combined(two, two).loss, combined(two, two).difference
    (tensor(4.), tensor(2.))
    """
    added = tree_map(torch.add, one, other)
    return Sums(**{**vars(added), "difference": torch.maximum(one.difference, other.difference)})


def figures_of(sums: Sums) -> dict[str, Tensor]:
    """Return the metrics of a whole batch from its sums, by name: means over the tokens in the mask.

    clip_fraction is the share of tokens whose ratio lies outside the objective's bounds, effective_fraction is that of
    `effective_fraction`, log_prob_difference the largest distance from the sampler's log-prob, outside_support the share of
    tokens that the policy's own nucleus leaves out.

    >>> figures_of(Sums(**{name: torch.tensor(2.0) for name in Sums.__record_fields__}))["entropy"]
    tensor(1.)
    """
    tokens = sums.tokens
    effective = divided(sums.weight.square(), sums.weight_squared * tokens)
    means = (divided(each, tokens) for each in (sums.entropy, sums.kl, sums.approximate_kl, sums.outside))
    left_out = divided(sums.outside_support, tokens)
    values = (sums.loss, sums.policy_loss, sums.value_loss, *means, effective, sums.difference, left_out)
    return dict(zip(FIGURES, values, strict=True))
