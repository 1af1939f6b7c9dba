"""Policies of probabilities of returns: a network gives those of each action, and the policy takes that of the best mean."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from .action_values import check_discrete, exploring, greedy, with_mask
from .distributions import EpsilonGreedy
from .errors import at_least
from .keys import Key
from .networks import Activation, Network, mlp
from .policy import ActorCritic, Carry, encoded_size, encoder, features_of, flat
from .spaces import Space


@frozen(kw_only=True)
class CategoricalValues(ActorCritic):
    """A policy of probabilities of N returns for each action, epsilon-greedy in Q(s, a), their mean.

    Params: {"network": the network's, "epsilon": [], "support": [N], the returns}. The algorithm sets epsilon and the support.
    """

    log_probs: Callable[[Any, Any], Tensor]  # (the network's params, observation [*, ...]) -> [*, A, N]
    values: Callable[
        [Tensor, Any, Tensor], Tensor
    ]  # (log-probs, observation, support [N]) -> Q [*, A], low where illegal
    atoms: int  # N


def categorical_values(network: Network, observation_space: Space, *, atoms: int) -> CategoricalValues:
    """Return the policy of a network from observations to logits [*, A, atoms], of returns from 0 to 1 until they are set.

    Masks are those of `action_values`. Raises: StructureError, ChoiceError.
    Source: Bellemare et al. 2017, arXiv:1707.06887.

    >>> from purestep.core import keys
    >>> from purestep.core.spaces import Box
    >>> network = Network(init=lambda key: torch.zeros(2, 3), apply=lambda params, x: params)
    >>> model = categorical_values(network, Box(-1.0, 1.0, (4,)), atoms=3)
    >>> model.apply(model.init(keys.key(0)), torch.zeros(4), ())[1]  # (0 + 1/2 + 1) / 3
    tensor(0.5000)
    """
    at_least("categorical_values: atoms", atoms, 2)
    visible, legal = with_mask("categorical_values", observation_space)
    begin, named = exploring(network)

    def init(key: Key) -> dict[str, Any]:
        support = torch.linspace(0.0, 1.0, atoms, device=key.device).expand(*key.shape[:-1], atoms)
        return {**begin(key), "support": support}

    def log_probs(params: Any, observation: Any) -> Tensor:
        return torch.log_softmax(network.apply(params, visible(observation)), -1)

    def values(log_prob: Tensor, observation: Any, support: Tensor) -> Tensor:
        return legal((torch.exp(log_prob) * support).sum(-1), observation)

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[EpsilonGreedy, Tensor, Carry]:
        q = values(log_probs(params["network"], observation), observation, params["support"])
        return *greedy(q, params["epsilon"]), carry

    return CategoricalValues(init=init, apply=apply, named=named, log_probs=log_probs, values=values, atoms=atoms)


def categorical_values_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "relu",
    *,
    atoms: int = 51,
    product: str = "matmul",
) -> CategoricalValues:
    """Return the policy of a perceptron from observations to logits of returns, with the initial weights of `torch.nn.Linear`.

    Params of the network are one vector. Raises: StructureError, ChoiceError.

    >>> from purestep.core import keys
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = categorical_values_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> model.log_probs(model.init(keys.key(0))["network"], torch.zeros(3, 4)).shape
    torch.Size([3, 2, 51])
    """
    actions = check_discrete("categorical_values_mlp", action_space).n
    features = features_of("categorical_values_mlp", observation_space)
    sizes = [encoded_size(features), *hidden, actions * atoms]
    network = by_action(mlp(sizes, activation, gain=1.0, initial="uniform", product=product), actions)
    return categorical_values(flat(encoder(features, network)), observation_space, atoms=atoms)


def by_action(network: Network, actions: int) -> Network:
    """Return the network with its outputs [*, A N] as [*, A, N].

    >>> from purestep.core import keys
    >>> network = by_action(mlp([1, 6]), 2)
    >>> network.apply(network.init(keys.key(0)), torch.zeros(4, 1)).shape
    torch.Size([4, 2, 3])
    """
    return Network(init=network.init, apply=lambda params, x: network.apply(params, x).unflatten(-1, (actions, -1)))
