"""The update shared by REINFORCE and A2C: one gradient step on policy, value and entropy for each trajectory.

`initial_state` and `total_loss` are PPO's, too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.keys import Key
from ..core.optim.optimizers import Optimizer, apply_updates, check_optimizer, global_norm
from ..core.policy import ActorCritic, apply_to_steps, check_model
from ..core.record import replace
from ..core.steps import Trajectory
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Numbers, current_numbers, given_as_tensors, scaled, stored_numbers
from .kl import k3
from .policy_losses import policy_gradient
from .value_losses import squared

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


def total_loss(policy_loss: Tensor, value_loss: Tensor, entropy: Tensor, numbers: Numbers) -> Tensor:
    """Return policy_loss + value_coefficient value_loss - entropy_coefficient entropy, all [].

    A language model's loss has an entropy of its own: it is averaged by the counts of tokens in the whole batch.

    >>> terms = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)
    >>> total_loss(*terms, {"value_coefficient": 0.5, "entropy_coefficient": 0.25})
    tensor(1.)
    """
    total = policy_loss + scaled(numbers["value_coefficient"], value_loss)
    return total - scaled(numbers["entropy_coefficient"], entropy)


def actor_critic(model: ActorCritic, optimizer: Optimizer, estimate: Estimate, numbers: Numbers) -> Algorithm:
    """Return an algorithm that makes one gradient step for each trajectory [T, B], on the mean over its steps of

    policy_gradient(log pi(a), A) + value_coefficient squared(v, G) - entropy_coefficient entropy

    with (A, G) = estimate(trajectory, values, next_values, numbers), all [T, B]; the values are those of observation and
    next_observation before the update, without gradient. `numbers`, both coefficients among them, are in the state, so that
    changing one compiles nothing anew. The data must come from the policy that is updated.

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

    def loss(
        params: Any, trajectory: Trajectory, next_values: Tensor, numbers: Numbers
    ) -> tuple[Tensor, dict[str, Tensor]]:
        distribution, values = apply_to_steps(apply, params, trajectory.observation)
        advantages, targets = estimate(trajectory, values.detach(), next_values, numbers)
        log_probs = distribution.log_prob(trajectory.action.flatten(0, 1)).reshape(values.shape)
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

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, Metrics]:
        del key
        # Computed outside the gradient, so that the backward pass does not run over a second batch of observations.
        _, next_values = apply_to_steps(apply, state.params, trajectory.next_observation)
        now = current_numbers("actor_critic", names, state.numbers, fixed)
        gradients, metrics = torch.func.grad(loss, has_aux=True)(state.params, trajectory, next_values, now)
        updates, optimizer_state = optimize(gradients, state.optimizer, state.params)
        params = apply_updates(state.params, updates)
        after = replace(state, params=params, optimizer=optimizer_state, step=state.step + 1)
        return after, {**metrics, "gradient_norm": global_norm(gradients)}

    return Algorithm(init=initial_state(model, optimizer, numbers), update=update, metrics=METRICS)
