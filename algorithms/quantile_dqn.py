"""QR-DQN: deep Q-learning of quantiles of the return, by quantile regression (Dabney et al. 2018)."""

from typing import Any, Literal

from torch import Tensor

from ..core.keys import Key
from ..core.optim.interface import Optimizer
from ..core.quantile_values import QuantileValues, middle_levels
from .algorithm import Algorithm, TrainState
from .distributional_losses import quantile_huber_loss
from .hyperparameters import Count, Fraction, Steps, numbers_of
from .off_policy import Batch, ReplayOptions
from .q_learner import check_model_type, of_action, q_learner


def quantile_dqn(
    model: QuantileValues,
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
    n_step: Count = 1,  # rewards before a value
    replay: Literal["uniform", "prioritised"] = "uniform",  # which transitions are drawn
    priority_exponent: Fraction = 0.6,  # of a prioritised draw: 0 draws uniformly
    importance_exponent: Fraction = 0.4,  # 1 corrects all of its bias
) -> Algorithm:
    """Quantile-regression DQN for trajectories [T, B], with a model of `quantile_values_mlp`.

    L = mean(w quantile_huber_loss(q(s, a), y)),    y_j = r + gamma^n q'_j(s_n, b),    b = argmax_b mean_i q_i(s_n, b)

    q are the quantiles at `middle_levels`, q' those of the target network; with target "max" they choose b, as in the source.
    The target network, exploration, endings and replay are those of `dqn`.

    Metrics, means over the updates: loss, value (mean Q of the batch's actions), error (mean |Q - mean_j y_j|, of which
    priorities are made), gradient_norm, exploration; replay_rows. Raises: ChoiceError, StructureError.
    Source: Dabney et al. 2018, arXiv:1710.10044.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.quantile_values import quantile_values_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = quantile_dqn(quantile_values_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).params["epsilon"]
    tensor(1.)
    """
    numbers = numbers_of(quantile_dqn, locals())
    check_model_type("quantile_dqn", model, QuantileValues, "quantile_values")

    def wanted_of(state: TrainState, batch: Batch, key: Key) -> Tensor:
        del key
        following = model.outputs(state.targets, batch.next_observation)
        chooser = model.outputs(state.params["network"], batch.next_observation) if target == "double" else following
        best = of_action(following, model.values(chooser, batch.next_observation).argmax(-1))
        return batch.reward[..., None] + batch.discount[..., None] * best

    def losses_of(network: Any, batch: Batch, wanted: Tensor, key: Key) -> tuple[Tensor, Tensor, Tensor]:
        del key
        taken = of_action(model.outputs(network, batch.observation), batch.action)
        losses = quantile_huber_loss(taken, wanted, middle_levels(taken.shape[-1], taken.device))
        value = taken.mean(-1)
        return losses, value, value - wanted.mean(-1)

    options = ReplayOptions(
        replay_size=replay_size,
        batch_size=batch_size,
        updates=updates,
        n_step=n_step,
        prioritised=replay == "prioritised",
    )
    return q_learner(model, optimizer, numbers, options, wanted_of, losses_of)
