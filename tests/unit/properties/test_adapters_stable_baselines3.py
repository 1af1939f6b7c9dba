"""Objects of Stable-Baselines3 keep the laws through their adapters, and a subclass with a mistake breaks one of them."""

from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
    Distribution,
    SquashedDiagGaussianDistribution,
)
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor

from purestep.properties import Broken, run, verify
from purestep.properties.framework.binding import subject_for
from purestep.properties.framework.catalogue import rows, suite_of
from purestep.properties.framework.choice import choose_laws
from purestep.properties.framework.profiles import named_profile
from purestep.properties.framework.report import BROKEN

FEWER = evolve(named_profile("quick"), examples=10)
SEEN = spaces.Box(-1, 1, (3,))


def policy(observation: Any, action: Any, kind: type[ActorCriticPolicy] = ActorCriticPolicy) -> ActorCriticPolicy:
    torch.manual_seed(0)
    return kind(observation, action, lambda _: 1e-3)


RIGHT: dict[str, tuple[str, Any]] = {
    "a replay buffer": ("replay", ReplayBuffer),
    "a rollout buffer": ("estimator", RolloutBuffer),
    "a normal distribution": ("distribution", DiagGaussianDistribution),
    "a squashed normal distribution": ("distribution", SquashedDiagGaussianDistribution),
    "a categorical distribution": ("distribution", CategoricalDistribution),
    "running statistics": ("normalizer", RunningMeanStd),
    "a policy of four actions": ("policy", policy(SEEN, spaces.Discrete(4))),
    "a policy of two numbers": ("policy", policy(SEEN, spaces.Box(-1, 1, (2,)))),
    "a policy of places": ("policy", policy(spaces.Discrete(5), spaces.Discrete(5))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_an_object_of_the_package_keeps_the_laws_that_its_adapter_declares(name: str) -> None:
    suite, value = RIGHT[name]
    found = choose_laws(value)
    assert found.row.suite == suite
    report = verify(found.suite, found.subject, profile=FEWER)
    assert report, report


class WholeStream(RolloutBuffer):
    """Takes the rows for one episode."""

    def compute_returns_and_advantage(self, last_values: Tensor, dones: Any) -> None:
        self.episode_starts[:] = 0
        super().compute_returns_and_advantage(last_values, dones)


class Unsquashed(SquashedDiagGaussianDistribution):
    """Gives the density of the action before it was squashed."""

    def log_prob(self, actions: Tensor, gaussian_actions: Tensor | None = None) -> Tensor:
        return super().log_prob(actions, gaussian_actions) + torch.log(1 - actions**2 + self.epsilon).sum(1)


class MeanEntropy(DiagGaussianDistribution):
    """Gives the mean of the entropies of the coordinates."""

    def entropy(self) -> Tensor:
        found = super().entropy()
        assert found is not None
        return found / self.action_dim


class Unlikely(CategoricalDistribution):
    """Takes the least probable action for the mode."""

    def mode(self) -> Tensor:
        return self.distribution.probs.argmin(1)


class Unmoved(RunningMeanStd):
    """Forgets the distance between the means of two batches."""

    def update_from_moments(self, batch_mean: Any, batch_var: Any, batch_count: float) -> None:
        between = np.square(batch_mean - self.mean) * self.count * batch_count / (self.count + batch_count) ** 2
        super().update_from_moments(batch_mean, batch_var, batch_count)
        self.var = self.var - between


class Centred(ActorCriticPolicy):
    """Centres what it computes over the batch."""

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        return super()._get_action_dist_from_latent(latent_pi - latent_pi.mean(0))


WRONG: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "time limits that end": ("replay", ReplayBuffer, {"handle_timeout_termination": False}, "endings"),
    "rows of one episode": ("estimator", WholeStream, {}, "cut_at_endings"),
    "a density before squashing": ("distribution", Unsquashed, {}, "density_integrates_to_1"),
    "a mean of entropies": ("distribution", MeanEntropy, {}, "entropy"),
    "the least probable mode": ("distribution", Unlikely, {}, "mode"),
    "variances within batches alone": ("normalizer", Unmoved, {}, "statistics_of_all_data"),
    "values centred over the batch": ("policy", policy(SEEN, spaces.Discrete(4), Centred), {}, "batch_does_not_matter"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_subclass_is_found_by_the_law_about_it(name: str) -> None:
    suite, value, given, law = WRONG[name]
    subject, declared = subject_for(rows()[suite], value, given)
    result = run(suite_of(rows()[suite], declared)[law], subject, shrink=False)
    assert result.outcome == BROKEN
    assert isinstance(result.error, Broken), result
