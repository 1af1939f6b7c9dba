"""DDPG: a deterministic policy that follows the gradient of a critic, learnt from a replay buffer (Lillicrap et al. 2015)."""

from typing import Annotated

from ..core.actor_q import DeterministicActor
from ..core.errors import StructureError, message
from ..core.optim.interface import Optimizer, check_optimizer
from .algorithm import Algorithm
from .hyperparameters import Count, Fraction, Steps, Weight, numbers_of
from .off_policy import ReplayOptions
from .td3 import check_deterministic, deterministic_policy_gradient

CRITICS = 1


def ddpg(
    model: Annotated[DeterministicActor, {"critics": CRITICS}],
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    replay_size: Count = 100_000,  # transitions that are kept
    learning_starts: Steps = 1_000,  # transitions before the first update
    batch_size: Count = 256,  # transitions of an update
    updates: Count = 1,  # after each rollout
    exploration: Weight = 0.1,  # standard deviation of an action's noise in the end, in half ranges; 1 at first
    exploration_steps: Steps = 5_000,  # in the environment, until it is reached
    target_rate: Fraction = 0.005,  # how far the target networks move to the networks at each update
    n_step: Count = 1,  # rewards before a value
) -> Algorithm:
    """DDPG for actions in a box, with a model of `deterministic_actor_mlp(..., critics=1)`, for trajectories [T, B].

    L = mean((Q(s, a) - y)^2) / 2,    y = r + gamma^n Q'(s_n, mu'(s_n))

    mu goes up the gradient of mean(Q(s, mu(s))); Q' and mu' are moving averages. Actions are mu(s) plus independent normal
    noise, where the source has correlated noise. It is `td3` with one critic, without smoothing, and changes the policy at
    every update; metrics and the rest are those. Raises: ChoiceError, StructureError.
    Source: Lillicrap et al. 2015, arXiv:1509.02971.

    >>> from purestep.core.actor_q import deterministic_actor_mlp
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.spaces import Box
    >>> model = deterministic_actor_mlp(Box(-1.0, 1.0, (2,)), Box(-1.0, 1.0, (1,)), (4,), critics=1)
    >>> ddpg(model, adam(1e-3)).metrics[:2]
    ('critic_loss', 'policy_loss')
    """
    numbers = numbers_of(ddpg, locals())
    check_deterministic("ddpg", model)
    if model.critics_count != CRITICS:
        remedy = f"make the model with critics={CRITICS}, or use td3"
        raise StructureError(message("ddpg: critics", got=model.critics_count, wanted=CRITICS, remedy=remedy))
    check_optimizer(optimizer)
    options = ReplayOptions(replay_size=replay_size, batch_size=batch_size, updates=updates, n_step=n_step)
    return deterministic_policy_gradient(model, optimizer, numbers, options)
