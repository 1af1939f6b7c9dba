"""Group advantages, losses of tokens, their weights and reductions obey their laws."""

from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.aggregate import (
    constant_length,
    divided,
    sequence_count,
    sequence_mean,
    sequence_sum_mean,
    token_count,
    token_mean,
    token_sum,
)
from purestep.algorithms.importance import importance_weights, masked_weights, truncated_weights
from purestep.algorithms.kl import k2, k3_with_gradient_of_k2, token_kl
from purestep.algorithms.language.group_advantages import (
    dr_grpo_advantages,
    ema_baseline,
    group_advantages,
    grpo_advantages,
    rloo_advantages,
    zero_spread,
)
from purestep.algorithms.language.masking import spread_over_tokens
from purestep.algorithms.language.token_losses import cispo, dual_clip, gspo, token_clip
from purestep.algorithms.losses import ppo_clip
from purestep.properties import (
    ROUNDING,
    aggregate_laws,
    check,
    dyadic,
    flags,
    gradient_laws,
    group_laws,
    importance_laws,
    integers,
    kl_laws,
    masked_loss_laws,
    smooth,
    step_laws,
    token_loss_laws,
)
from purestep.properties.suites.aggregate import WEIGHTS, Reduction
from purestep.properties.suites.language.token_loss import as_token_loss, cispo_step, dual_step

LENGTH = 5


def sum_over(loss: Tensor, mask: Tensor, denominator: float = 1.0) -> Tensor:
    """token_sum is token_mean whose denominator is 1."""
    return divided(token_sum(loss, mask), denominator)


def of_constant_length(lengths: Tensor) -> Tensor:
    return torch.full(lengths.shape, 1.0 / (len(lengths) * LENGTH))


def slots(mask: Tensor) -> float:
    return float(mask.shape[0] * LENGTH)


verl = partial(group_advantages, centre="mean", scale="std", eps=1e-6, singleton="raw")
pipeline = partial(group_advantages, centre="leave_one_out", scale="std")
raw_rloo = partial(group_advantages, centre="leave_one_out", singleton="raw")

GROUPS: dict[str, Any] = {"nan_rewards": True, "ungrouped": True}
WEIGHTINGS: dict[str, Any] = {"nan_padding": True, "detached": True, "unknown": True}

test_grpo = check(group_laws(**GROUPS), grpo_advantages, exact=True)
test_dr_grpo = check(group_laws(scaled=False, **GROUPS), dr_grpo_advantages, exact=True)
test_rloo = check(group_laws(centre="leave_one_out", scaled=False, **GROUPS), rloo_advantages, exact=True)
test_verl = check(group_laws(singleton="raw", **GROUPS), verl, exact=True)
test_pipeline_rl = check(group_laws(centre="leave_one_out", **GROUPS), pipeline, exact=True)
test_raw_rloo = check(group_laws(centre="leave_one_out", scaled=False, singleton="raw", **GROUPS), raw_rloo, exact=True)

test_token_mean = check(
    aggregate_laws(WEIGHTS["token_mean"], nan_padding=True, live=True), Reduction(token_mean, token_count), exact=True
)
test_sequence_mean = check(
    aggregate_laws(WEIGHTS["sequence_mean"], nan_padding=True, live=True),
    Reduction(sequence_mean, sequence_count),
    exact=True,
)
test_sum_mean = check(
    aggregate_laws(WEIGHTS["sequence_sum_mean"], nan_padding=True, live=True),
    Reduction(sequence_sum_mean, sequence_count),
    exact=True,
)
test_sum = check(
    aggregate_laws(WEIGHTS["token_sum"], nan_padding=True, live=True), Reduction(sum_over, lambda mask: 1.0), exact=True
)
test_constant = check(
    aggregate_laws(of_constant_length, nan_padding=True, live=True),
    Reduction(partial(constant_length, length=LENGTH), slots),
    exact=True,
)

plain, sequence = partial(ppo_clip, clip=0.25), "sequence"
test_token_clip = check(token_loss_laws(plain), as_token_loss(token_clip, clip=0.25), exact=True)
test_dual_clip = check(token_loss_laws(dual_step), as_token_loss(dual_clip, clip=0.25, c=2.0), exact=True)
test_gspo = check(token_loss_laws(plain, level=sequence), as_token_loss(gspo, clip=0.25), exact=True)
live_gspo = as_token_loss(gspo, clip=0.25, gradient="sequence")
test_live_gspo = check(token_loss_laws(plain, level=sequence), live_gspo, exact=True)
test_cispo = check(token_loss_laws(cispo_step), as_token_loss(cispo, low=0.5, high=1.0, bounds="distance"), exact=True)
test_cispo_of_sequences = check(
    token_loss_laws(cispo_step, level=sequence),
    as_token_loss(cispo, low=0.5, high=2.0, importance_sampling_level=sequence),
    skip={"ratio_of_sequences": "each token keeps a log-prob of its own beside the ratio of the sequence"},
)

test_tis = check(importance_laws(high=2.0, **WEIGHTINGS), partial(truncated_weights, high=2.0), exact=True)
test_tis_of_sequences = check(
    importance_laws(high=2.0, low=0.5, level=sequence, **WEIGHTINGS),
    partial(truncated_weights, high=2.0, low=0.5, level=sequence),
)
test_icepop = check(
    importance_laws(high=5.0, low=0.5, outside="zero", **WEIGHTINGS),
    partial(masked_weights, high=5.0, low=0.5),
    exact=True,
)
test_geometric = check(
    importance_laws(high=2.0, low=0.5, level="geometric", outside="zero", **WEIGHTINGS),
    partial(masked_weights, high=2.0, low=0.5, level="geometric"),
)


def weighted(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """A loss with all its parts; the sampler is the behaviour policy."""
    weight = truncated_weights(log_prob, behaviour_log_prob, mask, high=2.0)
    loss = weight * cispo(log_prob, behaviour_log_prob, advantage, mask, low=0.0, high=5.0)
    return token_mean(loss + 0.5 * token_kl(log_prob, behaviour_log_prob, mask), mask)


def mean_gspo(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    return sequence_mean(gspo(log_prob, behaviour_log_prob, advantage, mask, clip=0.25), mask)


def mean_dual(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    loss = dual_clip(log_prob, behaviour_log_prob, advantage, mask, clip=0.25)
    return constant_length(loss, mask, length=8)


test_weighted = check(masked_loss_laws(nan_padding=True), weighted, exact=True)
test_mean_gspo = check(masked_loss_laws(nan_padding=True), mean_gspo, exact=True)
test_mean_dual = check(masked_loss_laws(nan_padding=True), mean_dual, exact=True)

test_k3_with_gradient_of_k2 = check(kl_laws(gradient="divergence"), k3_with_gradient_of_k2)


def k2_of_tokens(log_prob: Tensor, reference: Tensor) -> Tensor:
    """Its kink, at the limit, is passed over by what is drawn."""
    return token_kl(log_prob, reference, torch.tensor([True, False, True]), estimator=k2, limit=1.0)


test_token_kl = check(gradient_laws(st.tuples(smooth((3,)), smooth((3,))), constant=(1,)), k2_of_tokens)


def advantages(reward: Tensor, group: Tensor, baseline: Tensor) -> tuple[Tensor, ...]:
    """Every estimator of a group, as one step."""
    after, against = ema_baseline(baseline, reward, group, decay=0.5)
    scaled = grpo_advantages(reward, group, groups=2)
    whole = group_advantages(reward, group, groups=2, centre="leave_one_out", scale="batch_std", singleton="raw")
    return after, against, scaled, whole, zero_spread(reward, group, groups=2)


def objective(log_prob: Tensor, sampler: Tensor, reward: Tensor, mask: Tensor) -> Tensor:
    """From rewards to a loss, as one step."""
    advantage = spread_over_tokens(rloo_advantages(reward, torch.zeros_like(reward, dtype=torch.int64), groups=1), mask)
    weight = importance_weights(log_prob, sampler, mask, level="geometric")
    loss = dual_clip(log_prob, sampler, advantage, mask, clip=(0.2, 0.28)) + gspo(
        log_prob, sampler, advantage, mask, clip=0.1
    )
    return sequence_mean(weight * loss, mask) + weighted(log_prob, sampler, advantage, mask)


groups = st.tuples(dyadic((4,)), integers((4,), -1, 2), dyadic((2,)))
batches = st.tuples(dyadic((3, 2), limit=2), dyadic((3, 2), limit=2), dyadic((3,)), flags((3, 2)))
test_advantages_as_a_step = check(step_laws(groups, tolerance=ROUNDING), advantages)
test_objective_as_a_step = check(step_laws(batches, tolerance=ROUNDING), objective)
