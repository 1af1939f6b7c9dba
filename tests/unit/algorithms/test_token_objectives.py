"""Losses of tokens: values by hand, the forms other trainers write, conventions, overflows, what is refused."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.aggregate import constant_length, sequence_mean, sequence_sum_mean, token_count, token_mean
from purestep.algorithms.language.masking import mean_of_tokens, neutral, spread_over_tokens
from purestep.algorithms.language.token_losses import cispo, dual_clip, gspo, token_clip
from purestep.core.errors import ChoiceError, DtypeError, ShapeError

ROWS, LENGTH = 4, 5
MASK = torch.arange(LENGTH) < torch.tensor([5, 2, 0, 3])[:, None]


def random(*seeds: int) -> list[Tensor]:
    return [torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds]


def slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    result: Tensor = torch.func.grad(lambda x: function(x).sum())(at)
    return result


def test_dual_clip_by_cases() -> None:
    ratio = torch.tensor([0.5, 0.5, 1.0, 2.0, 2.0, 8.0, 8.0])
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0, 2.0, -2.0])
    mask = torch.ones(7, dtype=torch.bool)
    ask = partial(dual_clip, behaviour_log_prob=torch.zeros(7), advantage=advantage, mask=mask, clip=(0.25, 0.5), c=4.0)
    torch.testing.assert_close(ask(ratio.log()), torch.tensor([-0.5, 0.75, 1.0, -1.5, 2.0, -3.0, 8.0]))
    wanted = torch.tensor([-0.5, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0])
    torch.testing.assert_close(slope(ask, ratio.log()), wanted)


def test_dual_clip_bounds_bad_tokens_alone() -> None:
    one, mask = torch.ones(1), torch.ones(1, dtype=torch.bool)
    log_prob = torch.tensor([100.0]).log()
    torch.testing.assert_close(dual_clip(log_prob, 0 * one, one, mask, clip=math.inf, c=2.0), -100 * one)
    torch.testing.assert_close(dual_clip(log_prob, 0 * one, -one, mask, clip=math.inf, c=2.0), 2 * one)


def test_dual_clip_is_the_ratio_bounded_from_above() -> None:
    """TRL's `delta`: the unclipped half's ratio is at most delta. With delta above 1 + high that is the same."""
    log_prob, behaviour, advantage = random(2, 3, 4)
    ratio = (2 * (log_prob - behaviour)).exp()
    wanted = torch.maximum(-advantage * ratio.clamp(max=3.0), -advantage * ratio.clamp(0.8, 1.2))
    got = dual_clip(2 * log_prob, 2 * behaviour, advantage, MASK, clip=0.2, c=3.0)
    torch.testing.assert_close(got, torch.where(MASK, wanted, 0.0))
    assert bool(((ratio > 3.0) & (advantage < 0) & MASK).any())


def test_a_ratio_that_overflows_leaves_no_nan() -> None:
    log_prob, behaviour, mask = torch.zeros(2), torch.tensor([-1e4, -1e4]), torch.ones(2, dtype=torch.bool)
    advantage = torch.tensor([1.0, -1.0])
    for loss, most in (
        (partial(dual_clip, clip=0.25, c=3.0), [-1.25, 3.0]),
        (partial(cispo, low=0.0, high=5.0), [0.0, 0.0]),
    ):
        assert loss(log_prob, behaviour, advantage, mask).tolist() == most
        assert bool(
            torch.isfinite(
                slope(partial(loss, behaviour_log_prob=behaviour, advantage=advantage, mask=mask), log_prob)
            ).all()
        )
    assert gspo(log_prob, behaviour, advantage.abs(), mask, clip=0.25).tolist() == [-1.25, -1.25]


def test_gspo_by_hand() -> None:
    """Ratios 4 and 1: the sequence's is 2, and its length does not count."""
    log_prob = torch.tensor([[4.0, 1.0, 7.0], [4.0, 7.0, 7.0]]).log()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    advantage = spread_over_tokens(torch.tensor([1.0, -1.0]), mask)
    assert gspo(log_prob, torch.zeros(2, 3), advantage, mask, clip=0.5).tolist() == [[-1.5, -1.5, 0.0], [4.0, 0.0, 0.0]]
    unclipped = gspo(log_prob, torch.zeros(2, 3), advantage, mask, clip=math.inf)
    torch.testing.assert_close(unclipped, torch.tensor([[-2.0, -2.0, 0.0], [4.0, 0.0, 0.0]]))


@pytest.mark.parametrize("reduce", [sequence_mean, token_mean, sequence_sum_mean])
def test_both_gradients_of_gspo_agree_where_a_sequence_has_one_advantage(reduce: Any) -> None:
    log_prob, behaviour, advantage = random(5, 6, 7)

    def total(x: Tensor, per: Tensor, gradient: str) -> Tensor:
        result: Tensor = reduce(gspo(x, behaviour, per, MASK, clip=0.5, gradient=gradient), MASK)
        return result

    one = spread_over_tokens(advantage[:, 0], MASK)
    torch.testing.assert_close(
        slope(lambda x: total(x, one, "token"), log_prob), slope(lambda x: total(x, one, "sequence"), log_prob)
    )
    each = [slope(partial(total, per=advantage, gradient=form), log_prob) for form in ("token", "sequence")]
    assert not torch.allclose(each[0], each[1])


def test_gspo_of_a_mean_advantage_is_areals() -> None:
    log_prob, behaviour, advantage = random(8, 9, 10)
    mean = spread_over_tokens(mean_of_tokens(advantage, MASK), MASK)
    got = gspo(log_prob, behaviour, mean, MASK, clip=math.inf)
    ratio = mean_of_tokens(log_prob - behaviour, MASK).exp()
    torch.testing.assert_close(got, -mean * ratio[:, None])


def test_the_bounds_of_cispo_in_either_convention() -> None:
    log_prob, behaviour, advantage = random(11, 12, 13)
    ask = partial(cispo, 3 * log_prob, 3 * behaviour, advantage, MASK)
    trl_form, areal_form = ask(low=0.0, high=5.0), ask(low=1.0, high=4.0, bounds="distance")
    assert torch.equal(trl_form, areal_form)
    assert not torch.equal(trl_form, ask(low=1.0, high=5.0, bounds="distance"))  # the same number, another meaning
    weight = (3 * (log_prob - behaviour)).exp().clamp(0.0, 5.0)
    torch.testing.assert_close(trl_form, torch.where(MASK, -weight * advantage * 3 * log_prob, 0.0))
    assert bool((weight == 5.0)[MASK].any())


def test_cispo_cuts_no_gradient_off() -> None:
    mask, advantage = torch.ones(3, dtype=torch.bool), torch.tensor([1.0, 1.0, -1.0])
    log_prob = torch.tensor([8.0, 0.25, 8.0]).log()
    got = slope(lambda x: cispo(x, torch.zeros(3), advantage, mask, low=0.5, high=2.0), log_prob)
    torch.testing.assert_close(got, torch.tensor([-2.0, -0.5, 2.0]))
    clipped = slope(lambda x: token_clip(x, torch.zeros(3), advantage, mask, clip=(0.5, 1.0)), log_prob)
    torch.testing.assert_close(clipped, torch.tensor([0.0, -0.25, 8.0]))


def test_cispo_may_take_the_ratio_of_the_sequence() -> None:
    log_prob = torch.tensor([[4.0, 1.0]]).log()
    mask, one = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)
    ask = partial(cispo, behaviour_log_prob=torch.zeros(1, 2), advantage=one, mask=mask, low=0.0, high=5.0)
    assert slope(lambda x: ask(x, importance_sampling_level="sequence"), log_prob).tolist() == [[-2.0, -2.0]]
    torch.testing.assert_close(slope(ask, log_prob), torch.tensor([[-4.0, -1.0]]))


def test_a_population_of_clips_is_one_vmap() -> None:
    log_prob, behaviour, advantage = random(14, 15, 16)
    bounds = torch.tensor([[0.25, 2.0], [0.5, 4.0]], dtype=torch.float64)

    def loss(bound: Tensor) -> Tensor:
        dual = dual_clip(log_prob, behaviour, advantage, MASK, clip=bound[0], c=bound[1])
        weighted = cispo(log_prob, behaviour, advantage, MASK, low=bound[0], high=bound[1])
        return dual + weighted + gspo(log_prob, behaviour, advantage, MASK, clip=bound[0])

    for i, row in enumerate(torch.vmap(loss)(bounds)):
        assert row.dtype == torch.float32
        torch.testing.assert_close(row, loss(bounds[i]))


def test_one_graph_of_losses_and_reductions(compiled: Any) -> None:
    log_prob, behaviour, advantage = random(17, 18, 19)

    def step(x: Tensor) -> Tensor:
        loss = dual_clip(x, behaviour, advantage, MASK, clip=(0.2, 0.28)) + gspo(
            x, behaviour, advantage, MASK, clip=0.1
        )
        return token_mean(loss, MASK, denominator=7) + sequence_mean(loss, MASK)

    wanted, got = (f(log_prob) for f in (torch.func.grad(step), compiled(torch.func.grad(step))))
    torch.testing.assert_close(got, wanted)


# --- what is refused ---


def test_wrong_arguments_are_refused() -> None:
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"token_clip: advantage is \[2\], wanted \[2, 3\] as log_prob"):
        token_clip(x, x, torch.zeros(2), mask, clip=0.2)
    with pytest.raises(DtypeError, match=r"neutral: mask is torch\.float32, wanted torch\.bool"):
        dual_clip(x, x, x, mask.float(), clip=0.2)
    with pytest.raises(ChoiceError, match=r"dual_clip: c is 0\.5, wanted a number from 1\.0"):
        dual_clip(x, x, x, mask, clip=0.2, c=0.5)
    with pytest.raises(ChoiceError, match="gspo: gradient is 'both', wanted one of"):
        gspo(x, x, x, mask, clip=0.2, gradient="both")
    with pytest.raises(ChoiceError, match="cispo: bounds is 'epsilon'"):
        cispo(x, x, x, mask, low=0.2, high=0.2, bounds="epsilon")
    with pytest.raises(ChoiceError, match=r"cispo: the lowest ratio is 0\.2, wanted at most the highest, 0\.1"):
        cispo(x, x, x, mask, low=0.2, high=0.1)
    with pytest.raises(ChoiceError, match="cispo: importance_sampling_level is 'turn'"):
        cispo(x, x, x, mask, low=0.0, high=5.0, importance_sampling_level="turn")
    with pytest.raises(ShapeError, match=r"per_token: value is \[3\], wanted \[2\], the mask's leading axes"):
        spread_over_tokens(torch.zeros(3), mask)
    with pytest.raises(ShapeError, match=r"neutral: tensor is \[3\], wanted \[2, 3\] as mask"):
        neutral(mask, torch.zeros(3))
    with pytest.raises(DtypeError, match="token_count: mask"):
        token_count(x)
    with pytest.raises(ChoiceError, match="constant_length: length is -1"):
        constant_length(x, mask, length=-1)
