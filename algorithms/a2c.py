"""Advantage actor-critic: one synchronous policy-gradient step for each trajectory."""

from torch import Tensor

from ..core.optim.interface import Optimizer
from ..core.policy import ActorCritic
from ..core.steps import Trajectory
from .actor_critic import actor_critic
from .advantages import gae
from .algorithm import Algorithm
from .hyperparameters import Coefficient, Fraction, Numbers, Weight, numbers_of


def a2c(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    gae_lambda: Fraction = 1.0,  # 0 trusts the value function, 1 the rewards
    value_coefficient: Weight = 1.0,  # weight of the value loss
    entropy_coefficient: Coefficient = 0.01,  # weight of the policy's entropy
) -> Algorithm:
    """Advantage actor-critic for trajectories [T, B], also of a model with memory.

    L = mean(-A log pi(a) + value_coefficient (v - G)^2 / 2 - entropy_coefficient H(pi)),    A = gae,    G = v + A

    gae_lambda = 1 gives the returns of the paper, up to T rewards and then the value. A truncation and the last row bootstrap
    from next_observation, a termination does not. Defaults are those of the paper; its value error has the coefficient 0.5
    and no factor 1/2, hence 1.0 here. The paper's optimiser is RMSProp on gradients clipped by norm.

    Metrics: policy_loss, value_loss, entropy, approximate_kl, gradient_norm.
    Source: Mnih et al. 2016, arXiv:1602.01783, with synchronous workers.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = a2c(actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), sgd(0.1))
    >>> int(algorithm.init(keys.key(0)).step)
    0
    """
    return actor_critic(model, optimizer, _estimate, numbers_of(a2c, locals()))


def _estimate(trajectory: Trajectory, values: Tensor, next_values: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor]:
    ends, gamma, lambda_ = (trajectory.terminated, trajectory.truncated), numbers["gamma"], numbers["gae_lambda"]
    advantages = gae(trajectory.reward, values, next_values, *ends, gamma=gamma, lambda_=lambda_)
    return advantages, values + advantages
