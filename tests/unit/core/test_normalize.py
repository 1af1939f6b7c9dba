"""Running statistics against numpy on everything seen, however it was cut; reward scales against a plain loop."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys, normalize
from purestep.core.errors import ShapeError
from purestep.core.normalize import Statistics
from purestep.core.tree import leaves


def data(rows: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers [rows, 3] of unlike means and spreads."""
    return keys.normal(keys.key(seed), (rows, 3), dtype=dtype) * torch.tensor([1.0, 20.0, 0.1]).to(dtype) + 5.0


def assert_same(got: Statistics, wanted: Statistics, rtol: float = 1e-9) -> None:
    for one, other in zip(leaves(got), leaves(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=1e-12)


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(lambda rows: sum(rows) > 0))
def test_updates_by_batches_are_numpy_on_the_concatenation(rows: list[int]) -> None:
    batches = [data(n, seed) for seed, n in enumerate(rows) if n > 0]
    current = normalize.statistics((3,), dtype=torch.float64)
    for batch in batches:
        current = normalize.update(current, batch)
    everything = np.concatenate([batch.numpy() for batch in batches])
    assert float(current.count) == len(everything)
    np.testing.assert_allclose(current.mean.numpy(), everything.mean(0), rtol=1e-10)
    np.testing.assert_allclose(current.variance.numpy(), everything.var(0), rtol=1e-9, atol=1e-12)


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(st.tuples(*[st.integers(1, 9)] * 3))
def test_merging_is_associative_and_commutative_with_nothing_as_its_neutral(rows: tuple[int, int, int]) -> None:
    a, b, c = (normalize.of_batch(data(n, seed)) for seed, n in enumerate(rows))
    assert_same(normalize.merge(normalize.merge(a, b), c), normalize.merge(a, normalize.merge(b, c)))
    assert_same(normalize.merge(a, b), normalize.merge(b, a))
    nothing = normalize.statistics((3,), dtype=torch.float64)
    for one, other in zip(leaves(normalize.merge(nothing, a)), leaves(a), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(leaves(normalize.merge(a, nothing)), leaves(a), strict=True):
        assert torch.equal(one, other)
    assert_same(normalize.merge(nothing, nothing), nothing)


def test_float32_stays_accurate_over_many_batches_far_from_zero() -> None:
    x = 1000.0 + keys.normal(keys.key(0), (400, 64, 1))
    current = normalize.statistics((1,))
    for batch in x:
        current = normalize.update(current, batch)
    exact = x.double().reshape(-1)
    assert abs(float(current.mean) - float(exact.mean())) < 1e-3
    assert abs(float(current.variance) / float(exact.var(correction=0)) - 1.0) < 1e-3


@pytest.mark.parametrize("lead", [(), (7,), (4, 2)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_any_leading_axes_and_any_shape_of_observation(lead: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = keys.normal(keys.key(0), lead + shape)
    current = normalize.update(normalize.statistics(shape), x)
    rows = x.reshape(-1, *shape)
    assert float(current.count) == rows.shape[0]
    torch.testing.assert_close(current.mean, rows.mean(0))
    torch.testing.assert_close(current.variance, rows.var(0, correction=0))


def test_normalized_data_has_mean_zero_and_variance_one() -> None:
    x = data(500)
    current = normalize.of_batch(x)
    z = normalize.normalize(current, x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3).double(), rtol=0.0, atol=1e-9)
    torch.testing.assert_close(z.var(0, correction=0), torch.ones(3).double(), rtol=1e-5, atol=0.0)
    clipped = normalize.normalize(current, x, clip=1.5)
    torch.testing.assert_close(clipped, z.clamp(-1.5, 1.5))
    assert bool((clipped.abs() == 1.5).any())


def test_before_any_data_nothing_changes() -> None:
    x = data(5)
    torch.testing.assert_close(normalize.normalize(normalize.statistics((3,), dtype=torch.float64), x), x)
    torch.testing.assert_close(normalize.scale_rewards(normalize.reward_scale((5,)), torch.ones(5)), torch.ones(5))


def test_a_constant_observation_becomes_zero() -> None:
    current = normalize.of_batch(torch.full((9, 1), 4.0))
    assert float(normalize.normalize(current, torch.tensor([4.0]))) == 0.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"update: batch is \[5, 2\], wanted \[\*, \*\[3\]\]"):
        normalize.update(normalize.statistics((3,)), torch.zeros(5, 2))
    with pytest.raises(ShapeError, match="update: batch"):
        normalize.update(normalize.statistics((3,)), torch.zeros(()))
    flags = torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(ShapeError, match="put time first"):
        normalize.update_reward_scale(normalize.reward_scale((3,)), torch.zeros(4, 2), flags, flags, gamma=0.9)
    with pytest.raises(ShapeError, match="update_reward_scale: truncated"):
        normalize.update_reward_scale(normalize.reward_scale((2,)), torch.zeros(4, 2), flags, flags[:3], gamma=0.9)


def trajectory(steps: int, envs: int) -> tuple[Tensor, Tensor, Tensor]:
    a, b, c = keys.split(keys.key(2), 3)
    shape = (steps, envs)
    return keys.normal(a, shape) + 1.0, keys.bernoulli(b, 0.2, shape), keys.bernoulli(c, 0.1, shape)


def test_reward_scale_is_the_spread_of_discounted_returns_of_a_plain_loop() -> None:
    rewards, terminated, truncated = trajectory(30, 4)
    assert bool((truncated & ~terminated).any())
    returns, running = [], [0.0] * 4
    for t in range(30):
        for i in range(4):
            running[i] = 0.9 * running[i] + float(rewards[t, i])
            returns.append(running[i])
            if terminated[t, i] or truncated[t, i]:
                running[i] = 0.0
    scale = normalize.update_reward_scale(normalize.reward_scale((4,)), rewards, terminated, truncated, gamma=0.9)
    torch.testing.assert_close(scale.running_return, torch.tensor(running))
    spread = math.sqrt(np.var(returns))
    torch.testing.assert_close(normalize.scale_rewards(scale, rewards), rewards / spread)


def test_reward_scale_of_a_trajectory_is_that_of_its_pieces_and_of_its_steps() -> None:
    parts = trajectory(30, 4)
    start = normalize.reward_scale((4,))
    whole = normalize.update_reward_scale(start, *parts, gamma=0.9)
    for length in (1, 11):
        scale = start
        for t in range(0, 30, length):
            scale = normalize.update_reward_scale(scale, *(part[t : t + length] for part in parts), gamma=0.9)
        assert torch.equal(scale.running_return, whole.running_return)
        assert_same(scale.returns, whole.returns, rtol=1e-4)


def test_statistics_map_over_a_population_and_compile_whole() -> None:
    x = keys.normal(keys.key(0), (3, 8, 2))
    rewards, terminated, truncated = trajectory(4, 3)

    def both(x: Tensor, rewards: Tensor) -> tuple[Statistics, Tensor]:
        each = torch.vmap(lambda batch: normalize.update(normalize.statistics((2,)), batch))(x)
        scale = normalize.update_reward_scale(normalize.reward_scale((3,)), rewards, terminated, truncated, gamma=0.9)
        return each, normalize.scale_rewards(scale, rewards, clip=2.0)

    eager = both(x, rewards)
    for i in range(3):
        alone = normalize.update(normalize.statistics((2,)), x[i])
        torch.testing.assert_close(eager[0].mean[i], alone.mean)
        torch.testing.assert_close(eager[0].variance[i], alone.variance)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")(x, rewards)
    for got, wanted in zip(leaves(compiled), leaves(eager), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
