"""Soft actor-critic: a stochastic policy that also maximises its entropy, from a replay buffer (Haarnoja et al. 2018)."""

from typing import Any, Literal

import torch
from torch import Tensor

from ..core import keys
from ..core.actor_q import StochasticActor
from ..core.distributions import TanhNormal
from ..core.errors import StructureError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from .algorithm import Algorithm
from .hyperparameters import Coefficient, Count, Fraction, Number, Numbers, Steps, Weight, numbers_of, scaled
from .off_policy import Batch, ReplayOptions
from .soft_actor_critic import soft_actor_critic


def sac(
    model: StochasticActor,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    replay_size: Count = 100_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 256,  # transitions of an update
    updates: Count = 1,  # after each rollout
    target_rate: Fraction = 0.005,  # how far the target critics move to the critics at each update
    temperature: Literal["learned", "fixed"] = "learned",  # the entropy's weight, by a target entropy or constant
    initial_temperature: Weight = 1.0,  # in the beginning
    target_entropy: Coefficient = -1.0,  # per dimension of the action, scaled to [-1, 1]; for a learned temperature
    n_step: Count = 1,  # rewards before a value
) -> Algorithm:
    """Soft actor-critic for actions in a box, with a model of `stochastic_actor_mlp`, for trajectories [T, B].

    L = sum_i mean((Q_i(s, a) - y)^2) / 2,    y = r + gamma^n (min_i Q'_i(s_n, b) - t log pi(b | s_n)),    b ~ pi(. | s_n)
    L_pi = mean(t log pi(c | s) - min_i Q_i(s, c)),    c ~ pi(. | s), a function of the policy's params and of noise
    L_log_t = mean(-log_t (log pi(c | s) + target_entropy A))

    A is the number of the action's dimensions, and pi the density of the action scaled to [-1, 1]. Q' are moving averages. The
    temperature is t = initial_temperature exp(x), with x = 0 at first; x is learnt with the same optimiser. A termination ends
    the return, a truncation does not.

    Metrics, means over the updates: critic_loss, policy_loss, value (mean Q of the batch's actions), error (mean |Q - y|),
    entropy (-mean log pi(c | s)), temperature, critic_gradient_norm, policy_gradient_norm; replay_rows.
    Raises: ChoiceError, StructureError. Source: Haarnoja et al. 2018, arXiv:1812.05905.

    >>> from purestep.core.actor_q import stochastic_actor_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.spaces import Box
    >>> algorithm = sac(stochastic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).targets["log_temperature"]
    tensor(0.)
    """
    numbers = numbers_of(sac, locals())
    check_stochastic("sac", model)
    is_learned, dimensions = temperature == "learned", model.action_space.shape[0]

    def draws(key: Key, batch: Batch) -> tuple[Tensor, Tensor]:
        both = keys.normal(key, (2, *batch.action.shape), dtype=batch.action.dtype)
        return both[0], both[1]

    def next_value(policy: Any, critics: Any, batch: Batch, temperature: Tensor, noise: Tensor) -> Tensor:
        best, log_prob = sample_with_log_prob(model.distribution(policy, batch.next_observation), noise)
        values = model.critics(critics, batch.next_observation, best) - temperature * log_prob
        return values.amin(0)

    def policy_loss(
        policy: Any, critics: Any, batch: Batch, temperature: Tensor, noise: Tensor, now: Numbers
    ) -> tuple[Tensor, Tensor, Tensor]:
        action, log_prob = sample_with_log_prob(model.distribution(policy, batch.observation), noise)
        value = model.critics(critics, batch.observation, action).amin(0)
        loss, entropy = (temperature * log_prob - value).mean(), -log_prob.mean()
        return loss, entropy, temperature_gradient(entropy, now["target_entropy"], dimensions)

    return soft_actor_critic(
        model,
        optimizer,
        numbers,
        ReplayOptions(replay_size=replay_size, batch_size=batch_size, updates=updates, n_step=n_step),
        taken=model.critics,
        draws=draws,
        next_value=next_value,
        policy_loss=policy_loss,
        is_learned=is_learned,
    )


def check_stochastic(where: str, model: Any) -> None:
    """Raise StructureError for anything but a StochasticActor.

    >>> from purestep.core.actor_q import stochastic_actor_mlp
    >>> from purestep.core.spaces import Box
    >>> check_stochastic("sac", stochastic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,)))
    """
    if not isinstance(model, StochasticActor):
        remedy = "make it with `stochastic_actor_mlp`, or with `stochastic_actor` from networks of yours"
        got, wanted = type(model).__name__, "a StochasticActor"
        raise StructureError(message(f"{where}: model", got=got, wanted=wanted, remedy=remedy))


def sample_with_log_prob(distribution: TanhNormal, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the action for standard normal noise, and the log of its density once scaled to [-1, 1]: [*, A] -> [*, A], [*].

    In the box the density is smaller, by the product of half ranges; scaled, the entropy does not depend on the box's units.

    >>> zero = torch.zeros(1)
    >>> distribution = TanhNormal(mean=zero, log_std=zero, low=zero - 2.0, high=zero + 2.0)
    >>> action, log_prob = sample_with_log_prob(distribution, zero + 0.5)
    >>> action, log_prob - distribution.log_prob(action)  # 2 tanh 0.5, log 2
    (tensor([0.9242]), tensor(0.6931))
    """
    x = distribution.before().transform(noise)
    half = 0.5 * (distribution.high - distribution.low)
    return distribution.squash(x), distribution.log_prob_before(x) + torch.log(half).sum(-1)


def temperature_gradient(entropy: Tensor, target: Number, dimensions: int) -> Tensor:
    """Return the gradient of L_log_t, entropy - target A: with too little entropy it is negative, so the temperature rises.

    >>> temperature_gradient(torch.tensor(0.5), -1.0, 2)
    tensor(2.5000)
    """
    return entropy - scaled(target, torch.full_like(entropy, dimensions))
