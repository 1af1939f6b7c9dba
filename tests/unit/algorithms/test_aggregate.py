"""Reductions of losses of tokens: values by hand, TRL's loss types, splits into micro-batches, counts of zero."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.aggregate import (
    constant_length,
    divided,
    sequence_count,
    sequence_mean,
    sequence_sum_mean,
    sum_of_sequence_means,
    token_count,
    token_mean,
    token_sum,
)
from purestep.core.errors import ChoiceError

ROWS, LENGTH = 4, 5
MASK = torch.arange(LENGTH) < torch.tensor([5, 2, 0, 3])[:, None]


def random(seed: int) -> Tensor:
    return torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(seed))


def test_reductions_by_hand() -> None:
    loss = torch.tensor([[1.0, 2.0, 3.0], [10.0, 7.0, 7.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    assert token_sum(loss, mask).item() == 16.0
    assert sum_of_sequence_means(loss, mask).item() == 12.0
    assert (token_count(mask).item(), sequence_count(mask).item()) == (4, 2)
    assert token_mean(loss, mask).item() == 4.0
    assert sequence_mean(loss, mask).item() == 6.0
    assert sequence_sum_mean(loss, mask).item() == 8.0
    assert constant_length(loss, mask, length=8).item() == pytest.approx(16 / 24)
    assert token_mean(loss, mask, denominator=torch.tensor(8)).item() == 2.0


def trl(loss_type: str, loss: Tensor, mask: Tensor, *, items: int, steps: int) -> Tensor:
    """TRL's reductions, written by their definitions with its product with the mask (padding here is finite)."""
    kept = loss * mask
    if loss_type == "grpo":
        return torch.stack([row.sum() / max(1, int(m.sum())) for row, m in zip(kept, mask, strict=True)]).mean() / steps
    if loss_type == "bnpo":
        return kept.sum() / mask.sum().clamp(min=1) / steps
    return kept.sum() / (len(mask) * LENGTH) / steps if loss_type == "dr_grpo" else kept.sum() / items


@pytest.mark.parametrize(
    ("loss_type", "ours"),
    [
        ("grpo", lambda loss, mask, items, steps: sequence_mean(loss, mask, denominator=len(mask) * steps)),
        ("bnpo", lambda loss, mask, items, steps: token_mean(loss, mask) / steps),
        (
            "dr_grpo",
            lambda loss, mask, items, steps: constant_length(
                loss, mask, length=LENGTH, denominator=len(mask) * LENGTH * steps
            ),
        ),
        ("dapo", lambda loss, mask, items, steps: token_mean(loss, mask, denominator=items)),
    ],
)
def test_trls_loss_types_are_expressed(loss_type: str, ours: Any) -> None:
    """Two micro-batches of two sequences, accumulated."""
    loss = random(0)
    items = int(MASK.sum())
    parts = [(loss[:2], MASK[:2]), (loss[2:], MASK[2:])]
    wanted = sum(trl(loss_type, *part, items=items, steps=2) for part in parts)
    torch.testing.assert_close(sum(ours(*part, items, 2) for part in parts), wanted)


def test_which_reductions_forget_the_split() -> None:
    """By itself a micro-batch of a mean divides by its own count; with the whole's denominator it does not."""
    loss = random(1)
    parts = [(loss[:3], MASK[:3]), (loss[3:], MASK[3:])]
    denominators: dict[Any, Tensor | float] = {
        token_mean: token_count(MASK),
        sequence_mean: sequence_count(MASK),
        sequence_sum_mean: sequence_count(MASK),
        partial(constant_length, length=LENGTH): float(ROWS * LENGTH),
    }
    for reduce, denominator in denominators.items():
        torch.testing.assert_close(sum(reduce(*part, denominator=denominator) for part in parts), reduce(loss, MASK))
        assert abs(float(sum(reduce(*part) for part in parts) / 2 - reduce(loss, MASK))) > 1e-3


def test_what_is_left_out_weighs_nothing_when_the_count_came_before() -> None:
    loss = torch.ones(1, 4)
    before = torch.tensor([[True, True, True, True]])
    after = torch.tensor([[True, False, False, False]])
    assert token_mean(loss, after, denominator=token_count(before)).item() == 0.25
    assert token_mean(loss, after).item() == 1.0


def test_denominators_of_zero_and_below() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for reduce in (token_mean, sequence_mean, sequence_sum_mean, partial(constant_length, length=0)):
        assert reduce(torch.full((2, 3), torch.nan), nothing).item() == 0.0
    assert divided(torch.tensor(3.0), torch.tensor(0.0)).item() == divided(torch.tensor(3.0), 0).item() == 3.0
    with pytest.raises(ChoiceError, match="denominator is -1"):
        token_mean(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool), denominator=-1)
