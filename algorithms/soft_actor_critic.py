"""The update of a soft actor-critic, which `sac` and `discrete_sac` share: critics, policy and temperature from one batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.policy import ActorCritic
from ..core.record import replace
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Numbers, scaled, stored_numbers
from .off_policy import Batch, ReplayOptions, follow, off_policy
from .td3 import critics_gradient

METRICS = (
    "critic_loss",
    "policy_loss",
    "value",
    "error",
    "entropy",
    "temperature",
    "critic_gradient_norm",
    "policy_gradient_norm",
)
# (the critics' params, observation [K, ...], action [K, ...]) -> Q [C, K]
Taken = Callable[[Any, Any, Tensor], Tensor]
# (key, batch) -> two draws: for the next state's value, and for the policy's loss
Draws = Callable[[Key, Batch], tuple[Any, Any]]
# (the policy's params, the target critics', batch, temperature, draw) -> V(next_observation) with the entropy's weight: [K]
NextValue = Callable[[Any, Any, Batch, Tensor, Any], Tensor]
# (the policy's params, the critics', batch, temperature, draw, numbers) -> loss, entropy, gradient of log_temperature, all []
PolicyLoss = Callable[[Any, Any, Batch, Tensor, Any, Numbers], tuple[Tensor, Tensor, Tensor]]


def soft_actor_critic(
    model: ActorCritic,
    optimizer: Optimizer,
    numbers: Numbers,
    options: ReplayOptions,
    *,
    taken: Taken,
    draws: Draws,
    next_value: NextValue,
    policy_loss: PolicyLoss,
    is_learned: bool,
) -> Algorithm:
    """Return the algorithm that descends the losses of critics, policy and, where it is learnt, log_temperature, in this order.

    L = sum_i mean((Q_i(s, a) - y)^2) / 2,    y = r + gamma^n next_value

    The policy's loss is that of the critics after their step. Params of the model are {"policy": ..., "critics": [C, ...]}.
    Source: Haarnoja et al. 2018, arXiv:1812.05905.

    >>> from purestep.core.actor_q import stochastic_actor_mlp
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.spaces import Box
    >>> model = stochastic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,))
    >>> zero = torch.zeros(())
    >>> algorithm = soft_actor_critic(model, sgd(0.1), {"gamma": 0.9, "learning_starts": 1},
    ...     ReplayOptions(replay_size=8, batch_size=2, updates=1), taken=model.critics, draws=lambda key, batch: (key, key),
    ...     next_value=lambda *_: zero, policy_loss=lambda *_: (zero, zero, zero), is_learned=True)
    >>> algorithm.metrics[-2:]
    ('policy_gradient_norm', 'replay_rows')
    """
    check_optimizer(optimizer)

    def learn(state: TrainState, batch: Batch, key: Key, now: Numbers) -> tuple[TrainState, Tensor, Metrics]:
        policy, critics, targets = state.params["policy"], state.params["critics"], state.targets
        policy_optimizer, critics_optimizer, *others = state.optimizer
        weight = current_temperature(state, now)
        next_draw, policy_draw = draws(key, batch)

        beyond = next_value(policy, targets["critics"], batch, weight, next_draw)
        gradients, critic_figures = critics_gradient(taken, critics, batch, batch.reward + batch.discount * beyond)
        step, critics_optimizer = optimizer.update(gradients, critics_optimizer, critics)
        critics = apply_updates(critics, step)

        def loss_of_policy(policy: Any) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
            loss, entropy, slope = policy_loss(policy, critics, batch, weight, policy_draw, now)
            return loss, (loss.detach(), entropy.detach(), slope.detach())

        uphill, (loss, entropy, slope) = torch.func.grad(loss_of_policy, has_aux=True)(policy)
        step, policy_optimizer = optimizer.update(uphill, policy_optimizer, policy)
        policy = apply_updates(policy, step)

        log_temperature = targets["log_temperature"]
        if is_learned:
            step, *others = optimizer.update(slope, others[0], log_temperature)
            log_temperature = apply_updates(log_temperature, step)

        figures = {
            **critic_figures,
            "policy_loss": loss,
            "entropy": entropy,
            "temperature": weight,
            "critic_gradient_norm": global_norm(gradients),
            "policy_gradient_norm": global_norm(uphill),
        }
        average = follow(targets["critics"], critics, now["target_rate"])
        after = replace(
            state,
            params={"policy": policy, "critics": critics},
            optimizer=(policy_optimizer, critics_optimizer, *others),
            targets={"critics": average, "log_temperature": log_temperature},
        )
        return after, critic_figures["error"].expand_as(batch.reward), figures

    init = soft_init(model, optimizer, numbers, is_learned=is_learned)
    return off_policy(init, learn, as_it_acts, numbers, options, METRICS)


def soft_init(
    model: ActorCritic, optimizer: Optimizer, numbers: Numbers, *, is_learned: bool
) -> Callable[[Key], TrainState]:
    """Return `init` of a soft actor-critic: optimiser states of policy, critics and, where it is learnt, log_temperature.

    >>> from purestep.core import keys
    >>> from purestep.core.actor_q import stochastic_actor_mlp
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.spaces import Box
    >>> model = stochastic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,))
    >>> len(soft_init(model, sgd(0.1), {}, is_learned=True)(keys.key(0)).optimizer)
    3
    """

    def init(key: Key) -> TrainState:
        params = model.init(key)
        log_temperature = torch.zeros((), device=key.device)
        parts = [params["policy"], params["critics"], *([log_temperature] if is_learned else [])]
        return TrainState(
            params=params,
            optimizer=tuple(optimizer.init(part) for part in parts),
            step=torch.zeros((), dtype=torch.int64, device=key.device),
            numbers=stored_numbers(numbers, key.device),
            targets={"critics": params["critics"], "log_temperature": log_temperature},
        )

    return init


def as_it_acts(params: Any, stored: Tensor, now: Numbers) -> Any:
    """Return the params: the policy explores by itself.

    >>> as_it_acts({"policy": ()}, torch.tensor(1), {})
    {'policy': ()}
    """
    del stored, now
    return params


def current_temperature(state: TrainState, now: Numbers) -> Tensor:
    """Return initial_temperature exp(log_temperature), the weight of the entropy: [].

    >>> state = TrainState(params=(), optimizer=(), step=(), targets={"log_temperature": torch.tensor(2.0).log()})
    >>> current_temperature(state, {"initial_temperature": 0.5})
    tensor(1.)
    """
    return scaled(now["initial_temperature"], torch.exp(state.targets["log_temperature"]))
