"""IQN: deep Q-learning of the quantile function of the return, at levels drawn at random (Dabney et al. 2018)."""

from typing import Any, Literal

from torch import Tensor

from ..core import keys
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from ..core.quantile_values import ImplicitQuantiles
from .algorithm import Algorithm, TrainState
from .distributional_losses import quantile_huber_loss
from .hyperparameters import Count, Fraction, Steps, numbers_of
from .off_policy import Batch, ReplayOptions
from .q_learner import check_model_type, of_action, q_learner


def iqn(
    model: ImplicitQuantiles,
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
    levels: Count = 8,  # of the return's quantiles that are learned in an update, for each transition
    target_levels: Count = 8,  # of those that they are learned from
    n_step: Count = 1,  # rewards before a value
    replay: Literal["uniform", "prioritised"] = "uniform",  # which transitions are drawn
    priority_exponent: Fraction = 0.6,  # of a prioritised draw: 0 draws uniformly
    importance_exponent: Fraction = 0.4,  # 1 corrects all of its bias
) -> Algorithm:
    """Implicit quantile networks for trajectories [T, B], with a model of `implicit_quantiles_mlp`.

    L = mean(w quantile_huber_loss(q_u(s, a), y)),    y_j = r + gamma^n q'_v_j(s_n, b),    b = argmax_b Q(s_n, b)

    q_u are the quantiles at `levels` levels u ~ U(0, 1) of each transition, q' those of the target network at `target_levels`
    levels v ~ U(0, 1). Q is the mean at the model's own, fixed levels, by which it acts, too; with target "max" it is that of
    the target network, as in the source. The target network, exploration, endings and replay are those of `dqn`.

    Metrics, means over the updates: loss, value (mean over u of the batch's actions), error (mean |that - mean_j y_j|, of which
    priorities are made), gradient_norm, exploration; replay_rows. Raises: ChoiceError, StructureError.
    Source: Dabney et al. 2018, arXiv:1806.06923.

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.quantile_values import implicit_quantiles_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = iqn(implicit_quantiles_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), adam(1e-3))
    >>> algorithm.init(keys.key(0)).params["epsilon"]
    tensor(1.)
    """
    numbers = numbers_of(iqn, locals())
    check_model_type("iqn", model, ImplicitQuantiles, "implicit_quantiles")

    def wanted_of(state: TrainState, batch: Batch, key: Key) -> Tensor:
        chooser = state.params["network"] if target == "double" else state.targets
        seen = batch.next_observation
        best = model.values(model.outputs(chooser, seen), seen).argmax(-1)
        at = keys.uniform(key, (batch_size, target_levels))
        following = of_action(model.quantiles(state.targets, seen, at), best)
        return batch.reward[..., None] + batch.discount[..., None] * following

    def losses_of(network: Any, batch: Batch, wanted: Tensor, key: Key) -> tuple[Tensor, Tensor, Tensor]:
        at = keys.uniform(key, (batch_size, levels))
        taken = of_action(model.quantiles(network, batch.observation, at), batch.action)
        value = taken.mean(-1)
        return quantile_huber_loss(taken, wanted, at), value, value - wanted.mean(-1)

    options = ReplayOptions(
        replay_size=replay_size,
        batch_size=batch_size,
        updates=updates,
        n_step=n_step,
        prioritised=replay == "prioritised",
    )
    return q_learner(model, optimizer, numbers, options, wanted_of, losses_of)
