"""Weights against a sampler, penalties for length and divergence, truncated samples: values by hand and by enumeration."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.importance import (
    effective_fraction,
    effective_sample_size,
    importance_weights,
    masked_weights,
    truncated_weights,
    within_bounds,
)
from purestep.algorithms.kl import k1, k2, k3, k3_with_gradient_of_k2, kl_reward, token_kl
from purestep.algorithms.language.batch import bootstrapped, overlong_columns, overlong_penalty
from purestep.algorithms.language.group_advantages import dr_grpo_advantages
from purestep.core.errors import ChoiceError, DtypeError, ShapeError

RATIO = torch.tensor([[0.5, 4.0, 9.0], [1.0, 1.0, 8.0]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
LOG, ZERO = RATIO.log(), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("token", [[0.5, 4.0, 0.0], [1.0, 1.0, 8.0]]),
        ("sequence", [[2.0, 2.0, 0.0], [8.0, 8.0, 8.0]]),
        ("geometric", [[math.sqrt(2.0), math.sqrt(2.0), 0.0], [2.0, 2.0, 2.0]]),
    ],
)
def test_the_level_of_a_weight(level: str, wanted: Any) -> None:
    torch.testing.assert_close(importance_weights(LOG, ZERO, MASK, level=level), torch.tensor(wanted))


def test_weights_are_brought_to_bounds_or_left_out() -> None:
    torch.testing.assert_close(
        truncated_weights(LOG, ZERO, MASK, high=3.0, low=0.75), torch.tensor([[0.75, 3.0, 0.0], [1.0, 1.0, 3.0]])
    )
    torch.testing.assert_close(
        masked_weights(LOG, ZERO, MASK, high=5.0, low=0.25), torch.tensor([[0.5, 4.0, 0.0], [1.0, 1.0, 0.0]])
    )
    assert within_bounds(LOG, ZERO, MASK, high=5.0, low=0.75).tolist() == [[False, True, False], [True, True, False]]
    kept = within_bounds(LOG, ZERO, MASK, high=1.5, low=0.75, level="geometric")
    assert kept.tolist() == [[True, True, False], [False, False, False]]
    token_weight_of_kept_sequences = truncated_weights(LOG, ZERO, MASK, high=3.0) * kept
    torch.testing.assert_close(token_weight_of_kept_sequences, torch.tensor([[0.5, 3.0, 0.0], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("unknown", [-math.inf, math.inf, math.nan])
def test_what_the_sampler_does_not_know_weighs_one(unknown: float) -> None:
    sampler = torch.tensor([[unknown, 0.0, unknown], [0.0, 0.0, 0.0]])
    got = importance_weights(LOG, sampler, MASK)
    torch.testing.assert_close(got, torch.tensor([[1.0, 4.0, 0.0], [1.0, 1.0, 8.0]]))
    assert importance_weights(LOG, sampler, MASK, level="sequence")[0].tolist() == pytest.approx([4.0, 4.0, 0.0])


def test_a_weight_is_always_finite() -> None:
    far = torch.full((1, 2), -1e4)
    for level in ("token", "sequence", "geometric"):
        got = importance_weights(torch.zeros(1, 2), far, torch.ones(1, 2, dtype=torch.bool), level=level)
        assert bool(torch.isfinite(got).all())
        assert bool((got > 1e30).all())
    assert masked_weights(torch.zeros(1, 2), far, torch.ones(1, 2, dtype=torch.bool), high=5.0).tolist() == [[0.0, 0.0]]


def test_the_mean_weight_is_one_and_reweighs_exactly() -> None:
    """By enumeration: E_sampler[w] = 1 and E_sampler[w f] = E_trainer[f]."""
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.125, 0.125, 0.75])
    one = torch.ones(3, 1, dtype=torch.bool)
    weight = importance_weights(p.log()[:, None], q.log()[:, None], one)[:, 0]
    value = torch.tensor([3.0, -1.0, 7.0])
    torch.testing.assert_close((q * weight).sum(), torch.tensor(1.0))
    torch.testing.assert_close((q * weight * value).sum(), (p * value).sum())


def test_effective_samples() -> None:
    everything = torch.ones(4, dtype=torch.bool)
    weight = torch.tensor([0.5, 2.0, 1.0, 3.0])
    assert effective_sample_size(torch.full((4,), 7.0), everything).item() == 4.0
    assert effective_sample_size(torch.tensor([5.0, 0.0, 0.0, 0.0]), everything).item() == 1.0
    pipeline_rl = weight.sum() ** 2 / (weight.square().sum() * 4)
    verl = 1 / (weight / weight.mean()).square().mean()
    torch.testing.assert_close(effective_fraction(weight, everything), pipeline_rl)
    torch.testing.assert_close(effective_fraction(weight, everything), verl)
    huge = weight * 1e30  # its square overflows
    torch.testing.assert_close(effective_fraction(huge, everything), pipeline_rl)
    for nothing in (torch.zeros(4), weight):
        none = torch.zeros(4, dtype=torch.bool) if nothing is weight else everything
        assert (effective_sample_size(nothing, none).item(), effective_fraction(nothing, none).item()) == (0.0, 0.0)


# --- length, truncation ---


def test_the_soft_penalty_of_long_answers() -> None:
    """DAPO's own numbers: 16,384 tokens are free, 4,096 more are the buffer."""
    length = torch.tensor([1, 16384, 17408, 18432, 20480, 30000])
    got = overlong_penalty(length, limit=20480, buffer=4096)
    assert got.tolist() == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    assert overlong_penalty(length, limit=20480, buffer=4096, factor=2.0)[2].item() == -0.5
    assert torch.equal(overlong_penalty(length.float(), limit=20480, buffer=4096), got)


def treated(treatment: str) -> Any:
    truncated = torch.tensor([False, True, False])
    return overlong_columns(truncated, torch.tensor([0, 0, 0]), torch.ones(3, 2, dtype=torch.bool), treatment=treatment)


def test_truncated_samples_by_choice() -> None:
    reward = torch.tensor([1.0, 0.0, 3.0])
    said = {name: treated(name) for name in ("keep", "mask", "down_weight", "drop")}
    advantages = {name: dr_grpo_advantages(reward, told.group, groups=1).tolist() for name, told in said.items()}
    compared = pytest.approx([-1 / 3, -4 / 3, 5 / 3])
    assert advantages["keep"] == advantages["mask"] == advantages["down_weight"] == compared
    assert advantages["drop"] == [-1.0, 0.0, 1.0]
    assert {name: told.mask.all(-1).tolist()[1] for name, told in said.items()} == {
        "keep": True, "mask": False, "down_weight": True, "drop": False
    }  # fmt: skip
    assert said["down_weight"].weight.tolist() == [1.0, 0.5, 1.0]
    assert all(bool((told.weight == 1).all()) for name, told in said.items() if name != "down_weight")


def test_a_value_beyond_counts_where_the_end_was_no_end() -> None:
    terminated, truncated = torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])
    value = torch.tensor([torch.nan, 4.0, torch.inf, torch.nan])
    got = bootstrapped(torch.ones(4), value, terminated, truncated, gamma=0.5)
    assert got.tolist() == [1.0, 3.0, 1.0, 1.0]


# --- divergence ---


def test_a_penalty_in_the_loss() -> None:
    log_prob, reference = torch.tensor([-1.0, -2.0, torch.nan]), torch.tensor([-3.0, -2.0, torch.inf])
    mask = torch.tensor([True, True, False])
    for estimator in (k1, k2, k3):
        torch.testing.assert_close(
            token_kl(log_prob, reference, mask, estimator=estimator)[:2], estimator(log_prob[:2], reference[:2])
        )
    assert token_kl(log_prob, reference, mask)[2].item() == 0.0
    far, gone = torch.zeros(1), torch.tensor([500.0])
    assert token_kl(far, gone, mask[:1]).item() == math.inf
    limited = token_kl(far, gone, mask[:1], limit=10.0)
    torch.testing.assert_close(limited, torch.tensor([math.exp(10.0) - 11.0]))
    slope = torch.func.grad(lambda x: token_kl(x, gone, mask[:1], limit=10.0).sum())(far)
    assert slope.item() == 0.0


def test_a_penalty_in_the_reward_is_a_constant() -> None:
    log_prob = torch.tensor([-1.0, -1.0, torch.nan], requires_grad=True)
    mask = torch.tensor([True, True, False])
    got = kl_reward(
        torch.tensor([0.0, 1.0, torch.nan]), log_prob, torch.tensor([-2.0, 0.0, 0.0]), mask, coefficient=0.5
    )
    assert got.tolist() == [-0.5, 1.5, 0.0]
    assert not got.requires_grad


def expected_slope(estimator: Any, logits: Tensor, q: Tensor) -> Tensor:
    """E_p[gradient of the estimate], by enumeration."""

    def estimates(x: Tensor) -> Tensor:
        log_prob = x.log_softmax(-1)
        result: Tensor = (log_prob.detach().exp() * estimator(log_prob, q.log())).sum()
        return result

    result: Tensor = torch.func.grad(estimates)(logits)
    return result


def test_on_policy_k2_has_the_gradient_of_the_divergence_and_k3_that_of_the_other_one() -> None:
    logits, q = torch.tensor([0.5, -1.0, 0.25], dtype=torch.float64), torch.tensor([0.5, 0.125, 0.375]).double()
    forward = torch.func.grad(lambda x: (x.softmax(-1) * (x.log_softmax(-1) - q.log())).sum())(logits)
    backward = torch.func.grad(lambda x: (q * (q.log() - x.log_softmax(-1))).sum())(logits)
    torch.testing.assert_close(expected_slope(k2, logits, q), forward)
    torch.testing.assert_close(expected_slope(k3_with_gradient_of_k2, logits, q), forward)
    torch.testing.assert_close(expected_slope(k3, logits, q), backward)
    torch.testing.assert_close(expected_slope(k1, logits, q), torch.zeros(3, dtype=torch.float64))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"importance_weights: sampler_log_prob is \[3\], wanted \[2, 3\]"):
        importance_weights(LOG, torch.zeros(3), MASK)
    with pytest.raises(DtypeError, match=r"importance_weights: mask is torch\.float32"):
        truncated_weights(LOG, ZERO, MASK.float(), high=2.0)
    with pytest.raises(ChoiceError, match="importance_weights: level is 'turn'"):
        within_bounds(LOG, ZERO, MASK, high=2.0, level="turn")
    with pytest.raises(ChoiceError, match=r"truncated_weights: high is 0\.5, wanted a number from 1\.0"):
        truncated_weights(LOG, ZERO, MASK, high=0.5, low=1.0)
    with pytest.raises(ChoiceError, match="overlong_penalty: limit is 3, wanted a number from 4"):
        overlong_penalty(torch.tensor([1]), limit=3, buffer=4)
    with pytest.raises(ChoiceError, match="counted: treatment is 'ignore'"):
        treated("ignore")
    with pytest.raises(ShapeError, match=r"counted: mask is \[2, 2\], wanted \[3\] and an axis of tokens"):
        overlong_columns(torch.zeros(3).bool(), torch.zeros(3).long(), torch.ones(2, 2).bool(), treatment="keep")
    with pytest.raises(ChoiceError, match="token_kl: limit is -1"):
        token_kl(ZERO, ZERO, MASK, limit=-1)
    with pytest.raises(ShapeError, match="kl_reward: mask"):
        kl_reward(torch.zeros(2), ZERO, ZERO, MASK, coefficient=0.1)
