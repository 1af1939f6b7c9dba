"""Returns: hand-computed numbers, and their relations to one another on dyadic inputs, bit for bit."""

import pytest
import torch
from torch import Tensor

from purestep.algorithms.advantages import gae
from purestep.algorithms.returns import discounted, lambda_returns, n_step, stream_cuts
from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.scan import BLOCK, backwards

NO = torch.zeros(4, dtype=torch.bool)
SECOND = torch.tensor([False, True, False, False])
ONES = torch.ones(4)
EIGHTS = torch.full((4,), 8.0)


def dyadic(generator: torch.Generator, *shape: int) -> Tensor:
    """Multiples of 1/4 below 8 in absolute value."""
    return torch.randint(-31, 32, shape, generator=generator).double() / 4


def flags(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator) < 0.25


def chained(generator: torch.Generator, length: int) -> tuple[Tensor, ...]:
    """rewards, values, next_values, terminated, truncated of one stream; v'_t = v_t+1 inside an episode."""
    terminated, truncated = flags(generator, length), flags(generator, length)
    values = dyadic(generator, length + 1)
    next_values = torch.where(terminated | truncated, dyadic(generator, length), values[1:])
    return dyadic(generator, length), values[:-1], next_values, terminated, truncated


@pytest.mark.parametrize("length", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCK * BLOCK + 3])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_recurrence_is_the_loop(length: int, batch: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(length)
    a = (torch.rand((length, *batch), generator=generator) < 0.7).double()
    b = dyadic(generator, length, *batch)
    x, expected = torch.zeros(batch, dtype=torch.float64), []
    for t in reversed(range(length)):
        x = b[t] + a[t] * x
        expected.append(x)
    result = backwards(a, b)
    assert result.shape == b.shape
    assert torch.equal(result, torch.stack(expected[::-1]) if expected else b)


def test_recurrence_with_decay_is_near_the_loop_when_long() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(700, 2, generator=generator), torch.randn(700, 2, generator=generator)
    x, expected = torch.zeros(2, dtype=torch.float64), []
    for t in reversed(range(700)):
        x = b[t].double() + a[t].double() * x
        expected.append(x)
    torch.testing.assert_close(backwards(a, b).double(), torch.stack(expected[::-1]), rtol=1e-5, atol=1e-5)


def test_recurrence_neither_writes_nor_aliases() -> None:
    for length in (0, 1, BLOCK, BLOCK + 1):
        a, b = torch.ones(length), torch.ones(length)
        result = backwards(a, b)
        result += 1
        assert torch.equal(b, torch.ones(length))
        assert (a._version, b._version) == (0, 0)


def test_cut_is_every_ending_and_the_last_row() -> None:
    assert stream_cuts(SECOND, torch.tensor([True, False, False, False])).tolist() == [True, True, False, True]


def test_discounted_termination_hides_what_lies_beyond() -> None:
    result = discounted(ONES, SECOND, NO, gamma=0.5, next_values=EIGHTS)
    assert result.tolist() == [1.5, 1.0, 3.5, 5.0]


def test_discounted_truncation_bootstraps() -> None:
    result = discounted(ONES, NO, SECOND, gamma=0.5, next_values=EIGHTS)
    assert result.tolist() == [3.5, 5.0, 3.5, 5.0]


def test_discounted_termination_wins_over_truncation() -> None:
    both = discounted(ONES, SECOND, SECOND, gamma=0.5, next_values=EIGHTS)
    assert torch.equal(both, discounted(ONES, SECOND, NO, gamma=0.5, next_values=EIGHTS))


def test_discounted_without_values_stops_at_every_cut() -> None:
    assert discounted(ONES, NO, SECOND, gamma=0.5).tolist() == [1.5, 1.0, 1.5, 1.0]
    assert torch.equal(discounted(ONES, SECOND, NO, gamma=0.5), discounted(ONES, NO, SECOND, gamma=0.5))


def test_n_step_by_hand() -> None:
    values = torch.tensor([8.0, 16.0, 32.0, 64.0])
    assert n_step(ONES, values, NO, NO, gamma=0.5, n=1).tolist() == [5.0, 9.0, 17.0, 33.0]
    assert n_step(ONES, values, NO, NO, gamma=0.5, n=2).tolist() == [5.5, 9.5, 17.5, 33.0]
    assert n_step(ONES, values, SECOND, NO, gamma=0.5, n=3).tolist() == [1.5, 1.0, 17.5, 33.0]
    assert n_step(ONES, values, NO, SECOND, gamma=0.5, n=3).tolist() == [5.5, 9.0, 17.5, 33.0]


@pytest.mark.parametrize("seed", range(20))
def test_n_step_is_the_sum_of_its_definition(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards, _, next_values, terminated, truncated = chained(generator, 9)
    result = n_step(rewards, next_values, terminated, truncated, gamma=0.5, n=3)
    for start in range(9):
        total, discount, t = 0.0, 1.0, start
        while True:
            total += discount * rewards[t].item()
            discount *= 0.5
            if t == start + 2 or t == 8 or terminated[t] or truncated[t]:
                break
            t += 1
        assert result[start].item() == total + (0.0 if terminated[t] else discount * next_values[t].item())


@pytest.mark.parametrize("seed", range(20))
def test_n_step_and_lambda_returns_lead_to_the_discounted_return(seed: int) -> None:
    rewards, values, next_values, terminated, truncated = chained(torch.Generator().manual_seed(seed), 7)
    ends = terminated, truncated
    full = discounted(rewards, *ends, gamma=0.5, next_values=next_values)
    assert torch.equal(n_step(rewards, next_values, *ends, gamma=0.5, n=7), full)
    assert torch.equal(n_step(rewards, next_values, *ends, gamma=0.5, n=70), full)
    assert torch.equal(lambda_returns(rewards, values, next_values, *ends, gamma=0.5, lambda_=1.0), full)
    one = n_step(rewards, next_values, *ends, gamma=0.5, n=1)
    assert torch.equal(lambda_returns(rewards, values, next_values, *ends, gamma=0.5, lambda_=0.0), one)


@pytest.mark.parametrize("seed", range(20))
def test_lambda_return_is_the_average_of_n_step_returns(seed: int) -> None:
    length = 6
    rewards, values, next_values, terminated, truncated = chained(torch.Generator().manual_seed(seed), length)
    average = 0.5 ** (length - 1) * n_step(rewards, next_values, terminated, truncated, gamma=0.5, n=length)
    for n in range(1, length):
        average = average + 0.5**n * n_step(rewards, next_values, terminated, truncated, gamma=0.5, n=n)
    result = lambda_returns(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=0.5)
    assert torch.equal(result, average)
    advantages = gae(rewards, values, next_values, terminated, truncated, gamma=0.5, lambda_=0.5)
    assert torch.equal(result, values + advantages)


def test_streams_of_a_batch_are_independent() -> None:
    generator = torch.Generator().manual_seed(1)
    streams = [chained(generator, 10) for _ in range(3)]
    rewards, _, next_values, terminated, truncated = (torch.stack(group, 1) for group in zip(*streams, strict=True))
    whole = discounted(rewards, terminated, truncated, gamma=0.5, next_values=next_values)
    steps = n_step(rewards, next_values, terminated, truncated, gamma=0.5, n=3)
    for i, (r, _, after, term, trunc) in enumerate(streams):
        assert torch.equal(whole[:, i], discounted(r, term, trunc, gamma=0.5, next_values=after))
        assert torch.equal(steps[:, i], n_step(r, after, term, trunc, gamma=0.5, n=3))


def test_gamma_may_be_a_tensor_and_be_mapped() -> None:
    gammas = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    mapped = torch.vmap(lambda gamma: discounted(ONES, SECOND, NO, gamma=gamma, next_values=EIGHTS))(gammas)
    assert mapped.dtype == torch.float32
    for gamma, row in zip(gammas, mapped, strict=True):
        assert torch.equal(row, discounted(ONES, SECOND, NO, gamma=gamma.item(), next_values=EIGHTS))


def test_the_value_beyond_a_termination_has_no_effect() -> None:
    values = torch.tensor([8.0, torch.nan, 8.0, 8.0])
    assert torch.equal(
        discounted(ONES, SECOND, NO, gamma=0.5, next_values=values),
        discounted(ONES, SECOND, NO, gamma=0.5, next_values=EIGHTS),
    )
    assert torch.isfinite(n_step(ONES, values, SECOND, NO, gamma=0.5, n=3)).all()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"discounted: next_values is \[5\], wanted \[4\]"):
        discounted(ONES, NO, NO, gamma=0.5, next_values=torch.ones(5))
    with pytest.raises(DtypeError, match="terminated"):
        discounted(ONES, torch.zeros(4), NO, gamma=0.5)
    with pytest.raises(ShapeError, match="truncated"):
        n_step(ONES, ONES, NO, NO[:3], gamma=0.5, n=1)
    with pytest.raises(ChoiceError, match="n_step: n is 0"):
        n_step(ONES, ONES, NO, NO, gamma=0.5, n=0)
    with pytest.raises(ShapeError, match="gae: values"):
        lambda_returns(ONES, torch.ones(5), ONES, NO, NO, gamma=0.5, lambda_=0.5)
