"""PQN: Q-learning from the last steps of many environments, without replay buffer or target network (Gallici et al. 2024)."""

from typing import Annotated, Any

import torch
from torch import Tensor

from ..core.action_values import ActionValues
from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.policy import values_replayed
from ..core.record import record, replace, take, tensor
from ..core.scan import scan
from ..core.steps import Trajectory
from ..core.tree import tree_map
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Count, Fraction, Steps, current_numbers, given_as_tensors, numbers_of, stored_numbers
from .losses import squared
from .ppo import minibatch_rows
from .q_learner import METRICS, check_model_type, explore_by_epsilon
from .returns import lambda_returns


@record
class PQNSample:
    """The inputs of the loss from a transition. Leading axes: a whole batch [N], or a minibatch."""

    observation: Any  # [*, ...]
    action: Tensor = tensor("*", "int")
    target: Tensor = tensor("*", "float")


def pqn(
    model: Annotated[ActionValues, {"is_normalized": True}],
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    q_lambda: Fraction = 0.95,  # 0 trusts the values, 1 the rewards
    epochs: Count = 4,  # passes over each batch
    minibatches: Count = 16,  # steps of the optimiser in each pass; divides envs x horizon
    exploration: Fraction = 0.05,  # probability of a random action in the end; 1 at first
    exploration_steps: Steps = 50_000,  # in the environment, until it is reached
) -> Algorithm:
    """Parallelised Q-network for trajectories [T, B]: Q(lambda), made stable by layers that are normalised.

    L = mean((Q(s, a) - G)^2) / 2,    G_t = r_t + gamma ((1 - lambda) max_b Q(s_t+1, b) + lambda G_t+1)

    over minibatches as those of `ppo`. G are `lambda_returns` of max_b Q, computed once, before the epochs: they are cut at the
    end of an episode but not behind a random action, as in the source. A truncation and the last row bootstrap from
    next_observation, a termination does not. An action is random with a probability that falls linearly from 1. Take a model
    of `action_values_mlp(..., is_normalized=True)`; without normalised layers it may diverge.

    Metrics, means over the minibatches: loss, value (mean Q of the actions), error (mean |Q - G|), gradient_norm, exploration.
    Raises: ShapeError (number of rows not divisible by minibatches), ChoiceError, StructureError.
    Source: Gallici et al. 2024, arXiv:2407.04811; Daley and Amato 2019, arXiv:1810.09967 (the returns).

    >>> from purestep.core import keys
    >>> from purestep.core.action_values import action_values_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = pqn(action_values_mlp(Box(-1.0, 1.0, (2,)), Discrete(2), is_normalized=True), adam(1e-3))
    >>> algorithm.init(keys.key(0)).params["epsilon"]
    tensor(1.)
    """
    numbers = numbers_of(pqn, locals())
    check_model_type("pqn", model, ActionValues, "action_values")
    check_optimizer(optimizer)
    names, fixed = tuple(numbers), given_as_tensors(numbers)

    def init(key: Key) -> TrainState:
        params = model.init(key)
        step = torch.zeros((), dtype=torch.int64, device=key.device)
        own = stored_numbers(numbers, key.device)
        return TrainState(params=params, optimizer=optimizer.init(params["network"]), step=step, numbers=own)

    def objective(network: Any, sample: PQNSample) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        q = model.values(model.outputs(network, sample.observation), sample.observation)
        value = q.gather(-1, sample.action[..., None])[..., 0]
        loss = squared(value, sample.target).mean()
        error = (value - sample.target).detach().abs().mean()
        return loss, (loss.detach(), value.detach().mean(), error)

    def minibatch(carry: tuple[Any, Any], sample: PQNSample) -> tuple[tuple[Any, Any], Tensor]:
        network, optimizer_state = carry
        gradients, figures = torch.func.grad(objective, has_aux=True)(network, sample)
        step, optimizer_state = optimizer.update(gradients, optimizer_state, network)
        return (apply_updates(network, step), optimizer_state), torch.stack((*figures, global_norm(gradients)))

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, Metrics]:
        now = current_numbers("pqn", names, state.numbers, fixed)
        values, next_values = values_replayed(model, state.params, trajectory)
        ends = trajectory.terminated, trajectory.truncated
        returns = {"gamma": now["gamma"], "lambda_": now["q_lambda"]}
        target = lambda_returns(trajectory.reward, values, next_values, *ends, **returns)
        samples = PQNSample(observation=trajectory.observation, action=trajectory.action, target=target)
        samples = tree_map(lambda leaf: leaf.flatten(0, 1), samples)
        steps = target.numel()
        rows = minibatch_rows(key, steps, epochs=epochs, minibatches=minibatches, where="pqn: rows")
        carry = state.params["network"], state.optimizer
        (network, optimizer_state), figures = scan(
            lambda carry, row: minibatch(carry, take(samples, row)), carry, rows, output=target
        )
        seen = (state.step + 1) * steps
        params = explore_by_epsilon({**state.params, "network": network}, seen, now)
        after = replace(state, params=params, optimizer=optimizer_state, step=state.step + 1)
        parts = (*figures.mean(0).unbind(), state.params["epsilon"])
        return after, dict(zip(METRICS, parts, strict=True))

    return Algorithm(init=init, update=update, metrics=METRICS)
