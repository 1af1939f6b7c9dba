"""PPO on trajectories of older weights: clipped around a recent proximal policy, weighted by proximal / behaviour ratio.

    L = mean(w max(-A r, -A min(max(r, 1 - low), 1 + high)) + ...),    r = p / q,    w = sg(q / b)

p is the policy, b the behaviour policy, q the proximal policy, near which an update stays. PPO's own clip is around b: if b
is several updates old, an update starts with ratios beyond the clip and moves back towards b instead of forward from p.
"""

import math
from typing import Any, Literal

import torch
from attrs import evolve
from torch import Tensor

from ..core.errors import StructureError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from ..core.policy import ActorCritic, apply_to_steps, check_model, check_no_memory
from ..core.record import record, replace, tensor
from ..core.steps import Trajectory
from ..core.tree import tree_map
from .algorithm import Algorithm, Metrics, TrainState
from .decoupled import Weights, decoupled_clip, interpolated, interpolation
from .hyperparameters import Clip, Coefficient, Count, Fraction, Limit, Numbers, Weight, numbers_of
from .importance import effective_fraction, importance_weights
from .ppo import METRICS, PPOSample, clip_of, ppo_learner, prepare_samples

FIGURES = ("weight", "effective_fraction")


@record
class Versioned:
    """A trajectory with the version of the weights that chose each action."""

    trajectory: Trajectory  # [T, B]
    version: Tensor = tensor("*", "int")  # [T, B] number of updates behind those weights


def decoupled_ppo(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    proximal: Literal["recomputed", "interpolated"] = "recomputed",
    weights: Weights = importance_weights,
    gamma: Fraction = 0.99,
    gae_lambda: Fraction = 0.95,
    clip: Clip = 0.2,
    value_clip: Limit = math.inf,
    epochs: Count = 4,
    minibatches: Count = 4,
    value_coefficient: Weight = 0.5,
    entropy_coefficient: Coefficient = 0.01,
    advantages: Literal["minibatch", "batch", "none"] = "minibatch",
    target_kl: Limit = math.inf,
) -> Algorithm:
    """PPO with its clip around a proximal policy; equal to `ppo` if no data are stale.

    `proximal` selects the source of that policy's log-probs:
    - "recomputed": a pass through the model before the update, under its params. Needs no versions.
    - "interpolated": no pass, log q = (1 - a) log b + a sg(log p), a = (v - 1 - v_t) / (v - v_t), with v the updates done
      and v_t the version that acted. Trajectories must be `Versioned`; `lagging` wraps them. Weights at most one update
      old give a = 0, which is `ppo` itself.
    `weights` may bound w or set rows to 0, e.g. `partial(truncated_weights, high=2.0)`; the mean still includes all rows.
    Advantages and targets are GAE's under the newest values, as in `ppo`; their rewards come from b.

    Metrics: those of `ppo`, with approximate_kl, clip_fraction and target_kl against q, then weight, the mean of w, and
    effective_fraction, its effective sample size as a fraction of the rows.
    Raises: ChoiceError; the errors of `ppo`; StructureError for "interpolated" without versions.
    Source: Hilton et al. 2021, arXiv:2110.00641; Fu et al. 2025, arXiv:2505.24298; interpolation: arXiv:2512.06547.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> algorithm = decoupled_ppo(model, adam(2.5e-4), proximal="recomputed")
    >>> algorithm.metrics[-2:], int(algorithm.init(keys.key(0)).step)
    (('weight', 'effective_fraction'), 0)
    """
    numbers = numbers_of(decoupled_ppo, locals())
    check_model(model)
    check_no_memory("decoupled_ppo", model)
    between, whole = proximal == "interpolated", advantages == "batch"

    def samples_of(params: Any, given: Trajectory | Versioned, step: Tensor, numbers: Numbers) -> PPOSample:
        trajectory = given.trajectory if isinstance(given, Versioned) else given
        anchor = _share(given, step) if between else proximal_log_prob(model, params, trajectory)
        gamma, lambda_ = numbers["gamma"], numbers["gae_lambda"]
        samples = prepare_samples(model, params, trajectory, gamma=gamma, lambda_=lambda_, normalize=whole)
        return replace(samples, anchor=anchor.flatten(0, 1))

    def surrogate(
        log_prob: Tensor, sample: PPOSample, advantage: Tensor, numbers: Numbers
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        clip = clip_of(numbers)
        behaviour, all_ = sample.behaviour_log_prob, torch.ones_like(log_prob, dtype=torch.bool)
        near = interpolated(log_prob, behaviour, sample.anchor, all_) if between else sample.anchor
        loss = decoupled_clip(log_prob, near, behaviour, advantage, all_, clip=clip, weights=weights)
        weight = weights(near, behaviour, all_)
        return loss, near, (weight.mean(), effective_fraction(weight, all_))

    return ppo_learner(
        model,
        optimizer,
        numbers,
        surrogate,
        samples_of,
        (*METRICS, *FIGURES),
        epochs=epochs,
        minibatches=minibatches,
        normalize=advantages == "minibatch",
    )


def proximal_log_prob(model: ActorCritic, params: Any, trajectory: Trajectory) -> Tensor:
    """Return log p(a) of the trajectory's actions under `params`: trajectory [T, B] -> [T, B], a constant.

    >>> from purestep.core import keys
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> from purestep.core.tree import tree_map
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> no, seen = torch.zeros(2, 1, dtype=torch.bool), torch.zeros(2, 1, 2)
    >>> played = Trajectory(observation=seen, action=torch.zeros(2, 1, dtype=torch.int64), reward=torch.ones(2, 1),
    ...                     terminated=no, truncated=no, next_observation=seen, behaviour_log_prob=torch.zeros(2, 1))
    >>> proximal_log_prob(model, tree_map(torch.zeros_like, model.init(keys.key(0))), played).exp()
    tensor([[0.5000],
            [0.5000]])
    """
    distribution, _ = apply_to_steps(model.apply, params, trajectory.observation)
    log_prob = distribution.log_prob(tree_map(lambda leaf: leaf.flatten(0, 1), trajectory.action)).detach()
    return log_prob.reshape(trajectory.reward.shape)


def lagging(algorithm: Algorithm, staleness: int) -> Algorithm:
    """Return `algorithm` with its trajectories marked as played by weights `staleness` updates old, or the initial ones.

    v_t = max(v - staleness, 0)

    Use it with a trainer of the same `staleness`.

    >>> told = []
    >>> def update(state, given, key):
    ...     told.append(given.version.tolist())
    ...     return state, {}
    >>> algorithm = lagging(Algorithm(init=lambda key: (), update=update, metrics=()), 2)
    >>> for step in (1, 5):
    ...     state = TrainState(params=(), optimizer=(), step=torch.tensor(step))
    ...     played = Trajectory(**dict.fromkeys(("observation", "action", "reward", "terminated", "truncated",
    ...                                          "next_observation", "behaviour_log_prob"), torch.zeros(2, 1)))
    ...     _ = algorithm.update(state, played, torch.zeros(2))
    >>> told
    [[[0], [0]], [[3], [3]]]
    """

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, Metrics]:
        played = (state.step - staleness).clamp(min=0)
        version = played.expand(trajectory.reward.shape)
        return algorithm.update(state, Versioned(trajectory=trajectory, version=version), key)  # type: ignore[arg-type]

    return evolve(algorithm, update=update)


def _share(given: Trajectory | Versioned, step: Tensor) -> Tensor:
    """Return the position of the proximal policy between the behaviour and the newest policy: [T, B]."""
    if not isinstance(given, Versioned):
        remedy = 'wrap it as Versioned, or take proximal="recomputed"'
        raise StructureError(
            message("decoupled_ppo: trajectory", got="without versions", wanted="Versioned", remedy=remedy)
        )
    return interpolation(given.version, step)
