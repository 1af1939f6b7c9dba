"""TRL's GRPOTrainer in our terms: the same losses, gradients and advantages from the same numbers.

`benchmarks/peers/trl_losses.py` ran the trainer itself, TRL 1.16, and wrote down what it was given and what it said.
For micro-batches of B rows, M of them summed to one step of the optimizer, `mask` that of completions without what tools
wrote, and N the tokens of a whole generation times M / `steps_per_generation` over the number of processes:

    loss_type        loss                                      reduction
    grpo             token_clip(clip=(epsilon, epsilon_high))  sequence_mean(denominator=B * M)
    bnpo             the same                                  token_mean() / M
    dr_grpo          the same                                  constant_length(length=max_completion_length, denominator=
                                                               B * M * max_completion_length)
    dapo (default)   the same                                  token_mean(denominator=N)
    luspo            gspo(gradient="sequence")                 sequence_sum_mean(denominator=B * M)
    cispo            cispo(low=0, high=epsilon_high)           token_mean(denominator=N)

    importance_sampling_level="sequence"    gspo(gradient="sequence") for token_clip; that argument of cispo
    delta                                   dual_clip(c=delta) for token_clip, where delta >= 1 + epsilon_high
    beta                                    + beta token_kl(log_prob, reference), with use_bias_correction_kl (the default)
                                            times the ratio, live: of a token, or at level "sequence" of its sequence
    vllm_importance_sampling_mode           the loss, before that of beta, times
        token_truncate, token_mask          truncated_weights(old, sampler), masked_weights(old, sampler)
        sequence_truncate, sequence_mask    the same with level="sequence"
    off_policy_mask_threshold               the loss where A >= 0 or within(log_prob, sampler or old, level="geometric",
                                            low=exp(-threshold))
    scale_rewards "group", "batch", "none"  grpo_advantages, group_advantages(scale="batch_std"), dr_grpo_advantages;
                                            a completion without a reward has the group -1
    normalize_then_sum                      grpo_advantages of each reward, their weighted sum, grpo_advantages of that as
                                            one group

Of the rest we have nothing: sapo, vespo, top_entropy_quantile, the entropy's coefficient.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor

from purestep.algorithms.aggregate import constant_length, sequence_mean, sequence_sum_mean, token_mean
from purestep.algorithms.importance import masked_weights, truncated_weights, within_bounds
from purestep.algorithms.kl import token_kl
from purestep.algorithms.language.group_advantages import dr_grpo_advantages, group_advantages, grpo_advantages
from purestep.algorithms.language.masking import spread_over_tokens
from purestep.algorithms.language.token_losses import cispo, dual_clip, gspo, token_clip

TOLD = json.loads((Path(__file__).parents[3] / "benchmarks" / "peers" / "trl_losses.json").read_text())
LENGTH, MICRO_BATCHES = TOLD["max_completion_length"], TOLD["micro_batches"]
CLIP, CLIP_OF_SEQUENCES, WEIGHTS = (0.2, 0.28), (0.05, 0.1), {"low": 0.8, "high": 1.25}


@frozen
class Batch:
    """What TRL's loss was given."""

    log_prob: Tensor
    old: Tensor
    advantage: Tensor
    mask: Tensor
    reference: Tensor
    sampler: Tensor
    rows: int  # B * M
    tokens: float  # N

    @property
    def policy(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.log_prob, self.old, self.advantage, self.mask


def number(value: Any) -> Any:
    """Lists where null is NaN."""
    return [number(x) for x in value] if isinstance(value, list) else math.nan if value is None else value


def tensor(value: Any) -> Tensor:
    return torch.tensor(number(value), dtype=torch.float64)


def batch(told: dict[str, Any], settings: dict[str, Any]) -> Batch:
    mask = torch.tensor(told["mask"], dtype=torch.bool)
    nothing = mask.tolist()
    return Batch(
        log_prob=tensor(told["log_prob"]).requires_grad_(),
        old=tensor(told["old_log_prob"]),
        advantage=spread_over_tokens(tensor(told["advantage"]), mask),
        mask=mask,
        reference=tensor(told.get("reference_log_prob", nothing)),
        sampler=tensor(told.get("sampler_log_prob", nothing)),
        rows=len(mask) * MICRO_BATCHES,
        tokens=told["items"] * MICRO_BATCHES / settings.get("steps_per_generation", MICRO_BATCHES),
    )


def clipped(b: Batch) -> Tensor:
    return token_clip(*b.policy, clip=CLIP)


def of_sequences(b: Batch) -> Tensor:
    return gspo(*b.policy, clip=CLIP_OF_SEQUENCES, gradient="sequence")


def kl(b: Batch) -> Tensor:
    return token_kl(b.log_prob, b.reference, b.mask)


def ratio(b: Batch) -> Tensor:
    """p / old, live: the loss of an advantage of -1 that nothing clips."""
    return token_clip(b.log_prob, b.old, -torch.ones_like(b.old), b.mask, clip=math.inf)


def ratio_of_sequence(b: Batch) -> Tensor:
    return gspo(b.log_prob, b.old, -torch.ones_like(b.old), b.mask, clip=math.inf, gradient="sequence")


def truncated(b: Batch, level: str) -> Tensor:
    return truncated_weights(b.old, b.sampler, b.mask, **WEIGHTS, level=level)


def masked(b: Batch, level: str) -> Tensor:
    return masked_weights(b.old, b.sampler, b.mask, **WEIGHTS, level=level)


def near(b: Batch) -> Tensor:
    return (b.advantage >= 0) | within_bounds(
        b.log_prob, b.sampler, b.mask, low=math.exp(-0.05), high=math.inf, level="geometric"
    )


def mean(loss: Tensor, b: Batch) -> Tensor:
    """grpo's reduction."""
    return sequence_mean(loss, b.mask, denominator=b.rows)


def mean_of_tokens(loss: Tensor, b: Batch) -> Tensor:
    """dapo's and cispo's."""
    return token_mean(loss, b.mask, denominator=b.tokens)


OURS: dict[str, Callable[[Batch], Tensor]] = {
    "defaults": lambda b: mean_of_tokens(token_clip(*b.policy, clip=0.2), b),
    "grpo": lambda b: mean(clipped(b), b),
    "bnpo": lambda b: token_mean(clipped(b), b.mask) / MICRO_BATCHES,
    "dr_grpo": lambda b: constant_length(clipped(b), b.mask, length=LENGTH, denominator=b.rows * LENGTH),
    "dapo": lambda b: mean_of_tokens(clipped(b), b),
    "dapo, two windows": lambda b: mean_of_tokens(clipped(b), b),
    "cispo": lambda b: mean_of_tokens(cispo(*b.policy, low=0.0, high=1.25), b),
    "cispo, sequence": lambda b: mean_of_tokens(
        cispo(*b.policy, low=0.0, high=1.25, importance_sampling_level="sequence"), b
    ),
    "gspo": lambda b: mean(of_sequences(b), b),
    "gspo, dapo": lambda b: mean_of_tokens(of_sequences(b), b),
    "luspo": lambda b: sequence_sum_mean(of_sequences(b), b.mask, denominator=b.rows),
    "delta": lambda b: mean(dual_clip(*b.policy, clip=CLIP, c=1.5), b),
    "beta": lambda b: mean(clipped(b) + 0.5 * kl(b), b),
    "beta, dapo": lambda b: mean_of_tokens(clipped(b) + 0.5 * kl(b), b),
    "beta, weighted": lambda b: mean(clipped(b) + 0.5 * kl(b) * ratio(b), b),
    "beta, gspo": lambda b: mean(of_sequences(b) + 0.5 * kl(b) * ratio_of_sequence(b), b),
    "token_truncate": lambda b: mean(clipped(b) * truncated(b, "token"), b),
    "token_mask": lambda b: mean(clipped(b) * masked(b, "token"), b),
    "sequence_truncate": lambda b: mean(clipped(b) * truncated(b, "sequence"), b),
    "sequence_mask": lambda b: mean(clipped(b) * masked(b, "sequence"), b),
    "token_mask, beta": lambda b: mean(clipped(b) * masked(b, "token") + 0.5 * kl(b) * ratio(b), b),
    "off-policy mask": lambda b: mean(clipped(b) * near(b), b),
}


@pytest.mark.parametrize("case", OURS)
def test_losses_and_gradients_are_trls(case: str) -> None:
    told = TOLD["losses"][case]
    for given in told["micro_batches"]:
        b = batch(given, told["settings"])
        loss = OURS[case](b)
        (gradient,) = torch.autograd.grad(loss, b.log_prob)
        torch.testing.assert_close(loss.detach(), tensor(given["loss"]), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient, tensor(given["gradient"]), rtol=1e-9, atol=1e-12)


def test_each_case_is_asked_and_each_setting_matters() -> None:
    """Padding, tokens of tools, a row without tokens, a token the sampler has no number for; no two gradients are equal."""
    assert TOLD["losses"].keys() == OURS.keys()
    gradients = [str([given["gradient"] for given in told["micro_batches"]]) for told in TOLD["losses"].values()]
    assert len(set(gradients)) == len(gradients)
    masks = torch.tensor([row for given in TOLD["losses"]["grpo"]["micro_batches"] for row in given["mask"]]).bool()
    assert int((~masks.any(-1)).sum()) == 1
    assert bool((~masks[:, :-1] & masks[:, 1:]).any())
    given = TOLD["losses"]["token_mask"]["micro_batches"]
    assert sum(int((b.sampler.isnan() & b.mask).sum()) for b in (batch(one, {}) for one in given)) == 1


def weighted_sum(reward: Tensor, group: Tensor, weights: list[float]) -> Tensor:
    scaled = torch.stack([grpo_advantages(row, group, groups=3) for row in reward])
    return grpo_advantages((tensor(weights)[:, None] * scaled).sum(0), torch.zeros_like(group), groups=1)


ADVANTAGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group": lambda reward, group: grpo_advantages(reward[0], group, groups=3),
    "batch": lambda reward, group: group_advantages(reward[0], group, groups=3, scale="batch_std", eps=1e-4),
    "none": lambda reward, group: dr_grpo_advantages(reward[0], group, groups=3),
    "normalize_then_sum": lambda reward, group: weighted_sum(reward, group, [1.0, 0.5]),
}


@pytest.mark.parametrize("case", ADVANTAGES)
def test_advantages_are_trls(case: str) -> None:
    """A group with spread, one without, one of which a row could not be scored."""
    assert TOLD["advantages"].keys() == ADVANTAGES.keys()
    told = TOLD["advantages"][case]
    reward = tensor(told["rewards"])
    group = torch.where(reward.isnan().any(0), -1, torch.arange(reward.shape[-1]) // TOLD["group"])
    advantage = ADVANTAGES[case](reward, group)
    torch.testing.assert_close(advantage, tensor(told["advantages"]), rtol=1e-9, atol=1e-12)
