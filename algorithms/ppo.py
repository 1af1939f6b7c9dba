"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347)."""

import math
from typing import Any

from torch import Tensor

from ..core.optim.optimizers import Optimizer
from ..core.policy import ActorCritic
from ..core.steps import Trajectory
from .algorithm import Algorithm
from .hyperparameters import Number, Numbers
from .policy_losses import ppo_clip
from .ppo_passes import METRICS as METRICS
from .ppo_passes import PPOSample, PPOSettings, clip_of, learner
from .ppo_passes import normalized as normalized
from .ppo_passes import order as order
from .ppo_passes import prepare as prepare


def ppo(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    gamma: Number = 0.99,
    lambda_: Number = 0.95,
    clip: Number | tuple[Number, Number] = 0.2,
    value_clip: Number = math.inf,
    epochs: int = 4,
    minibatches: int = 4,
    value_coefficient: Number = 0.5,
    entropy_coefficient: Number = 0.01,
    advantages: str = "minibatch",
    target_kl: Number = math.inf,
) -> Algorithm:
    """PPO for a feed-forward model and trajectories [T, B].

    L = mean(ppo_clip(log pi(a), A) + value_coefficient value_loss - entropy_coefficient H(pi)),    A = gae,    G = v + A

    over minibatches of T B / minibatches rows, each row once in each of `epochs` permutations. value_loss is `squared`, or
    `clipped` if `value_clip` is finite. `advantages` is the scope of their normalisation: "minibatch", "batch" or "none".
    Once the k3 estimate of KL(behaviour, current) on a minibatch exceeds `target_kl`, this minibatch and all later ones
    are skipped in this update. A truncation and the last row bootstrap from next_observation, a termination does not.
    Clipping the gradient and annealing the learning rate belong to the optimiser (`chain`).

    Metrics, means over the minibatches: policy_loss, value_loss, entropy, approximate_kl, clip_fraction, gradient_norm,
    and applied, the fraction of minibatches that were not skipped.
    Raises: ShapeError (number of rows not divisible by minibatches), ChoiceError.
    Source: Schulman et al. 2017, arXiv:1707.06347; details: Huang et al. 2022, "The 37 implementation details of PPO".

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> algorithm = ppo(model, chain(clip_by_global_norm(0.5), adam(2.5e-4)), epochs=10)
    >>> int(algorithm.init(keys.key(0)).step)
    0
    """
    settings = PPOSettings(
        gamma=gamma,
        lambda_=lambda_,
        clip=clip,
        value_clip=value_clip,
        epochs=epochs,
        minibatches=minibatches,
        value_coefficient=value_coefficient,
        entropy_coefficient=entropy_coefficient,
        target_kl=target_kl,
        advantages=advantages,
    )

    whole = advantages == "batch"

    def samples_of(params: Any, trajectory: Trajectory, step: Tensor, numbers: Numbers) -> PPOSample:
        gamma, lambda_ = numbers["gamma"], numbers["lambda_"]
        return prepare(model, params, trajectory, gamma=gamma, lambda_=lambda_, normalize=whole)

    return learner(model, optimizer, settings, _surrogate, samples_of, METRICS)


def _surrogate(
    log_prob: Tensor, sample: PPOSample, advantage: Tensor, numbers: Numbers
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    loss = ppo_clip(log_prob, sample.behaviour_log_prob, advantage, clip=clip_of(numbers))
    return loss, sample.behaviour_log_prob, ()
