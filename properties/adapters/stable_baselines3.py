"""Objects of Stable-Baselines3 as subjects: buffers, distributions, policies and running statistics."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from ...core.distributions import Categorical, Normal
from ...core.networks import functional
from ...core.policy import ActorCritic
from ...core.spaces import Box, Discrete, Space
from ..suites.normalizer import NormalizerFunctions

COLUMNS = {"observation": "observations", "action": "actions", "reward": "rewards"} | {
    "next_observation": "next_observations",
    "terminated": "dones",
}


class StepBuffer:
    """A replay buffer of one environment, filled with single steps: the subject of `replay_laws`."""

    def __init__(self, kind: Any, capacity: int, options: dict[str, Any]) -> None:
        from gymnasium import spaces

        wide = spaces.Box(-np.inf, np.inf, (1,))
        self.rows = kind(capacity, wide, wide, device="cpu", **options)

    def add(self, step: Any) -> None:
        """Add a step; its time limit stands in the infos, as `handle_timeout_termination` reads it."""
        row = {name: value.reshape(1, 1).numpy() for name, value in step.items()}
        ended = np.array([bool(step["terminated"] | step["truncated"])])
        infos = [{"TimeLimit.truncated": bool(step["truncated"] & ~step["terminated"])}]
        self.rows.add(row["observation"], row["next_observation"], row["action"], row["reward"][0], ended, infos)

    def sample(self, count: int) -> dict[str, Tensor]:
        """Return the columns of a sample."""
        found = self.rows.sample(count)
        return {name: getattr(found, theirs)[:, 0] for name, theirs in COLUMNS.items()}

    def __len__(self) -> int:
        return int(self.rows.size())


def replay_buffer(kind: Any, **options: Any) -> Callable[[int], StepBuffer]:
    """Return `make(capacity)` for a class of replay buffers with these options, for `replay_laws`."""
    return lambda capacity: StepBuffer(kind, capacity, options)


def rollout_buffer(kind: Any, **options: Any) -> Callable[..., Tensor]:
    """Return a rollout buffer's advantages as an estimator for `estimator_laws`.

    The value beyond a time limit is added to its reward, as `collect_rollouts` of the package does.
    """

    def advantages(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        from gymnasium import spaces

        one = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
        rows = kind(len(r), *one, gae_lambda=lambda_, gamma=gamma, **options)
        starts, zero = True, np.zeros((1, 1))
        for t in range(len(r)):
            beyond = gamma * float(after[t]) if trunc[t] and not term[t] else 0.0
            rows.add(zero, zero, np.array([float(r[t]) + beyond]), np.array([starts]), v[t : t + 1], torch.zeros(1))
            starts = bool(term[t] | trunc[t])
        rows.compute_returns_and_advantage(after[-1:], np.array([starts]))
        return torch.as_tensor(rows.advantages[:, 0])  # float32, whatever the rewards are

    return advantages


def gaussian(kind: Any, **options: Any) -> Callable[[Tensor, Tensor], Any]:
    """Return `make(mean, log_std)` for a class of diagonal Gaussians, squashed or not, for `distribution_laws`."""
    return lambda mean, log_std: kind(mean.shape[-1], **options).proba_distribution(mean, log_std)


def categorical(kind: Any) -> Callable[[Tensor], Any]:
    """Return `make(logits)` for a class of categorical distributions, for `distribution_laws(outcomes=torch.arange)`."""
    return lambda logits: kind(logits.shape[-1]).proba_distribution(logits)


def indices(kind: Any) -> dict[str, Any]:
    """Return the keywords of `distribution_laws` for actions that are indices."""
    del kind
    return {"outcomes": torch.arange}


def statistics(kind: Any, **options: Any) -> NormalizerFunctions:
    """Return a class of running means and variances as the subject of `normalizer_laws(arrays="numpy", prior=1e-4)`."""
    return NormalizerFunctions(
        lambda shape: kind(shape=shape, **options),
        lambda state, batch: (state.update(batch), None)[1],
        lambda state: state.mean,
        lambda state: state.var,
    )


@attrs.frozen
class Evaluated:
    """A distribution of the package over a batch of actions, with samples that are functions of a key.

    Log-probs, entropies and modes are the package's; the noise is that of our distribution of the same parameters.
    """

    theirs: Any
    ours: Any
    batch: tuple[int, ...]  # leading axes of the observation

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the package's log-prob of the actions: [*, ...] -> [*]."""
        event = action.shape[len(self.batch) :]
        found: Tensor = self.theirs.log_prob(action.reshape(-1, *event))
        return found.reshape(self.batch)

    def entropy(self) -> Tensor:
        """Return the package's entropy: [*]."""
        found: Tensor = self.theirs.entropy()
        return found.reshape(self.batch)

    def mode(self) -> Tensor:
        """Return the package's most probable action: [*, ...]."""
        found: Tensor = self.theirs.mode()
        return found.reshape((*self.batch, *found.shape[1:]))

    def noise(self, key: Tensor) -> Tensor:
        """Return the noise for `transform`."""
        noise: Tensor = self.ours.noise(key)
        return noise

    def transform(self, noise: Tensor) -> Tensor:
        """Return the action for this noise."""
        action: Tensor = self.ours.transform(noise)
        return action

    def sample(self, key: Tensor) -> Tensor:
        """Return the action for a key."""
        action: Tensor = self.ours.sample(key)
        return action


class _Whole(torch.nn.Module):
    """The distribution and the value that a policy gives for a batch of observations, in one call."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> tuple[Any, Tensor]:
        return self.policy.get_distribution(observation), self.policy.predict_values(observation)


def actor_critic(policy: Any) -> ActorCritic:
    """Return an `ActorCriticPolicy` as the subject of `policy_laws(**spaces(policy))`; its parameters are the argument."""
    network, shape = functional(_Whole(policy).eval()), policy.observation_space.shape

    def apply(params: Any, observation: Tensor, carry: Any) -> tuple[Any, Tensor, Any]:
        batch = tuple(observation.shape[: observation.ndim - len(shape)])
        theirs, value = network.apply(params, observation.reshape(-1, *shape))
        inner = theirs.distribution
        if hasattr(inner, "logits"):
            ours: Any = Categorical(logits=inner.logits.reshape(*batch, -1))
        else:
            mean, log_std = (x.reshape(*batch, -1) for x in (inner.mean, inner.stddev.log()))
            ours = Normal(mean=mean, log_std=log_std)
        return Evaluated(theirs, ours, batch), value.reshape(batch), carry

    return ActorCritic(init=network.init, apply=apply)


def spaces(policy: Any) -> dict[str, Space]:
    """Return the spaces of a policy as the keywords of `policy_laws`."""
    return {name: _space(getattr(policy, name)) for name in ("observation_space", "action_space")}


def _space(theirs: Any) -> Space:
    if hasattr(theirs, "n"):
        return Discrete(int(theirs.n))
    return Box(float(theirs.low.max()), float(theirs.high.min()), tuple(theirs.shape))
