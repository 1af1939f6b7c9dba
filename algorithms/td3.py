"""TD3: a deterministic policy that follows the gradient of twin critics, learnt from a replay buffer (Fujimoto et al. 2018)."""

from typing import Any

import torch
from torch import Tensor

from ..core import keys
from ..core.actor_q import DeterministicActor, centre_and_half
from ..core.errors import StructureError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.record import replace, select, take
from ..core.spaces import Box, clip_to_space
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import (
    Count,
    Fraction,
    Number,
    Numbers,
    Steps,
    Weight,
    bounded,
    numbers_of,
    scaled,
    stored_numbers,
)
from .off_policy import Batch, ReplayOptions, annealed, follow, off_policy

METRICS = (
    "critic_loss",
    "policy_loss",
    "value",
    "error",
    "critic_gradient_norm",
    "policy_gradient_norm",
    "exploration",
)


def td3(
    model: DeterministicActor,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    replay_size: Count = 100_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 256,  # transitions of an update
    updates: Count = 1,  # of the critics after each rollout
    exploration: Weight = 0.1,  # standard deviation of an action's noise in the end, in half ranges; 1 at first
    exploration_steps: Steps = 5_000,  # in the environment, until it is reached
    target_rate: Fraction = 0.005,  # how far the target networks move to the networks at each change
    policy_period: Steps = 2,  # updates of the critics from one change of the policy and the targets to the next
    smoothing: Weight = 0.2,  # standard deviation of the noise of a target's action, in half ranges
    smoothing_limit: Weight = 0.5,  # where that noise is clipped, in half ranges
    n_step: Count = 1,  # rewards before a value
) -> Algorithm:
    """TD3 for actions in a box, with a model of `deterministic_actor_mlp`, for trajectories [T, B].

    L = sum_i mean((Q_i(s, a) - y)^2) / 2,    y = r + gamma^n min_i Q'_i(s_n, b)
    b = clip(mu'(s_n) + h clip(e, -smoothing_limit, smoothing_limit)),    e ~ N(0, smoothing^2)

    mu goes up the gradient of mean(Q_1(s, mu(s))). It, and the averages Q' and mu', change every `policy_period` updates. h is
    half the box's range in each dimension. Actions are mu(s) plus noise, whose size falls linearly from 1 to `exploration`; the
    buffer keeps them clipped, as the environment gets them. A termination ends the return, a truncation does not.

    Metrics, means over the updates: critic_loss, policy_loss (-mean Q_1(s, mu(s))), value (mean Q of the batch's actions),
    error (mean |Q - y|), critic_gradient_norm, policy_gradient_norm, exploration; replay_rows.
    Raises: ChoiceError, StructureError. Source: Fujimoto et al. 2018, arXiv:1802.09477.

    >>> from purestep.core.actor_q import deterministic_actor_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> algorithm = td3(deterministic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,)), adam(1e-3))
    >>> sorted(algorithm.init(keys.key(0)).targets)
    ['critics', 'policy']
    """
    numbers = numbers_of(td3, locals())
    check_deterministic("td3", model)
    check_optimizer(optimizer)
    options = ReplayOptions(replay_size=replay_size, batch_size=batch_size, updates=updates, n_step=n_step)
    return deterministic_policy_gradient(model, optimizer, numbers, options)


def deterministic_policy_gradient(
    model: DeterministicActor, optimizer: Optimizer, numbers: Numbers, options: ReplayOptions
) -> Algorithm:
    """Return TD3, or what of it the numbers are for: without smoothing and policy_period it is DDPG with the smallest Q.

    >>> from purestep.core.actor_q import deterministic_actor_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> model = deterministic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,))
    >>> numbers = {"gamma": 0.9, "learning_starts": 1, "exploration": 0.1, "exploration_steps": 10, "target_rate": 0.1}
    >>> options = ReplayOptions(replay_size=8, batch_size=2, updates=1)
    >>> deterministic_policy_gradient(model, adam(1e-3), numbers, options).metrics[:2]
    ('critic_loss', 'policy_loss')
    """
    smooths, delays, box = "smoothing" in numbers, "policy_period" in numbers, model.action_space

    def init(key: Key) -> TrainState:
        params = model.init(key)
        learnt = {"policy": params["policy"], "critics": params["critics"]}
        return TrainState(
            params=params,
            optimizer=(optimizer.init(params["policy"]), optimizer.init(params["critics"])),
            step=torch.zeros((), dtype=torch.int64, device=key.device),
            numbers=stored_numbers(numbers, key.device),
            targets=learnt,
        )

    def learn(state: TrainState, batch: Batch, key: Key, now: Numbers) -> tuple[TrainState, Tensor, Metrics]:
        policy, critics, targets = state.params["policy"], state.params["critics"], state.targets
        policy_optimizer, critics_optimizer = state.optimizer

        best = model.action(targets["policy"], batch.next_observation)
        if smooths:
            noise = keys.normal(key, tuple(best.shape), dtype=best.dtype)
            best = smoothed(best, noise, box, now["smoothing"], now["smoothing_limit"])
        next_values = model.critics(targets["critics"], batch.next_observation, best)
        wanted = least_target(batch.reward, next_values, batch.discount)

        gradients, critic_figures = critics_gradient(model.critics, critics, batch, wanted)
        step, critics_optimizer = optimizer.update(gradients, critics_optimizer, critics)
        critics = apply_updates(critics, step)
        first = take(critics, slice(0, 1))

        def loss_of_policy(policy: Any) -> tuple[Tensor, Tensor]:
            loss = -model.critics(first, batch.observation, model.action(policy, batch.observation)).mean()
            return loss, loss.detach()

        uphill, policy_loss = torch.func.grad(loss_of_policy, has_aux=True)(policy)
        step, policy_optimizer = optimizer.update(uphill, policy_optimizer, policy)
        learnt = {"policy": apply_updates(policy, step), "critics": critics}
        changed = learnt["policy"], policy_optimizer, follow(targets, learnt, now["target_rate"])
        if delays:
            due = (state.step + 1) % now["policy_period"] == 0
            changed = select(due, changed, (policy, state.optimizer[0], targets))
        policy, policy_optimizer, targets = changed

        figures = {
            **critic_figures,
            "policy_loss": policy_loss,
            "critic_gradient_norm": global_norm(gradients),
            "policy_gradient_norm": global_norm(uphill),
            "exploration": state.params["noise"],
        }
        params = {**state.params, "policy": policy, "critics": critics}
        after = replace(state, params=params, optimizer=(policy_optimizer, critics_optimizer), targets=targets)
        return after, critic_figures["error"].expand_as(batch.reward), figures

    def clipped(action: Tensor) -> Tensor:
        return clip_to_space(box, action)

    return off_policy(init, learn, explore_by_noise, numbers, options, METRICS, action=clipped)


def check_deterministic(where: str, model: Any) -> None:
    """Raise StructureError for anything but a DeterministicActor.

    >>> from purestep.core.actor_q import deterministic_actor_mlp
    >>> check_deterministic("td3", deterministic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,)))
    """
    if not isinstance(model, DeterministicActor):
        remedy = "make it with `deterministic_actor_mlp`, or with `deterministic_actor` from networks of yours"
        got, wanted = type(model).__name__, "a DeterministicActor"
        raise StructureError(message(f"{where}: model", got=got, wanted=wanted, remedy=remedy))


def explore_by_noise(params: Any, stored: Tensor, now: Numbers) -> Any:
    """Return the params with the size of an action's noise after so many transitions.

    >>> explore_by_noise({"noise": 1.0}, torch.tensor(50), {"exploration": 0.5, "exploration_steps": 100})
    {'noise': tensor(0.7500)}
    """
    return {**params, "noise": annealed(stored, now["exploration"], now["exploration_steps"])}


def smoothed(action: Tensor, noise: Tensor, box: Box, size: Number, limit: Number) -> Tensor:
    """Return the actions plus h clip(size noise, -limit, limit), clipped to the box, h half its range: all [*, A].

    Source: Fujimoto et al. 2018, arXiv:1802.09477, section 5.3.

    >>> smoothed(torch.tensor([[0.0], [1.5]]), torch.tensor([[9.0], [1.0]]), Box(-2.0, 2.0, (1,)), 0.5, 0.75)
    tensor([[1.5000],
            [2.0000]])
    """
    _, half = centre_and_half(box, action)
    return clip_to_space(box, action + half * bounded(scaled(size, noise), -limit, limit))


def least_target(reward: Tensor, next_values: Tensor, discount: Tensor) -> Tensor:
    """Return reward + discount min_i Q_i(s', a'), without a gradient: Q [C, *], the rest [*].

    Source: Fujimoto et al. 2018, arXiv:1802.09477, equation 10.

    >>> one = torch.tensor([1.0, 1.0])
    >>> least_target(one, torch.tensor([[4.0, 2.0], [6.0, -2.0]]), 0.5 * one)
    tensor([3., 0.])
    """
    return reward + discount * next_values.detach().amin(0)


def critics_gradient(critics: Any, params: Any, batch: Batch, wanted: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """Return the gradient of L = sum_i mean(w (Q_i(s, a) - y)^2) / 2 and the metrics critic_loss, value and error, all [].

    `critics` is a function (params, observation, action) -> Q [C, K]; y is `wanted` [K], a constant.

    >>> one = torch.ones(1)
    >>> batch = Batch(observation=one, action=one, reward=one, discount=one, next_observation=one, weight=one)
    >>> critics_gradient(lambda params, _, action: params[:, None] * action, torch.tensor([1.0, 4.0]), batch, 2.0 * one)
    (tensor([-1.,  2.]), {'critic_loss': tensor(2.5000), 'value': tensor(2.5000), 'error': tensor(1.5000)})
    """

    def objective(params: Any) -> tuple[Tensor, dict[str, Tensor]]:
        value = critics(params, batch.observation, batch.action)
        error = value - wanted
        loss = 0.5 * (batch.weight * error.square()).mean(-1).sum()
        aux = {"critic_loss": loss.detach(), "value": value.detach().mean(), "error": error.detach().abs().mean()}
        return loss, aux

    gradient: Any
    gradient, figures = torch.func.grad(objective, has_aux=True)(params)
    return gradient, figures
