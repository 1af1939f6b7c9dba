"""Imitation of demonstrated actions by maximum likelihood, also called behaviour cloning."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import keys
from ..core.keys import Key
from ..core.optim.interface import Optimizer
from ..core.optim.optimizers import apply_updates
from ..core.policy import ActorCritic
from ..core.record import record
from ..core.scan import scan
from ..core.tree import leaves, tree_map


@record
class Demonstrations:
    """Actions of a demonstrator, with the observations at which it chose them."""

    observation: Any  # leaves [N, ...]
    action: Any  # leaves [N, ...]


def imitation_loss(model: ActorCritic, params: Any, shown: Demonstrations) -> Tensor:
    """Return the mean negative log-prob of N demonstrated actions: - sum_i log pi(a_i | o_i) / N, [].

    Source: Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation".

    >>> from ..core.policy import actor_critic_mlp
    >>> from ..core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(0.0, 1.0, (1,)), Discrete(2), (4,))
    >>> zero = tree_map(torch.zeros_like, model.init(keys.key(0)))  # both actions are equally probable
    >>> imitation_loss(model, zero, Demonstrations(observation=torch.zeros(1, 1), action=torch.tensor([1])))
    tensor(0.6931)
    """
    distribution, _, _ = model.apply(params, shown.observation, ())
    return -distribution.log_prob(shown.action).mean()


def imitation(
    model: ActorCritic, optimizer: Optimizer, batch: int
) -> Callable[[Any, Demonstrations, Key], tuple[Any, Tensor]]:
    """Return a function (params, N demonstrations, keys [n, 2]) -> (params, losses [n]) that makes n steps.

    A step draws `batch` demonstrations at random, with replacement, and descends their `imitation_loss`.

    >>> from ..core.optim.optimizers import adam
    >>> from ..core.policy import actor_critic_mlp
    >>> from ..core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(0.0, 1.0, (1,)), Discrete(2), (4,))
    >>> shown = Demonstrations(observation=torch.tensor([[0.0], [1.0]]), action=torch.tensor([0, 1]))
    >>> run = imitation(model, adam(0.05), batch=8)
    >>> params, _ = run(model.init(keys.key(0)), shown, keys.split(keys.key(1), 60))
    >>> model.apply(params, shown.observation, ())[0].mode()
    tensor([0, 1])
    """
    gradient = torch.func.grad_and_value(lambda params, shown: imitation_loss(model, params, shown))

    def run(params: Any, shown: Demonstrations, each: Key) -> tuple[Any, Tensor]:
        count = leaves(shown.action)[0].shape[0]

        def step(carry: tuple[Any, object], key: Key) -> tuple[tuple[Any, object], Tensor]:
            params, state = carry
            drawn = keys.randint(key, (batch,), 0, count)
            gradients, value = gradient(params, tree_map(lambda leaf: leaf[drawn], shown))
            updates, after = optimizer.update(gradients, state, params)
            return (apply_updates(params, updates), after), value

        (params, _), losses = scan(step, (params, optimizer.init(params)), each)
        return params, losses

    return run
