"""Running statistics: means and variances that are not those of the data."""

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .bug import Bug

Array = NDArray[Any]


class RunningMeanStd:
    """Mean and variance of all batches so far."""

    def __init__(self, shape: tuple[int, ...] = ()):
        self.mean, self.var, self.count = torch.zeros(shape), torch.ones(shape), 1e-4

    def update(self, x: Tensor) -> None:
        batch_mean, batch_var, batch_count = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        delta = batch_mean - self.mean
        total = self.count + batch_count
        self.mean = self.moved(delta, batch_count, total)
        m2 = self.var * self.count + batch_var * batch_count + delta**2 * self.count * batch_count / total
        self.var, self.count = m2 / total, total

    def moved(self, delta: Tensor, batch_count: float, total: float) -> Tensor:
        return self.mean + delta + batch_count / total


class RunningMeanStdFixed(RunningMeanStd):
    """The share of the batch times the difference."""

    def moved(self, delta: Tensor, batch_count: float, total: float) -> Tensor:
        return self.mean + delta * batch_count / total


class RunningStats:
    """Welford's method for batches [B, D]."""

    def __init__(self, size: int):
        self.count, self.mean, self.var_sum = 0, np.zeros(size), np.zeros(size)

    def update(self, x: Array) -> None:
        self.count += x.shape[0]
        to_old = x - self.mean
        self.mean = self.mean + to_old.sum(0) / self.count
        self.var_sum = self.accumulated((to_old * (x - self.mean)).sum(0))

    def accumulated(self, batch: Array) -> Array:
        return batch

    @property
    def std(self) -> Array:
        return np.sqrt(np.maximum(self.var_sum / max(1, self.count), 1e-12))

    def normalize(self, x: Array) -> Array:
        return (x - self.mean) / self.std


class RunningStatsFixed(RunningStats):
    """Adds to what was there."""

    def accumulated(self, batch: Array) -> Array:
        return self.var_sum + batch


class EmpiricalNormalization(nn.Module):
    """Normalises by the statistics of all data seen in training mode."""

    _mean: Tensor
    _var: Tensor
    count: Tensor

    def __init__(self, shape: int, eps: float = 1e-8):
        super().__init__()
        self.eps = eps
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("_mean", torch.zeros(shape))
        self.register_buffer("_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.update(x)
        return (x - self._mean) / (self._var + self.eps).sqrt()

    def update(self, x: Tensor) -> None:
        size = x.shape[0]
        new_count = self.count + size
        delta = x.mean(0) - self._mean
        self._mean.copy_(self._mean + delta * (size / new_count))
        delta2 = self.difference(x.mean(0), delta)
        m2 = self._var * self.count + x.var(0, unbiased=False) * size + delta2**2 * self.count * size / new_count
        self._var.copy_(m2 / new_count)
        self.count.copy_(new_count)

    def difference(self, batch_mean: Tensor, delta: Tensor) -> Tensor:
        return batch_mean - self._mean


class EmpiricalNormalizationFixed(EmpiricalNormalization):
    """The difference from the mean as it was before."""

    def difference(self, batch_mean: Tensor, delta: Tensor) -> Tensor:
        return delta


class NormalizeObs(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations by the mean and standard deviation of those so far, unless `training` is off."""

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, env.observation_space.shape, np.float64)
        self.training = True
        self.count, self.mean, self.m2 = 0, np.zeros(env.observation_space.shape), self.start()

    def start(self) -> Any:
        return 0.0

    def squares(self, before: Array, after: Array) -> Any:
        return float(np.mean(before * after))

    def observation(self, observation: Array) -> Array:
        if self.training:
            self.count += 1
            before = observation - self.mean
            self.mean = self.mean + before / self.count
            self.m2 = self.m2 + self.squares(before, observation - self.mean)
        return (observation - self.mean) / np.sqrt(self.m2 / max(1, self.count) + 1e-8)


class NormalizeObsFixed(NormalizeObs):
    """A variance of each dimension."""

    def start(self) -> Any:
        return np.zeros(self.env.observation_space.shape)

    def squares(self, before: Array, after: Array) -> Any:
        return before * after


class ObservationNormalizer:
    """Statistics of observations, to be frozen for evaluation."""

    def __init__(self, size: int, clip: float = 10.0):
        self.stats, self.clip, self.training = RunningStatsFixed(size), clip, True

    def eval(self) -> None:
        """Stops updates of the statistics."""
        self.training = True

    def train(self) -> None:
        self.training = True

    def __call__(self, obs: Array) -> Array:
        if self.training:
            self.stats.update(obs)
        return np.clip(self.stats.normalize(obs), -self.clip, self.clip)


class ObservationNormalizerFixed(ObservationNormalizer):
    """`eval` does."""

    def eval(self) -> None:
        self.training = False


def moments(make: Any) -> object:
    """Mean and variance of two batches."""
    stats = make((1,))
    stats.count = 0.0
    stats.update(torch.tensor([[1.0], [3.0]]))
    stats.update(torch.tensor([[5.0], [9.0]]))
    return stats.mean, stats.var


def spread(make: Any) -> object:
    """The standard deviation after four batches."""
    stats = make(1)
    for number in range(4):
        stats.update(np.array([[1.0], [3.0], [5.0 + number]]))
    return stats.std


def empirical(make: Any) -> object:
    """The variance of two batches with other means."""
    module = make(1)
    module(torch.tensor([[0.0], [2.0]]))
    module(torch.tensor([[10.0], [12.0]]))
    return module._mean, module._var


def wrapped(make: Any) -> object:
    """Normalised observations of CartPole."""
    env = make(gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    return [env.step(step % 2)[0] for step in range(5)]


def frozen(make: Any) -> object:
    """Statistics after an evaluation."""
    normalizer = make(1)
    normalizer(np.array([[0.0], [2.0]]))
    normalizer.eval()
    normalizer(np.array([[100.0]]))
    return normalizer.stats.mean


BUGS = [
    Bug(
        "mean_adds_the_share",
        "https://github.com/RLE-Foundation/rllte/issues/47",
        "normalizers",
        "The new mean adds the batch's share to the difference, where it should multiply.",
        RunningMeanStd,
        RunningMeanStdFixed,
        moments,
    ),
    Bug(
        "variance_overwritten",
        "https://github.com/akanazawa/fpo/issues/13",
        "normalizers",
        "Each batch overwrites the sum of squares, so that the deviation shrinks with the number of batches.",
        RunningStats,
        RunningStatsFixed,
        spread,
    ),
    Bug(
        "difference_from_new_mean",
        "https://github.com/younggyoseo/FastTD3/issues/32",
        "normalizers",
        "Merging variances takes the difference of means after the mean was moved.",
        EmpiricalNormalization,
        EmpiricalNormalizationFixed,
        empirical,
    ),
    Bug(
        "one_variance_for_all",
        "https://github.com/Farama-Foundation/Gymnasium/pull/659",
        "normalizers",
        "All dimensions of an observation are divided by one deviation.",
        NormalizeObs,
        NormalizeObsFixed,
        wrapped,
    ),
    Bug(
        "updates_in_evaluation",
        "https://github.com/kuds/mesozoic-labs/pull/157",
        "normalizers",
        "Evaluation goes on changing the statistics.",
        ObservationNormalizer,
        ObservationNormalizerFixed,
        frozen,
    ),
]
