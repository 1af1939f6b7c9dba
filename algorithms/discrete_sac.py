"""Soft actor-critic for discrete actions, learnt from a replay buffer (Christodoulou 2019)."""

from typing import Any, Literal

import torch
from torch import Tensor

from ..core.categorical_actor import CategoricalActor
from ..core.distributions import Categorical, illegal
from ..core.errors import StructureError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from .algorithm import Algorithm
from .hyperparameters import Count, Fraction, Numbers, Steps, Weight, numbers_of, scaled
from .off_policy import Batch, ReplayOptions
from .soft_actor_critic import soft_actor_critic


def discrete_sac(
    model: CategoricalActor,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    replay_size: Count = 50_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 64,  # transitions of an update
    updates: Count = 1,  # after each rollout
    target_rate: Fraction = 0.005,  # how far the target critics move to the critics at each update
    temperature: Literal["learned", "fixed"] = "learned",  # the entropy's weight, by a target entropy or constant
    initial_temperature: Weight = 1.0,  # in the beginning
    target_entropy: Fraction = 0.5,  # in parts of the entropy of uniform actions; for a learned temperature
    n_step: Count = 1,  # rewards before a value
) -> Algorithm:
    """Soft actor-critic for discrete actions, with a model of `categorical_actor_mlp`, for trajectories [T, B].

    L = sum_i mean((Q_i(s, a) - y)^2) / 2,    y = r + gamma^n sum_b pi(b | s_n) (min_i Q'_i(s_n, b) - t log pi(b | s_n))
    L_pi = mean(sum_b pi(b | s) (t log pi(b | s) - min_i Q_i(s, b)))
    L_log_t = mean(log_t (H(s) - target_entropy log A(s)))

    H(s) is the policy's entropy and A(s) the number of legal actions. Expectations over actions are exact, so that no action is
    sampled in an update. The temperature t, the averages Q', endings and metrics are those of `sac`.
    Raises: ChoiceError, StructureError. Source: Christodoulou 2019, arXiv:1910.07207, with a target entropy of 0.98 log A.

    >>> from purestep.core import keys
    >>> from purestep.core.categorical_actor import categorical_actor_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = discrete_sac(categorical_actor_mlp(Box(-1.0, 1.0, (2,)), Discrete(3), (4,)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).targets["log_temperature"]
    tensor(0.)
    """
    numbers = numbers_of(discrete_sac, locals())
    if not isinstance(model, CategoricalActor):
        remedy = "make it with `categorical_actor_mlp`, or with `categorical_actor` from networks of yours"
        got, wanted = type(model).__name__, "a CategoricalActor"
        raise StructureError(message("discrete_sac: model", got=got, wanted=wanted, remedy=remedy))

    def taken(params: Any, observation: Any, action: Tensor) -> Tensor:
        values = model.critics(params, observation)
        return values.gather(-1, action.expand(values.shape[:-1])[..., None])[..., 0]

    def draws(key: Key, batch: Batch) -> tuple[tuple[()], tuple[()]]:
        del key, batch
        return (), ()

    def next_value(policy: Any, critics: Any, batch: Batch, temperature: Tensor, draw: tuple[()]) -> Tensor:
        del draw
        following = model.distribution(policy, batch.next_observation)
        return soft_value(following, model.critics(critics, batch.next_observation).amin(0), temperature)

    def policy_loss(
        policy: Any, critics: Any, batch: Batch, temperature: Tensor, draw: tuple[()], now: Numbers
    ) -> tuple[Tensor, Tensor, Tensor]:
        del draw
        distribution = model.distribution(policy, batch.observation)
        values = model.critics(critics, batch.observation).amin(0)
        entropy = distribution.entropy()
        lacking = entropy - scaled(now["target_entropy"], highest_entropy(distribution))
        return -soft_value(distribution, values, temperature).mean(), entropy.mean(), lacking.mean()

    return soft_actor_critic(
        model,
        optimizer,
        numbers,
        ReplayOptions(replay_size=replay_size, batch_size=batch_size, updates=updates, n_step=n_step),
        taken=taken,
        draws=draws,
        next_value=next_value,
        policy_loss=policy_loss,
        is_learned=temperature == "learned",
    )


def soft_value(distribution: Categorical, values: Tensor, temperature: Tensor) -> Tensor:
    """Return sum_a pi(a) (Q(a) - t log pi(a)), the value with the entropy's weight: Q [*, A] -> [*].

    Source: Christodoulou 2019, arXiv:1910.07207, equation 10.

    >>> soft_value(Categorical(logits=torch.zeros(2)), torch.tensor([1.0, 3.0]), torch.tensor(10.0))  # 2 + 10 log 2
    tensor(8.9315)
    """
    return (torch.softmax(distribution.logits, -1) * values).sum(-1) + temperature * distribution.entropy()


def highest_entropy(distribution: Categorical) -> Tensor:
    """Return log A of the A legal actions, the entropy of uniform ones; 0 where none is legal: [*, A] -> [*].

    >>> highest_entropy(Categorical(logits=torch.tensor([3.0, 0.0, illegal(torch.float32)])))
    tensor(0.6931)
    """
    legal = distribution.logits > 0.5 * illegal(distribution.logits.dtype)
    return torch.log(legal.sum(-1).clamp_min(1).to(distribution.logits.dtype))
