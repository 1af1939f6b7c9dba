"""Group advantages: the numbers of the systems by hand, odd groups, baselines over time, what is dropped."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.language.group_advantages import (
    dr_grpo_advantages,
    ema_baseline,
    group_advantages,
    grpo_advantages,
    rloo_advantages,
    zero_spread,
)
from purestep.core.errors import ChoiceError, DtypeError, ShapeError

REWARD = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0])  # the first, second, fourth and fifth row are one group
GROUP = torch.tensor(
    [0, 0, 1, 0, 0]
)  # mean 1/4, deviations 3/4 and -1/4, variance 3/16 or, with n - 1, 1/4; then one alone


@pytest.mark.parametrize(
    ("system", "named", "first", "second", "alone"),
    [
        ("TRL", {"scale": "std", "eps": 1e-4}, 1.49970006, -0.49990002, 0.0),
        ("verl", {"scale": "std", "eps": 1e-6, "singleton": "raw"}, 1.499997, -0.499999, 1.999998),
        ("AReaL", {"scale": "std", "eps": 1e-5}, 1.49997, -0.49999, 0.0),
        (
            "AReaL, mean left out",
            {"centre": "leave_one_out", "scale": "std", "eps": 1e-5, "singleton": "raw"},
            1.99996,
            -0.66665333,
            1.99998,
        ),
        ("PipelineRL", {"centre": "leave_one_out", "scale": "std", "eps": 1e-4}, 1.99960008, -0.66653336, 0.0),
        ("ludic", {"scale": "std", "ddof": 0, "eps": 1e-8}, math.sqrt(3.0), -1 / math.sqrt(3.0), 0.0),
        ("OpenRLHF", {"scale": "std", "eps": 1e-9}, 1.5, -0.5, 0.0),
        ("prime-rl", {"scale": "none"}, 0.75, -0.25, 0.0),
        ("RLOO", {"centre": "leave_one_out"}, 1.0, -1 / 3, 0.0),
        ("verl's rloo", {"centre": "leave_one_out", "singleton": "raw"}, 1.0, -1 / 3, 2.0),
        ("no baseline", {"centre": "none"}, 1.0, 0.0, 2.0),
    ],
)
def test_the_numbers_of_a_system(system: str, named: Any, first: float, second: float, alone: float) -> None:
    got = group_advantages(REWARD.double(), GROUP, groups=2, **named)
    wanted = torch.tensor([first, second, alone, second, second], dtype=torch.float64)
    torch.testing.assert_close(got, wanted, rtol=1e-7, atol=1e-7)


def test_presets_are_what_they_say() -> None:
    assert torch.equal(grpo_advantages(REWARD, GROUP, groups=2), group_advantages(REWARD, GROUP, groups=2, scale="std"))
    assert torch.equal(dr_grpo_advantages(REWARD, GROUP, groups=2), group_advantages(REWARD, GROUP, groups=2))
    loo = group_advantages(REWARD, GROUP, groups=2, centre="leave_one_out")
    assert torch.equal(rloo_advantages(REWARD, GROUP, groups=2), loo)
    torch.testing.assert_close(loo, dr_grpo_advantages(REWARD, GROUP, groups=2) * 4 / 3)


def test_the_scale_of_a_batch_is_one_number() -> None:
    """TRL's scale_rewards="batch": centred in groups, divided by the deviation of all rewards, 0.8944 here."""
    got = group_advantages(REWARD, GROUP, groups=2, scale="batch_std", eps=0.0)
    torch.testing.assert_close(got, torch.tensor([0.75, -0.25, 0.0, -0.25, -0.25]) / REWARD.std())
    without = group_advantages(REWARD, torch.where(GROUP == 1, -1, GROUP), groups=2, scale="batch_std", eps=0.0)
    torch.testing.assert_close(without[:2], torch.tensor([1.5, -0.5]))


@pytest.mark.parametrize("scale", ["none", "std", "batch_std"])
@pytest.mark.parametrize("centre", ["mean", "leave_one_out"])
def test_equal_rewards_teach_exactly_nothing(centre: str, scale: str) -> None:
    reward = torch.tensor([0.1, 0.7, 0.1, 0.1, 0.7, 0.1, 0.1, 0.1, 0.1])  # neither sum is exact in binary
    group = torch.tensor([0, 1, 0, 0, 1, 0, 0, 0, 0])
    for eps in (0.0, 1e-4):
        got = group_advantages(reward, group, groups=3, centre=centre, scale=scale, eps=eps)
        assert torch.equal(got, torch.zeros(9))


def test_a_large_common_part_leaves_no_rounding_behind() -> None:
    reward = torch.tensor([1.0, 0.0, 0.0, 0.0]) + 2.0**20
    group = torch.zeros(4, dtype=torch.int64)
    torch.testing.assert_close(
        grpo_advantages(reward, group, groups=1), torch.tensor([1.4997, -0.4999, -0.4999, -0.4999])
    )


def test_an_id_too_large_is_loud_and_one_below_zero_is_no_group() -> None:
    got = group_advantages(REWARD, torch.tensor([0, 0, 2, -1, -7]), groups=2)
    assert got[:2].tolist() == [0.5, -0.5]
    assert got.isnan().tolist() == [False, False, True, False, False]
    assert got[3:].tolist() == [0.0, 0.0]
    assert group_advantages(REWARD, GROUP - 5, groups=1, centre="none").tolist() == [0.0] * 5


def test_nan_stays_in_its_group() -> None:
    reward = torch.where(torch.arange(5) == 1, torch.nan, REWARD)
    got = grpo_advantages(reward, GROUP, groups=2)
    assert got.isnan().tolist() == [True, True, False, True, True]
    scored = torch.where(reward.isnan(), -1, GROUP)
    torch.testing.assert_close(
        dr_grpo_advantages(reward, scored, groups=2), torch.tensor([2 / 3, 0, 0, -1 / 3, -1 / 3])
    )


def test_ids_may_be_of_either_width_and_groups_may_be_empty() -> None:
    wide = grpo_advantages(REWARD, GROUP, groups=2)
    assert torch.equal(grpo_advantages(REWARD, GROUP.int(), groups=9), wide)


def test_groups_without_spread_are_named() -> None:
    reward = torch.tensor([1.0, 1.0, 0.0, 1.0, 5.0, 3.0, torch.nan, 2.0])
    group = torch.tensor([0, 0, 1, 1, 2, -1, 3, 3])
    assert zero_spread(reward, group, groups=4).tolist() == [True, True, False, False, True, True, False, False]


def test_a_baseline_over_time() -> None:
    baseline = torch.tensor([0.0, 10.0, 4.0])
    group = torch.tensor([1, 0, 1, -1, 3])
    after, advantage = ema_baseline(baseline, torch.tensor([8.0, 2.0, 4.0, 9.0, 9.0]), group, decay=0.75)
    assert after.tolist() == [0.5, 9.0, 4.0]
    assert advantage[:4].tolist() == [-2.0, 2.0, -6.0, 0.0]
    assert advantage[4].isnan()


def test_a_baseline_finds_the_mean() -> None:
    baseline, advantage, group = torch.zeros(1), torch.zeros(2), torch.tensor([0, 0])
    for _ in range(40):
        baseline, advantage = ema_baseline(baseline, torch.tensor([1.0, 5.0]), group, decay=0.5)
    torch.testing.assert_close(baseline, torch.tensor([3.0]))
    torch.testing.assert_close(advantage, torch.tensor([-2.0, 2.0]))


def test_a_population_of_settings_is_one_vmap() -> None:
    eps = torch.tensor([1e-4, 1e-1])

    def scaled(value: Tensor) -> Tensor:
        return grpo_advantages(REWARD, GROUP, groups=2, eps=value)

    for i, row in enumerate(torch.vmap(scaled)(eps)):
        torch.testing.assert_close(row, scaled(eps[i]))


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ShapeError, match=r"group_advantages: group is \[4\], wanted \[5\] as value"):
        group_advantages(REWARD, GROUP[1:], groups=2)
    with pytest.raises(ShapeError, match=r"group_advantages: value is \[5, 1\], wanted 1 axes"):
        group_advantages(REWARD[:, None], GROUP[:, None], groups=2)
    with pytest.raises(DtypeError, match=r"group_advantages: group is torch\.float32, wanted integers"):
        group_advantages(REWARD, GROUP.float(), groups=2)
    with pytest.raises(ChoiceError, match="group_advantages: groups is 0, wanted at least 1"):
        group_advantages(REWARD, GROUP, groups=0)
    with pytest.raises(ChoiceError, match="did you mean 'leave_one_out'"):
        group_advantages(REWARD, GROUP, groups=2, centre="leave_out")
    with pytest.raises(ChoiceError, match="group_advantages: scale is 'range'"):
        group_advantages(REWARD, GROUP, groups=2, scale="range")
    with pytest.raises(ChoiceError, match="group_advantages: singleton is 'nan'"):
        group_advantages(REWARD, GROUP, groups=2, singleton="nan")
    with pytest.raises(ChoiceError, match="group_advantages: ddof is 2, wanted 0 or 1"):
        group_advantages(REWARD, GROUP, groups=2, ddof=2)
    with pytest.raises(ChoiceError, match=r"group_advantages: eps is -0\.1"):
        group_advantages(REWARD, GROUP, groups=2, eps=-0.1)
    with pytest.raises(ChoiceError, match=r"ema_baseline: decay is 1\.5"):
        ema_baseline(torch.zeros(2), REWARD, GROUP, decay=1.5)
