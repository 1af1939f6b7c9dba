"""Generalized advantages and V-trace: hand-computed numbers, and the laws of properties in their small form."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.advantages import bootstrap, gae
from purestep.algorithms.vtrace import vtrace
from purestep.core.errors import ChoiceError, DtypeError, ShapeError

LAMBDAS = [0.0, 0.5, 1.0]
Stream = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def stream(seed: int, *shape: int, ends: float = 0.25) -> Stream:
    """rewards, values, next_values (multiples of 1/4), terminated, truncated; values and next_values are unrelated."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-31, 32, (3, *shape), generator=generator).float() / 4
    rewards, values, next_values = numbers
    terminated, truncated = torch.rand((2, *shape), generator=generator) < ends
    return rewards, values, next_values, terminated, truncated


def estimate(data: Stream, lambda_: float, gamma: float = 0.5) -> Tensor:
    return gae(*data, gamma=gamma, lambda_=lambda_)


def test_by_hand() -> None:
    rewards, values = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 8.0, 2.0])
    next_values = torch.tensor([8.0, 100.0, 16.0])
    terminated, truncated = torch.tensor([False, True, False]), torch.zeros(3, dtype=torch.bool)
    # d = 1 + 4 - 4, 2 - 8, 3 + 8 - 2;  A_1 = -6;  A_0 = 1 - 6/4;  A_2 = 9
    result = gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=0.5)
    assert result.tolist() == [-0.5, -6.0, 9.0]
    # truncated instead: d_1 = 2 + 50 - 8
    result = gae(rewards, values, next_values, truncated, terminated, gamma=0.5, lambda_=0.5)
    assert result.tolist() == [12.0, 44.0, 9.0]


@pytest.mark.parametrize("seed", range(20))
def test_lambda_zero_is_the_temporal_difference(seed: int) -> None:
    data = stream(seed, 6)
    rewards, values, next_values, terminated, _ = data
    assert torch.equal(estimate(data, 0.0), rewards + 0.5 * (~terminated) * next_values - values)


@pytest.mark.parametrize("seed", range(20))
def test_lambda_one_is_the_explicit_sum(seed: int) -> None:
    data = stream(seed, 6)
    rewards, values, next_values, terminated, truncated = data
    values = torch.cat([values[:1], next_values[:-1]])  # inside an episode the next state is one state
    result = gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=1.0)
    for start in range(6):
        end = next((t for t in range(start, 6) if terminated[t] or truncated[t]), 5)
        total = sum(0.5 ** (t - start) * rewards[t].item() for t in range(start, end + 1))
        if not terminated[end]:
            total += 0.5 ** (end - start + 1) * next_values[end].item()
        assert result[start].item() == total - values[start].item()


@pytest.mark.parametrize("lambda_", LAMBDAS)
@pytest.mark.parametrize("seed", range(10))
def test_cutting_at_endings_changes_nothing(seed: int, lambda_: float) -> None:
    data = stream(seed, 7)
    whole = estimate(data, lambda_)
    ends = [t + 1 for t in range(7) if data[3][t] or data[4][t]]
    pieces = list(zip([0, *ends], [*ends, 7], strict=True))
    parts = [gae(*(x[a:b] for x in data), gamma=0.5, lambda_=lambda_) for a, b in pieces]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("seed", range(10))
def test_the_past_and_other_episodes_have_no_influence(seed: int) -> None:
    data, other = stream(seed, 7, ends=0.0), stream(seed + 100, 7, ends=0.0)
    truncated = torch.arange(7) == 4
    outside = (torch.arange(7) < 2) | (torch.arange(7) > 4)
    rewards, values, next_values, terminated = (
        torch.where(outside, b, a) for a, b in zip(data[:4], other[:4], strict=True)
    )
    first = gae(*data[:4], truncated, gamma=0.5, lambda_=1.0)
    second = gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=1.0)
    assert torch.equal(first[2:5], second[2:5])
    assert not torch.equal(first[:2], second[:2])


@pytest.mark.parametrize("seed", range(10))
def test_linear_in_rewards_and_values_together(seed: int) -> None:
    a, b = stream(seed, 6), stream(seed + 1, 6)
    ends = a[3], a[4]
    rewards, values, next_values = (2 * x - y for x, y in zip(a[:3], b[:3], strict=True))
    both = gae(rewards, values, next_values, *ends, gamma=0.5, lambda_=0.5)
    assert torch.equal(both, 2 * estimate(a, 0.5) - estimate((*b[:3], *ends), 0.5))


@pytest.mark.parametrize("lambda_", LAMBDAS)
@pytest.mark.parametrize("seed", range(10))
def test_shaping_leaves_advantages(seed: int, lambda_: float) -> None:
    rewards, values, next_values, terminated, truncated = stream(seed, 6)
    potentials, next_potentials = stream(seed + 1, 6)[:2]
    shaped = rewards + 0.5 * (~terminated) * next_potentials - potentials
    moved = gae(
        shaped, values - potentials, next_values - next_potentials, terminated, truncated, gamma=0.5, lambda_=lambda_
    )
    assert torch.equal(moved, gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=lambda_))


def test_terminated_ignores_the_next_value_and_truncated_counts_it() -> None:
    rewards, values, next_values, _, _ = stream(3, 4)
    terminated = torch.tensor([False, True, True, False])
    truncated = torch.tensor([True, False, True, False])

    def total(next_values: Tensor) -> Tensor:
        return gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=0.5).sum()

    assert torch.func.grad(total)(next_values).tolist() == [0.5, 0.0, 0.0, 0.5]
    poisoned = torch.where(terminated, torch.nan, next_values)
    assert torch.equal(total(poisoned), total(next_values))
    assert torch.func.grad(total)(poisoned).tolist() == [0.5, 0.0, 0.0, 0.5]
    assert bootstrap(poisoned, terminated).tolist() == [next_values[0].item(), 0.0, 0.0, next_values[3].item()]


def test_batch_is_its_streams_with_and_without_vmap() -> None:
    data = stream(5, 11, 3)
    whole = gae(*data, gamma=0.5, lambda_=0.5)
    mapped = torch.vmap(lambda row: estimate(row, 0.5), in_dims=1, out_dims=1)(data)
    singles = [gae(*(x[:, i] for x in data), gamma=0.5, lambda_=0.5) for i in range(3)]
    assert torch.equal(whole, mapped)
    assert torch.equal(whole, torch.stack(singles, 1))


def test_hyperparameters_may_be_tensors_of_a_population() -> None:
    data = stream(6, 5)
    gammas = torch.tensor([0.5, 1.0], dtype=torch.float64)
    lambdas = torch.tensor([1.0, 0.5], dtype=torch.float64)
    mapped = torch.vmap(lambda gamma, lambda_: gae(*data, gamma=gamma, lambda_=lambda_))(gammas, lambdas)
    assert mapped.dtype == torch.float32
    assert torch.equal(mapped[0], gae(*data, gamma=0.5, lambda_=1.0))
    assert torch.equal(mapped[1], gae(*data, gamma=1.0, lambda_=0.5))


def test_gradients_are_right() -> None:
    rewards, values, next_values, terminated, truncated = stream(7, 10)
    inputs = [x.double().requires_grad_() for x in (rewards, values, next_values, torch.tensor(0.9), torch.tensor(0.8))]

    def advantages(r: Tensor, v: Tensor, after: Tensor, gamma: Tensor, lambda_: Tensor) -> Tensor:
        return gae(r, v, after, terminated, truncated, gamma=gamma, lambda_=lambda_)

    assert torch.autograd.gradcheck(advantages, inputs)


@pytest.mark.slow
def test_compiled_bits_are_eager_bits(compiled: Any) -> None:
    data = stream(8, 21, 3)  # three blocks, the last one filled up

    def advantages(*data: Tensor) -> Tensor:
        return gae(*data, gamma=0.5, lambda_=1.0)

    exact = tuple(x.double() if x.is_floating_point() else x for x in data)
    result = compiled(advantages, backend="inductor")(*exact)
    assert torch.equal(result, advantages(*exact))


def test_wrong_arguments_are_refused() -> None:
    rewards, values, next_values, terminated, truncated = stream(0, 4)
    with pytest.raises(ShapeError, match=r"gae: values is \[5\], wanted \[4\] as rewards"):
        gae(rewards, torch.ones(5), next_values, terminated, truncated, gamma=0.5, lambda_=0.5)
    with pytest.raises(DtypeError, match="gae: terminated"):
        gae(rewards, values, next_values, terminated.float(), truncated, gamma=0.5, lambda_=0.5)
    with pytest.raises(ChoiceError, match=r"gae: gamma is 99\.0, wanted a number from 0\.0 to 1\.0"):
        estimate((rewards, values, next_values, terminated, truncated), 0.5, gamma=99.0)
    with pytest.raises(ChoiceError, match="gae: lambda_"):
        estimate((rewards, values, next_values, terminated, truncated), -0.5)
    with pytest.raises(ChoiceError, match="vtrace: c_bar"):
        vtrace(torch.ones(4), rewards, values, next_values, terminated, truncated, gamma=0.5, c_bar=-1.0)
    with pytest.raises(ShapeError, match="vtrace: log_ratios"):
        vtrace(torch.ones(3), rewards, values, next_values, terminated, truncated, gamma=0.5)


@pytest.mark.parametrize("lambda_", LAMBDAS)
@pytest.mark.parametrize("seed", range(10))
def test_vtrace_on_policy_is_the_lambda_return(seed: int, lambda_: float) -> None:
    data = stream(seed, 6)
    result = vtrace(torch.zeros(6), *data, gamma=0.5, lambda_=lambda_)
    assert torch.equal(result.targets, data[1] + estimate(data, lambda_))


def test_vtrace_of_impossible_actions_is_the_value() -> None:
    data = stream(1, 6)
    result = vtrace(torch.full((6,), -torch.inf), *data, gamma=0.5)
    assert torch.equal(result.targets, data[1])
    assert torch.equal(result.advantages, torch.zeros(6))


def test_vtrace_by_hand() -> None:
    log_ratios = torch.log(torch.tensor([4.0, 0.5, 2.0]))
    rewards, values = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2.0, 4.0, 8.0])
    next_values = torch.tensor([4.0, 16.0, 6.0])
    no, truncated = torch.zeros(3, dtype=torch.bool), torch.tensor([False, True, False])
    # d = 1, 6, -1; rho = 2, 1/2, 2; c = 1, 1/2, 1;  x_1 = 3, x_0 = 2 * 1 + 1/2 * 3, x_2 = -2
    result = vtrace(log_ratios, rewards, values, next_values, no, truncated, gamma=0.5, rho_bar=2.0, c_bar=1.0)
    torch.testing.assert_close(result.targets, torch.tensor([5.5, 7.0, 6.0]))
    # 2 (1 + 7/2 - 2), (2 + 16/2 - 4) / 2 with the value beyond the truncation, 2 (4 + 6/2 - 8)
    torch.testing.assert_close(result.advantages, torch.tensor([5.0, 3.0, -2.0]))


@pytest.mark.parametrize("seed", range(10))
def test_vtrace_without_thresholds_is_importance_sampling_for_each_decision(seed: int) -> None:
    rewards, values, next_values, terminated, truncated = (x.double() for x in stream(seed, 6))
    values = torch.cat([values[:1], next_values[:-1]])
    terminated, truncated = terminated.bool(), truncated.bool()
    ratios = 2.0 ** torch.randint(-2, 3, (6,), generator=torch.Generator().manual_seed(seed)).double()
    result = vtrace(
        torch.log(ratios), rewards, values, next_values, terminated, truncated, gamma=0.5, rho_bar=99.0, c_bar=99.0
    )
    for start in range(6):
        weight, total = 1.0, values[start].item()
        for t in range(start, 6):
            weight *= ratios[t].item()
            beyond = 0.0 if terminated[t] else 0.5 * next_values[t].item()
            total += 0.5 ** (t - start) * weight * (rewards[t].item() + beyond - values[t].item())
            if terminated[t] or truncated[t]:
                break
        assert result.targets[start].item() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_vtrace_does_not_leak_across_endings(seed: int) -> None:
    data = stream(seed, 7)
    log_ratios = torch.log(torch.tensor([0.5, 1.0, 2.0, 0.25, 1.0, 4.0, 0.5]))
    whole = vtrace(log_ratios, *data, gamma=0.5)
    ends = [t + 1 for t in range(7) if data[3][t] or data[4][t]]
    pieces = list(zip([0, *ends], [*ends, 7], strict=True))
    parts = [vtrace(log_ratios[a:b], *(x[a:b] for x in data), gamma=0.5) for a, b in pieces]
    assert torch.equal(whole.targets, torch.cat([part.targets for part in parts]))
    assert torch.equal(whole.advantages, torch.cat([part.advantages for part in parts]))


def test_vtrace_is_one_graph_and_takes_a_batch(compiled: Any) -> None:
    data = stream(2, 5, 3)

    def run(log_ratios: Tensor, *data: Tensor) -> Any:
        return vtrace(log_ratios, *data, gamma=0.5)

    log_ratios = torch.zeros(5, 3)
    whole = run(log_ratios, *data)
    assert torch.equal(compiled(run)(log_ratios, *data).advantages, whole.advantages)
    mapped = torch.vmap(run, in_dims=1, out_dims=1)(log_ratios, *data)
    assert torch.equal(mapped.targets, whole.targets)
