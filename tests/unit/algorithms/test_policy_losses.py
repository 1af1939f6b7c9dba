"""Policy losses and divergence estimators: values by hand, exact gradients, where the clip binds, what padding does."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.kl import k1, k2, k3
from purestep.algorithms.losses import policy_gradient, ppo_clip
from purestep.core.errors import ChoiceError, ShapeError

ZERO = torch.zeros(())


def gradient(ratio: float, advantage: float, clip: Any) -> float:
    log_prob = torch.tensor(ratio, dtype=torch.float64).log()
    constants = torch.zeros((), dtype=torch.float64), torch.tensor(advantage, dtype=torch.float64)
    return float(torch.func.grad(lambda x: ppo_clip(x, *constants, clip=clip))(log_prob))


def test_policy_gradient_by_hand() -> None:
    log_prob, advantage = torch.tensor([-0.5, -1.5]), torch.tensor([2.0, -4.0])
    assert policy_gradient(log_prob, advantage).tolist() == [1.0, -6.0]
    assert torch.func.grad(lambda x: policy_gradient(x, advantage).sum())(log_prob).tolist() == [-2.0, 4.0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),
        (1.125, 2.0, -2.25),
        (2.0, 2.0, -2.5),
        (2.0, -2.0, 4.0),
        (0.5, 2.0, -1.0),
        (0.5, -2.0, 1.5),
        (0.5, 0.0, 0.0),
    ],
)
def test_ppo_clip_by_hand(ratio: float, advantage: float, loss: float) -> None:
    log_prob = torch.tensor(ratio).log() - 1.0
    result = ppo_clip(log_prob, ZERO - 1.0, torch.tensor(advantage), clip=0.25)
    assert float(result) == pytest.approx(loss, rel=1e-6)


def test_ppo_clip_is_pessimistic() -> None:
    generator = torch.Generator().manual_seed(0)
    log_prob, behaviour, advantage = torch.randn(3, 500, generator=generator)
    plain = -advantage * torch.exp(log_prob - behaviour)
    loss = ppo_clip(log_prob, behaviour, advantage, clip=0.2)
    assert bool((loss >= plain).all())
    assert bool((loss > plain).any())


@pytest.mark.parametrize("clip", [0.0, 0.2, (0.2, 0.28), math.inf])
@pytest.mark.parametrize("advantage", [-3.0, 3.0])
def test_on_policy_gradient_is_the_policy_gradient(advantage: float, clip: Any) -> None:
    assert gradient(1.0, advantage, clip) == -advantage


@pytest.mark.parametrize("ratio", [0.25, 0.75, 0.875, 1.125, 1.4375, 2.0])
@pytest.mark.parametrize("advantage", [-2.0, 2.0])
def test_gradient_vanishes_exactly_where_the_clip_binds(ratio: float, advantage: float) -> None:
    binds = (advantage > 0 and ratio > 1.375) or (advantage < 0 and ratio < 0.8125)
    expected = 0.0 if binds else -advantage * ratio
    assert gradient(ratio, advantage, (0.1875, 0.375)) == pytest.approx(expected, rel=1e-12)


def test_clip_may_be_a_number_a_pair_or_a_mapped_tensor() -> None:
    log_prob = torch.log(torch.tensor([0.25, 3.0, 3.0]))
    advantage = torch.tensor([-1.0, 1.0, -1.0])
    pair = ppo_clip(log_prob, torch.zeros(3), advantage, clip=(0.5, 0.25))
    torch.testing.assert_close(pair, torch.tensor([0.5, -1.25, 3.0]))
    bounds = torch.tensor([0.25, 0.5], dtype=torch.float64)
    mapped = torch.vmap(lambda clip: ppo_clip(log_prob, torch.zeros(3), advantage, clip=clip))(bounds)
    assert mapped.dtype == torch.float32
    for clip, row in zip(bounds, mapped, strict=True):
        assert torch.equal(row, ppo_clip(log_prob, torch.zeros(3), advantage, clip=clip.item()))


def test_infinite_clip_is_importance_weighting() -> None:
    log_prob, behaviour, advantage = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    loss = ppo_clip(log_prob, behaviour, advantage, clip=math.inf)
    assert torch.equal(loss, -advantage * torch.exp(log_prob - behaviour))


def test_behaviour_and_advantage_are_constants() -> None:
    def total(log_prob: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
        clipped = ppo_clip(log_prob, behaviour, advantage, clip=0.2)
        return (clipped + policy_gradient(log_prob, advantage)).sum()

    inputs = torch.tensor([-1.0]), torch.tensor([-1.1]), torch.tensor([2.0])
    slopes = torch.func.grad(total, argnums=(0, 1, 2))(*inputs)
    assert float(slopes[0]) != 0.0
    assert (float(slopes[1]), float(slopes[2])) == (0.0, 0.0)


def test_a_ratio_that_overflows_is_clipped_without_poison() -> None:
    log_prob, behaviour, advantage = torch.zeros(2), torch.tensor([-1000.0, -0.0]), torch.tensor([3.0, 3.0])
    slope, loss = torch.func.grad_and_value(lambda x: ppo_clip(x, behaviour, advantage, clip=0.25).sum())(log_prob)
    assert (slope.tolist(), loss.item()) == ([0.0, -3.0], -6.75)
    exploded = ppo_clip(log_prob, behaviour, -advantage, clip=0.25)  # not clipped, so not hidden
    assert exploded.tolist() == [math.inf, 3.0]


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_steps_neutralised_before_the_loss_are_nothing(garbage: float) -> None:
    mask = torch.tensor([True, False])

    def total(log_prob: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
        kept = [torch.where(mask, x, 0.0) for x in (log_prob, behaviour, advantage)]
        loss = ppo_clip(*kept, clip=0.2) + policy_gradient(kept[0], kept[2]) + k3(kept[0], kept[1])
        return torch.where(mask, loss, 0.0).sum()

    clean = [torch.tensor([x, 0.0]) for x in (-1.0, -1.25, 2.0)]
    dirty = [torch.where(mask, x, garbage) for x in clean]
    assert torch.equal(total(*dirty), total(*clean))
    assert torch.equal(torch.func.grad(total)(*dirty), torch.func.grad(total)(*clean))


@pytest.mark.slow
def test_a_batch_is_its_singles_and_one_graph(compiled: Any) -> None:
    log_prob, behaviour, advantage = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(2))

    def loss(log_prob: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
        return ppo_clip(log_prob, behaviour, advantage, clip=(0.2, 0.28)) + policy_gradient(log_prob, advantage)

    whole = loss(log_prob, behaviour, advantage)
    assert torch.equal(torch.vmap(torch.vmap(loss))(log_prob, behaviour, advantage), whole)
    assert torch.equal(compiled(loss)(log_prob, behaviour, advantage), whole)


def test_wrong_arguments_are_refused() -> None:
    three = torch.zeros(3)
    with pytest.raises(ShapeError, match=r"policy_gradient: advantage is \[2\], wanted \[3\]"):
        policy_gradient(three, torch.zeros(2))
    with pytest.raises(ShapeError, match="ppo_clip: behaviour_log_prob"):
        ppo_clip(three, torch.zeros(3, 1), three, clip=0.2)
    with pytest.raises(ChoiceError, match=r"ppo_clip: clip below is -0\.2, wanted a number from 0"):
        ppo_clip(three, three, three, clip=-0.2)
    with pytest.raises(ChoiceError, match="ppo_clip: clip above is nan"):
        ppo_clip(three, three, three, clip=(0.2, math.nan))
    for estimator in (k1, k2, k3):
        with pytest.raises(ShapeError, match=f"{estimator.__name__}: reference_log_prob"):
            estimator(three, torch.zeros(2))


def test_divergence_estimators_by_enumeration() -> None:
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    q = torch.tensor([0.125, 0.125, 0.75], dtype=torch.float64)
    divergence = (p * (p.log() - q.log())).sum()
    torch.testing.assert_close((p * k1(p.log(), q.log())).sum(), divergence)
    torch.testing.assert_close((p * k3(p.log(), q.log())).sum(), divergence)
    torch.testing.assert_close((p * k2(p.log(), q.log())).sum(), (p * (p.log() - q.log()) ** 2).sum() / 2)


def test_divergence_estimators_at_and_near_equality() -> None:
    log_prob = torch.randn(2000, generator=torch.Generator().manual_seed(3))
    for estimator in (k1, k2, k3):
        assert torch.equal(estimator(log_prob, log_prob), torch.zeros(2000))
    for scale in (1e-6, 1e-3, 1.0, 10.0):
        reference = log_prob + scale * torch.randn(2000, generator=torch.Generator().manual_seed(4))
        assert bool((k3(log_prob, reference) >= 0).all())
    near = torch.tensor(1e-3, dtype=torch.float64)
    torch.testing.assert_close(k3(near * 0, near), k2(near * 0, near), rtol=1e-3, atol=0.0)
