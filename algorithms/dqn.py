"""Deep Q-learning: learn the values of actions from a replay buffer, and take the best one (Mnih et al. 2015)."""

from typing import Any, Literal

import torch
from torch import Tensor

from ..core.action_values import ActionValues
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from .algorithm import Algorithm, TrainState
from .hyperparameters import Count, Fraction, Number, Steps, numbers_of
from .off_policy import Batch, ReplayOptions
from .q_learner import check_model_type, q_learner


def dqn(
    model: ActionValues,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    replay_size: Count = 50_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 64,  # transitions of an update
    updates: Count = 1,  # of the network after each rollout
    exploration: Fraction = 0.05,  # probability of a random action in the end; 1 at first
    exploration_steps: Steps = 10_000,  # in the environment, until it is reached
    target_period: Steps = 200,  # updates from one change of the target network to the next
    target_rate: Fraction = 1.0,  # how far the target network then moves to the network
    target: Literal["double", "max"] = "double",  # the next action: the network's, or the target network's
    loss: Literal["huber", "squared"] = "huber",  # of an error
    n_step: Count = 1,  # rewards before a value
    replay: Literal["uniform", "prioritised"] = "uniform",  # which transitions are drawn
    priority_exponent: Fraction = 0.6,  # of a prioritised draw: 0 draws uniformly
    importance_exponent: Fraction = 0.4,  # 1 corrects all of its bias
) -> Algorithm:
    """DQN with double targets, n-step returns and prioritised replay as choices, for trajectories [T, B].

    L = mean(w loss(Q(s, a) - y)),    y = r + gamma^n Q'(s_n, b),    b = argmax_b Q(s_n, b), or of Q' with target "max"

    Q' are the params of `target_period` updates ago, or an average with `target_rate` below 1. A termination ends the return, a
    truncation does not. An action is random with a probability that falls linearly from 1 to `exploration`. Dueling is a matter
    of the model: `action_values_mlp(..., is_dueling=True)`.

    Metrics, means over the updates: loss, value (mean Q of the batch's actions), error (mean |Q - y|), gradient_norm,
    exploration (the probability of a random action); replay_rows. Raises: ChoiceError, StructureError.
    Source: Mnih et al. 2015, doi:10.1038/nature14236; van Hasselt et al. 2016, arXiv:1509.06461 (double); Schaul et al. 2016,
    arXiv:1511.05952 (prioritised).

    >>> from purestep.core import keys
    >>> from purestep.core.action_values import action_values_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = dqn(action_values_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).params["epsilon"]
    tensor(1.)
    """
    numbers = numbers_of(dqn, locals())
    check_model_type("dqn", model, ActionValues, "action_values")
    double, squared = target == "double", loss == "squared"

    def q(network: Any, observation: Any) -> Tensor:
        return model.values(model.outputs(network, observation), observation)

    def wanted_of(state: TrainState, batch: Batch, key: Key) -> Tensor:
        del key
        next_target = q(state.targets, batch.next_observation)
        next_online = q(state.params["network"], batch.next_observation) if double else next_target
        return q_target(batch.reward, next_online, next_target, batch.discount)

    def losses_of(network: Any, batch: Batch, wanted: Tensor, key: Key) -> tuple[Tensor, Tensor, Tensor]:
        del key
        value = q(network, batch.observation).gather(-1, batch.action[..., None])[..., 0]
        error = value - wanted
        return 0.5 * error.square() if squared else huber(error), value, error

    options = ReplayOptions(
        replay_size=replay_size,
        batch_size=batch_size,
        updates=updates,
        n_step=n_step,
        prioritised=replay == "prioritised",
    )
    return q_learner(model, optimizer, numbers, options, wanted_of, losses_of)


def q_target(reward: Tensor, next_online: Tensor, next_target: Tensor, discount: Tensor) -> Tensor:
    """Return reward + discount Q'(s', argmax_b Q(s', b)): Q and Q' [*, A], the rest [*]. With Q = Q' it is the maximum.

    Source: van Hasselt et al. 2016, arXiv:1509.06461.

    >>> one = torch.tensor([1.0])
    >>> q_target(one, torch.tensor([[0.0, 1.0]]), torch.tensor([[9.0, 4.0]]), 0.5 * one)
    tensor([3.])
    """
    best = next_online.argmax(-1, keepdim=True)
    return reward + discount * next_target.gather(-1, best)[..., 0]


def huber(error: Tensor, threshold: Number = 1.0) -> Tensor:
    """Return error^2 / 2 within the threshold, and threshold (|error| - threshold / 2) beyond: [*].

    >>> huber(torch.tensor([-0.5, 3.0]))
    tensor([0.1250, 2.5000])
    """
    size = error.abs()
    near = torch.clamp(size, max=threshold)
    return near * (size - 0.5 * near)
