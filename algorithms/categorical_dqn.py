"""C51: deep Q-learning of probabilities of returns, by projection onto fixed ones (Bellemare et al. 2017)."""

from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from ..core.categorical_values import CategoricalValues
from ..core.errors import ChoiceError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from .algorithm import Algorithm, TrainState
from .distributional_losses import project_categorical
from .hyperparameters import Coefficient, Count, Fraction, Number, Numbers, Steps, numbers_of
from .off_policy import Batch, ReplayOptions
from .q_learner import check_model_type, explore_by_epsilon, of_action, q_learner


def categorical_dqn(
    model: CategoricalValues,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    lowest_return: Coefficient = -10.0,  # that is told apart; those below count as it
    highest_return: Coefficient = 10.0,  # that is told apart; those above count as it
    replay_size: Count = 50_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 64,  # transitions of an update
    updates: Count = 1,  # of the network after each rollout
    exploration: Fraction = 0.05,  # probability of a random action in the end; 1 at first
    exploration_steps: Steps = 10_000,  # in the environment, until it is reached
    target_period: Steps = 200,  # updates from one change of the target network to the next
    target_rate: Fraction = 1.0,  # how far the target network then moves to the network
    target: Literal["double", "max"] = "double",  # the next action: the network's, or the target network's
    n_step: Count = 1,  # rewards before a value
    replay: Literal["uniform", "prioritised"] = "uniform",  # which transitions are drawn
    priority_exponent: Fraction = 0.6,  # of a prioritised draw: 0 draws uniformly
    importance_exponent: Fraction = 0.4,  # 1 corrects all of its bias
) -> Algorithm:
    """Categorical DQN for trajectories [T, B], with a model of `categorical_values_mlp`.

    L = mean(-w sum_i y_i log p_i(s, a)),    y = project_categorical(p'(s_n, b), r, gamma^n),    b = argmax_b Q(s_n, b)

    p are the probabilities of N returns z in equal steps from `lowest_return` to `highest_return`, and Q = sum_i p_i z_i; p'
    are those of the target network, whose Q chooses b with target "max", as in the source. The target network, exploration,
    endings and replay are those of `dqn`. Choose bounds beyond all discounted returns: those beyond count as the bound.

    Metrics, means over the updates: loss, value (mean Q of the batch's actions), error (the mean KL divergence of p from y, of
    which priorities are made), gradient_norm, exploration; replay_rows. Raises: ChoiceError (also for bounds in the wrong
    order), StructureError. Source: Bellemare et al. 2017, arXiv:1707.06887.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.categorical_values import categorical_values_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = categorical_dqn(categorical_values_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).params["support"][:3]
    tensor([-10.0000,  -9.6000,  -9.2000])
    """
    numbers = numbers_of(categorical_dqn, locals())
    check_model_type("categorical_dqn", model, CategoricalValues, "categorical_values")

    check_order(lowest_return, highest_return)

    def init(key: Key) -> dict[str, Any]:
        params = model.init(key)
        return {**params, "support": support_of(params["support"], numbers)}

    def wanted_of(state: TrainState, batch: Batch, key: Key) -> tuple[Tensor, Tensor]:
        del key
        support = state.params["support"]
        following = model.log_probs(state.targets, batch.next_observation)
        chooser = following
        if target == "double":
            chooser = model.log_probs(state.params["network"], batch.next_observation)
        best = model.values(chooser, batch.next_observation, support).argmax(-1)
        probs = torch.exp(of_action(following, best))
        return project_categorical(probs, batch.reward, batch.discount, support), support

    def losses_of(network: Any, batch: Batch, wanted: tuple[Tensor, Tensor], key: Key) -> tuple[Tensor, Tensor, Tensor]:
        del key
        probs, support = wanted
        log_probs = of_action(model.log_probs(network, batch.observation), batch.action)
        losses = -(probs * log_probs).sum(-1)
        own = (probs * torch.log(probs.clamp_min(torch.finfo(probs.dtype).tiny))).sum(-1)
        return losses, (torch.exp(log_probs) * support).sum(-1), losses + own

    def explore(params: Any, stored: Tensor, now: Numbers) -> Any:
        return {**explore_by_epsilon(params, stored, now), "support": support_of(params["support"], now)}

    options = ReplayOptions(
        replay_size=replay_size,
        batch_size=batch_size,
        updates=updates,
        n_step=n_step,
        prioritised=replay == "prioritised",
    )
    return q_learner(attrs.evolve(model, init=init), optimizer, numbers, options, wanted_of, losses_of, explore)


def support_of(support: Tensor, now: Numbers) -> Tensor:
    """Return returns in equal steps from lowest_return to highest_return, as many as in this support and like it: [*, N].

    >>> support_of(torch.zeros(3), {"lowest_return": -1.0, "highest_return": 3.0})
    tensor([-1.,  1.,  3.])
    """
    low, high = now["lowest_return"], now["highest_return"]
    parts = torch.linspace(0.0, 1.0, support.shape[-1], device=support.device)
    return (low + (high - low) * parts).to(support.dtype).expand_as(support)


def check_order(low: Number, high: Number) -> None:
    """Raise ChoiceError unless the lowest return is below the highest one; tensors are not looked into.

    >>> check_order(-1.0, 1.0)
    """
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and low >= high:
        remedy = "lower it, or raise the other"
        where, wanted = "categorical_dqn: lowest_return", f"below highest_return {high}"
        raise ChoiceError(message(where, got=low, wanted=wanted, remedy=remedy))
