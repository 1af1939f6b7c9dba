"""The update shared by REINFORCE and A2C: one gradient step on policy, value and entropy for each trajectory.

`initial_state` is PPO's, too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.distributions import Distribution
from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.policy import ActorCritic, apply_to_steps, check_model, recalled, replayed, values_replayed
from ..core.record import replace
from ..core.steps import Remembered, Trajectory
from ..core.tree import tree_map
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Numbers, current_numbers, given_as_tensors, stored_numbers
from .kl import k3
from .losses import policy_gradient, squared, total_loss

METRICS = ("policy_loss", "value_loss", "entropy", "approximate_kl", "gradient_norm")
# (trajectory, values, next_values, numbers) -> (advantages, targets), all [T, B]
Estimate = Callable[[Trajectory, Tensor, Tensor, Numbers], tuple[Tensor, Tensor]]


def initial_state(model: ActorCritic, optimizer: Optimizer, numbers: Numbers) -> Callable[[Key], TrainState]:
    """Return the `init` of an algorithm of policy and value, whose plain numbers are in its state.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> initial_state(actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), sgd(0.1), {"gamma": 0.5})(keys.key(0)).numbers
    {'gamma': tensor(0.5000, dtype=torch.float64)}
    """

    def init(key: Key) -> TrainState:
        params = model.init(key)
        step = torch.zeros((), dtype=torch.int64, device=key.device)
        own = stored_numbers(numbers, key.device)
        return TrainState(params=params, optimizer=optimizer.init(params), step=step, numbers=own)

    return init


def actor_critic(model: ActorCritic, optimizer: Optimizer, estimate: Estimate, numbers: Numbers) -> Algorithm:
    """Return an algorithm that makes one gradient step for each trajectory [T, B], on the mean over its steps of

    policy_gradient(log pi(a), A) + value_coefficient squared(v, G) - entropy_coefficient entropy

    with (A, G) = estimate(trajectory, values, next_values, numbers), all [T, B]; the values are those of observation and
    next_observation before the update, without gradient. `numbers`, both coefficients among them, are in the state, so that
    changing one compiles nothing anew. The data must come from the policy that is updated. A model with memory is applied to
    the steps in their order, and the gradient flows back to the trajectory's first step, or to the beginning of the episode.

    Metrics: policy_loss, value_loss, entropy, gradient_norm, and approximate_kl: k3 between behaviour and current policy,
    which measures how far the data are off-policy. `update` ignores its key.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> def rewards(trajectory, values, next_values, numbers):
    ...     return trajectory.reward - values, trajectory.reward
    >>> bandit = actor_critic(model, sgd(0.1), rewards, {"value_coefficient": 1.0, "entropy_coefficient": 0.0})
    >>> int(bandit.init(keys.key(0)).step)
    0
    """
    check_model(model)
    check_optimizer(optimizer)
    fixed, names, apply, optimize = given_as_tensors(numbers), tuple(numbers), model.apply, optimizer.update

    def look(params: Any, given: Trajectory | Remembered) -> tuple[Distribution, Tensor, Tensor]:
        """Return distributions, values [T, B] and log-probs [T, B]."""
        if isinstance(given, Remembered):
            distribution, values = replayed(model, params, given)
            return distribution, values, distribution.log_prob(given.trajectory.action)
        distribution, values = apply_to_steps(apply, params, given.observation)
        log_probs = distribution.log_prob(tree_map(lambda leaf: leaf.flatten(0, 1), given.action))
        return distribution, values, log_probs.reshape(values.shape)

    def loss(
        params: Any, given: Trajectory | Remembered, next_values: Tensor, numbers: Numbers
    ) -> tuple[Tensor, dict[str, Tensor]]:
        trajectory = recalled("actor_critic", model, given)
        distribution, values, log_probs = look(params, given)
        advantages, targets = estimate(trajectory, values.detach(), next_values, numbers)
        policy_loss = policy_gradient(log_probs, advantages).mean()
        value_loss = squared(values, targets).mean()
        entropy = distribution.entropy().mean()
        total = total_loss(policy_loss, value_loss, entropy, numbers)
        approximate_kl = k3(trajectory.behaviour_log_prob, log_probs).mean()
        parts = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approximate_kl": approximate_kl,
        }
        return total, {name: part.detach() for name, part in parts.items()}

    def update(state: TrainState, given: Trajectory | Remembered, key: Key) -> tuple[TrainState, Metrics]:
        del key
        recalled("actor_critic", model, given)
        # Computed outside the gradient, so that the backward pass does not run over a second batch of observations.
        _, next_values = values_replayed(model, state.params, given)
        now = current_numbers("actor_critic", names, state.numbers, fixed)
        gradients, metrics = torch.func.grad(loss, has_aux=True)(state.params, given, next_values, now)
        updates, optimizer_state = optimize(gradients, state.optimizer, state.params)
        params = apply_updates(state.params, updates)
        after = replace(state, params=params, optimizer=optimizer_state, step=state.step + 1)
        return after, {**metrics, "gradient_norm": global_norm(gradients)}

    return Algorithm(init=initial_state(model, optimizer, numbers), update=update, metrics=METRICS, memory=True)
