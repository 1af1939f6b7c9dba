"""Conventions that users declare: what follows one keeps its laws, what follows another breaks them, a mistake is one line."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TransformReward
from torch import Tensor
from torch.distributions import Independent, LogNormal, Normal

from purestep.algorithms.language.group_advantages import group_advantages
from purestep.algorithms.returns import lambda_returns
from purestep.algorithms.value_losses import clipped
from purestep.algorithms.vtrace import vtrace
from purestep.core.errors import ChoiceError
from purestep.properties import (
    check,
    distribution_laws,
    group_laws,
    gym_laws,
    kl_laws,
    lambda_return_laws,
    module_laws,
    normalizer_laws,
    optimizer_laws,
    replay_laws,
    schedule_laws,
    target_laws,
    value_loss_laws,
    vector_env_laws,
    verify,
    vtrace_laws,
    wrapper_laws,
)
from purestep.properties.framework.law import Suite
from purestep.properties.suites.gym_vector import vectored


def v_trace_that_ends(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    lambda_: float,
    **numbers: float,
) -> Tensor:
    """V-trace targets to which a truncation is a termination, and lambda is 1."""
    ends, none = terminated | truncated, torch.zeros_like(truncated)
    return vtrace(log_ratios, rewards, values, next_values, ends, none, **numbers).targets


def one_episode(
    rewards: Tensor, values: Tensor, next_values: Tensor, *endings: Tensor, gamma: float, lambda_: float
) -> Tensor:
    """Lambda-returns of an episode that ends with its last row, whatever its endings."""
    none = torch.zeros_like(rewards, dtype=torch.bool)
    last = torch.arange(len(rewards)) == len(rewards) - 1
    return lambda_returns(rewards, values, next_values, last, none, gamma=gamma, lambda_=lambda_)


def td_that_ends(rewards: Tensor, table: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float) -> Tensor:
    """One-step targets to which a truncation is an end."""
    return rewards + gamma * (~(terminated | truncated)) * table.reshape(len(rewards), -1)[:, 0]


def td_that_bootstraps(
    rewards: Tensor, table: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    """One-step targets to which a truncation is no end."""
    return td_that_ends(rewards, table, terminated, torch.zeros_like(truncated), gamma=gamma)


class Welford:
    """Running statistics of arrays, which can be combined."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    @property
    def var(self) -> Any:
        return self.squares / max(self.count, 1)

    def update(self, batch: Any) -> None:
        self._add(len(batch), batch.mean(0, dtype=np.float64), batch.var(0, dtype=np.float64) * len(batch))

    def combine(self, other: "Welford") -> None:
        self._add(other.count, other.mean, other.squares)

    def _add(self, count: int, mean: Any, squares: Any) -> None:
        total, off = self.count + count, mean - self.mean
        self.squares = self.squares + squares + off**2 * self.count * count / max(total, 1)
        self.mean, self.count = self.mean + off * count / max(total, 1), total

    def normalize(self, x: Any) -> Any:
        return (x - self.mean) / np.sqrt(self.var + 1e-8)


class Forgetful(Welford):
    """Combines means alone."""

    def combine(self, other: Welford) -> None:
        self.mean = (self.mean + other.mean) / 2


class Parcel(gymnasium.Env[Any, Any]):
    """A parcel on a road of four places; its observation is a dict, and its action a pair of a step and a switch."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(0, 4, (1,), np.float32),
            "hands": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))

    def _seen(self) -> dict[str, Any]:
        return {"place": np.array([self.place], np.float32), "hands": (np.int64(self.place % 2), self.switch.copy())}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.switch = int(self.np_random.integers(2)), np.zeros(2, np.int8)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.switch = min(4, self.place + 1 + int(action[0])), np.asarray(action[1], np.int8)
        return self._seen(), float(self.switch.sum()), self.place == 4, False, {}


class Leaky(Parcel):
    """Returns the array that it goes on writing into."""

    def _seen(self) -> dict[str, Any]:
        return {**super()._seen(), "hands": (np.int64(self.place % 2), self.switch)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = min(4, self.place + 1 + int(action[0]))
        self.switch[:] = action[1]
        return self._seen(), float(self.switch.sum()), self.place == 4, False, {}


def log_normal(mean: Tensor, log_std: Tensor) -> Any:
    """A distribution of positive numbers."""
    return Independent(LogNormal(mean, log_std.exp()), 1)


def clipped_alone(values: Tensor, behaviour_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """The clipped loss, where the larger of two is usual."""
    return 0.5 * (behaviour_value + (values - behaviour_value).clamp(-clip, clip) - target).square()


optim = torch.optim
ends = vtrace_laws("terminate", lambda_=False, advantages=False)
amsgrad, centred = optimizer_laws("adam", amsgrad=True), optimizer_laws("rmsprop", centered=True, momentum=0.5)
slower = optimizer_laws("adagrad", rate_decay=0.125)
halved = wrapper_laws(Parcel, reward=lambda reward: reward / 2, steps=6)
positive = distribution_laws(low=0.0, sizes=(1,))
unlike = value_loss_laws(largest=False, detached=False)

test_v_trace_ends = check(ends, v_trace_that_ends)
test_one_episode = check(lambda_return_laws(one_episode=True), one_episode)
test_targets_end = check(target_laws(truncation="terminate"), td_that_ends)
test_adamax = pytest.mark.slow(check(optimizer_laws("adamax"), optim.Adamax))
test_nadam = pytest.mark.slow(check(optimizer_laws("nadam"), optim.NAdam))
test_adagrad = pytest.mark.slow(check(slower, partial(optim.Adagrad, lr_decay=0.125)))
test_adadelta = pytest.mark.slow(check(optimizer_laws("adadelta"), optim.Adadelta))
test_amsgrad = pytest.mark.slow(check(amsgrad, partial(optim.Adam, amsgrad=True)))
test_centred = pytest.mark.slow(check(centred, partial(optim.RMSprop, centered=True, momentum=0.5)))
test_arrays = check(normalizer_laws(arrays="numpy"), Welford)
test_spaces = check(gym_laws(steps=6), Parcel)
test_vector = check(vector_env_laws(Parcel, steps=6), vectored(Parcel, "SAME_STEP"))
test_wrapper = check(halved, lambda env: TransformReward(env, lambda reward: 0.5 * float(reward)))
test_positive = check(positive, log_normal)
test_blocks = check(group_laws(centre="mean", blocks=True), partial(group_advantages, scale="std"))
test_clipped_alone = check(unlike, clipped_alone)

OTHERS: dict[str, tuple[Suite, Any]] = {
    "one-step targets that bootstrap": (target_laws(truncation="terminate"), td_that_bootstraps),
    "adam, for amsgrad": (amsgrad, optim.Adam),
    "nadam, for adam": (optimizer_laws("adam"), optim.NAdam),
    "rmsprop, for centred": (centred, partial(optim.RMSprop, momentum=0.5)),
    "adagrad with a constant rate": (slower, optim.Adagrad),
    "statistics that combine means": (normalizer_laws(arrays="numpy"), Forgetful),
    "arrays that are written into": (gym_laws(steps=6), Leaky),
    "a wrapper that changes nothing": (halved, lambda env: TransformReward(env, lambda reward: reward)),
    "outcomes of both signs": (positive, lambda mean, log_std: Independent(Normal(mean, log_std.exp()), 1)),
    "the larger of two losses": (unlike, clipped),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_what_follows_another_convention_breaks_them(case: str) -> None:
    suite, subject = OTHERS[case]
    report = verify(suite, subject)
    assert not report
    assert not [result for result in report.results if isinstance(result.error, TypeError)], report


WRONG: dict[str, Callable[[], object]] = {
    "distribution_laws: low, high": lambda: distribution_laws(high=1.0),
    "replay_laws": lambda: replay_laws(n=0),
    "schedule_laws: argument": lambda: schedule_laws(start=1.0, end=0.0, steps=4, argument="list"),
    "schedule_laws: warmup": lambda: schedule_laws(start=1.0, end=0.0, steps=4, warmup=4),
    "target_laws": lambda: target_laws(truncation="resets"),
    "value_loss_laws: reduction": lambda: value_loss_laws(reduction="median"),
    "kl_laws: gradient": lambda: kl_laws(gradient="zero"),
    "module_laws": lambda: module_laws(),
    "normalizer_laws: arrays": lambda: normalizer_laws(arrays="lists"),
}


@pytest.mark.parametrize("where", WRONG)
def test_a_declaration_that_cannot_be_is_one_line(where: str) -> None:
    with pytest.raises(ChoiceError, match=rf"^{where} is .*, wanted .*; "):
        WRONG[where]()
