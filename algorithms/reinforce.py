"""REINFORCE: the score function times the return, with a choice of baselines."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from ..core.optim.interface import Optimizer
from ..core.policy import ActorCritic
from ..core.steps import Trajectory
from .actor_critic import Estimate, actor_critic
from .algorithm import Algorithm
from .hyperparameters import Coefficient, Fraction, Numbers, Weight, numbers_of
from .returns import discounted


def reinforce(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    baseline: Literal["value", "mean", "none"] = "value",  # what is subtracted from the returns
    value_coefficient: Weight = 1.0,  # weight of the value loss
    entropy_coefficient: Coefficient = 0.0,  # weight of the policy's entropy
) -> Algorithm:
    """REINFORCE for trajectories [T, B], also of a model with memory.

    L = mean(-(G - b) log pi(a) + value_coefficient (v - G)^2 / 2 - entropy_coefficient H(pi)),    G = discounted

    `baseline` selects b:
    - "value": the model's v. An episode cut by a truncation or by the end of the trajectory bootstraps: G continues
      with the value of next_observation.
    - "mean": the mean of G over the whole batch, [T, B].
    - "none": 0.
    The last two use no value, so G is the sum of the rewards up to the cut. That is unbiased for episodes that end inside
    the trajectory and too small for the others: prefer "value", or trajectories as long as episodes. The value loss is then
    0 and the value network is not trained. The mean includes the sample it is subtracted from, which scales gradients by
    1 - 1 / (T B) and does not change their direction if returns are independent.

    The factor gamma^t in the gradient of the discounted return from the first state is omitted, as usual.

    Metrics: policy_loss, value_loss, entropy, approximate_kl, gradient_norm. Raises: ChoiceError.
    Source: Williams 1992, doi:10.1007/BF00992696; Sutton and Barto 2018, section 13.4.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = reinforce(actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), sgd(0.1), baseline="mean")
    >>> int(algorithm.init(keys.key(0)).step)
    0
    """
    numbers = numbers_of(reinforce, locals())
    estimates: Mapping[str, Estimate] = {"none": _none, "mean": _mean, "value": _value}
    return actor_critic(model, optimizer, estimates[baseline], numbers)


def _seen(trajectory: Trajectory, numbers: Numbers) -> Tensor:
    return discounted(trajectory.reward, trajectory.terminated, trajectory.truncated, gamma=numbers["gamma"])


def _none(trajectory: Trajectory, values: Tensor, next_values: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor]:
    return _seen(trajectory, numbers), values


def _mean(trajectory: Trajectory, values: Tensor, next_values: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor]:
    returns = _seen(trajectory, numbers)
    return returns - returns.mean(), values


def _value(trajectory: Trajectory, values: Tensor, next_values: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor]:
    ends = trajectory.terminated, trajectory.truncated
    returns = discounted(trajectory.reward, *ends, gamma=numbers["gamma"], next_values=next_values)
    return returns - values, returns
