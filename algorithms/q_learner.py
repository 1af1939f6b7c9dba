"""The update of a network of action values with a target network, which `dqn` and its distributional forms share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import keys
from ..core.errors import StructureError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.policy import ActorCritic
from ..core.record import replace, select
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Numbers, stored_numbers
from .off_policy import Batch, Explore, ReplayOptions, annealed, follow, off_policy

METRICS = ("loss", "value", "error", "gradient_norm", "exploration")
# (state, batch, key) -> what the batch's returns are learned from, without a gradient
Wanted = Callable[[TrainState, Batch, Key], Any]
# (the network's params, batch, wanted, key) -> losses, values of the batch's actions, errors for the priorities: all [K]
Losses = Callable[[Any, Batch, Any, Key], tuple[Tensor, Tensor, Tensor]]


def explore_by_epsilon(params: Any, stored: Tensor, now: Numbers) -> Any:
    """Return the params with the probability of a random action after so many transitions.

    >>> explore_by_epsilon({"epsilon": 1.0}, torch.tensor(50), {"exploration": 0.5, "exploration_steps": 100})
    {'epsilon': tensor(0.7500)}
    """
    return {**params, "epsilon": annealed(stored, now["exploration"], now["exploration_steps"])}


def q_learner(
    model: ActorCritic,
    optimizer: Optimizer,
    numbers: Numbers,
    options: ReplayOptions,
    wanted_of: Wanted,
    losses_of: Losses,
    explore: Explore = explore_by_epsilon,
) -> Algorithm:
    """Return the algorithm that descends the mean of weighted losses of a model with the params "network" and "epsilon".

    The target network moves by `updated_target`; `explore` sets all params but the network's after each trajectory.

    >>> from purestep.core.action_values import action_values_mlp
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.spaces import Box, Discrete
    >>> model, zero = action_values_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), torch.zeros(2)
    >>> options = ReplayOptions(replay_size=8, batch_size=2, updates=1)
    >>> learner = q_learner(model, sgd(0.1), {"learning_starts": 1}, options, lambda *_: zero, lambda *_: (zero, zero, zero))
    >>> learner.metrics
    ('loss', 'value', 'error', 'gradient_norm', 'exploration', 'replay_rows')
    """
    check_optimizer(optimizer)

    def init(key: Key) -> TrainState:
        params = model.init(key)
        network = params["network"]
        step = torch.zeros((), dtype=torch.int64, device=key.device)
        own = stored_numbers(numbers, key.device)
        return TrainState(params=params, optimizer=optimizer.init(network), step=step, numbers=own, targets=network)

    def learn(state: TrainState, batch: Batch, key: Key, now: Numbers) -> tuple[TrainState, Tensor, Metrics]:
        wanted_key, losses_key = keys.split(key)
        network, wanted = state.params["network"], wanted_of(state, batch, wanted_key)

        def objective(network: Any) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
            losses, value, error = losses_of(network, batch, wanted, losses_key)
            loss = (batch.weight * losses).mean()
            return loss, (loss.detach(), value.detach(), error.detach())

        gradients, (loss, value, error) = torch.func.grad(objective, has_aux=True)(network)
        step, optimizer_state = optimizer.update(gradients, state.optimizer, network)
        after = apply_updates(network, step)
        targets = updated_target(state, after, now)
        figures = {
            "loss": loss,
            "value": value.mean(),
            "error": error.abs().mean(),
            "gradient_norm": global_norm(gradients),
            "exploration": state.params["epsilon"],
        }
        params = {**state.params, "network": after}
        return replace(state, params=params, optimizer=optimizer_state, targets=targets), error, figures

    return off_policy(init, learn, explore, numbers, options, METRICS)


def updated_target(state: TrainState, network: Any, now: Numbers) -> Any:
    """Return the target params after an update: every `target_period` updates they move to the network's by `target_rate`.

    >>> state = TrainState(params=(), optimizer=(), step=torch.tensor(1), targets=torch.tensor(0.0))
    >>> updated_target(state, torch.tensor(4.0), {"target_period": torch.tensor(2.0), "target_rate": 0.5})
    tensor(2.)
    """
    due = (state.step + 1) % now["target_period"] == 0
    return select(due, follow(state.targets, network, now["target_rate"]), state.targets)


def of_action(outputs: Tensor, action: Tensor) -> Tensor:
    """Return the outputs of the actions: [*, A, N], int64 [*] -> [*, N].

    >>> of_action(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([1]))
    tensor([[3., 4.]])
    """
    index = action[..., None, None].expand(*action.shape, 1, outputs.shape[-1])
    return outputs.gather(-2, index)[..., 0, :]


def check_model_type(where: str, model: Any, wanted: type, maker: str) -> None:
    """Raise StructureError for a model of another type.

    >>> from purestep.core.action_values import ActionValues, action_values_mlp
    >>> from purestep.core.spaces import Discrete
    >>> check_model_type("dqn", action_values_mlp(Discrete(2), Discrete(2)), ActionValues, "action_values")
    """
    if not isinstance(model, wanted):
        remedy = f"make it with `{maker}_mlp`, or with `{maker}` from a network of yours"
        said = f"{'an' if wanted.__name__[0] in 'AEIOU' else 'a'} {wanted.__name__}"
        raise StructureError(message(f"{where}: model", got=type(model).__name__, wanted=said, remedy=remedy))
