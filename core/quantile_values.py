"""Policies of quantiles of the return: a network gives those of each action, and the policy takes that of the best mean."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .action_values import ActionValues, action_values, check_discrete, with_mask
from .categorical_values import by_action
from .errors import ShapeError, at_least, message
from .keys import Key
from .networks import ACTIVATIONS, Activation, Network, mlp
from .policy import encode, encoded_size, encoder, features_of, flat
from .spaces import Space
from .tree import leaves

COSINES = 64  # of a level, in its embedding


@frozen(kw_only=True)
class QuantileValues(ActionValues):
    """A policy of N quantiles for each action, the outputs [*, A, N], at `middle_levels(N)`; Q(s, a) is their mean."""


@frozen(kw_only=True)
class ImplicitQuantiles(ActionValues):
    """A policy of quantiles at any levels for each action; it acts by those at `middle_levels`, the outputs, and their mean."""

    quantiles: Callable[[Any, Any, Tensor], Tensor]  # (the network's params, observation, levels [*, M]) -> [*, A, M]


def middle_levels(count: int, device: torch.device | None = None) -> Tensor:
    """Return the levels (i + 1/2) / N: [N], the middles of N parts of [0, 1].

    Source: Dabney et al. 2018, arXiv:1710.10044, lemma 2.

    >>> middle_levels(2)
    tensor([0.2500, 0.7500])
    """
    return (torch.arange(count, device=device) + 0.5) / count


def quantile_values(network: Network, observation_space: Space) -> QuantileValues:
    """Return the policy of a network from observations to quantiles [*, A, N]; masks are those of `action_values`.

    Raises: StructureError. Source: Dabney et al. 2018, arXiv:1710.10044.

    >>> from purestep.core.spaces import Box
    >>> network = Network(init=lambda key: torch.tensor([[0.0, 4.0], [1.0, 2.0]]), apply=lambda params, x: params)
    >>> model = quantile_values(network, Box(-1.0, 1.0, (4,)))
    >>> model.apply(model.init(keys.key(0)), torch.zeros(4), ())[1]
    tensor(2.)
    """
    base = action_values(network, observation_space, values=_mean)
    return QuantileValues(**attrs.asdict(base, recurse=False))


def implicit_quantiles(network: Network, observation_space: Space, *, quantiles: int = 8) -> ImplicitQuantiles:
    """Return the policy of a network from pairs (observation [*, ...], levels [*, M]) to the quantiles there, [*, A, M].

    It acts by `quantiles` of them, at fixed levels where the source draws them at random, so that the best action is a function
    of the observation. Levels [M] are those of all observations. Masks are those of `action_values`.
    Raises: StructureError, ChoiceError. Source: Dabney et al. 2018, arXiv:1806.06923.

    >>> from purestep.core.spaces import Box
    >>> line = Network(init=lambda key: torch.tensor([[1.0], [3.0]]), apply=lambda params, pair: params * pair[1])
    >>> model = implicit_quantiles(line, Box(-1.0, 1.0, (4,)))
    >>> model.apply(model.init(keys.key(0)), torch.zeros(4), ())[1]  # the mean of 3 u, u uniform
    tensor(1.5000)
    """
    at_least("implicit_quantiles: quantiles", quantiles, 1)
    visible, _ = with_mask("implicit_quantiles", observation_space)

    def at_middles(params: Any, seen: Any) -> Tensor:
        result: Tensor = network.apply(params, (seen, middle_levels(quantiles, leaves(seen)[0].device)))
        return result

    def at(params: Any, observation: Any, levels: Tensor) -> Tensor:
        result: Tensor = network.apply(params, (visible(observation), levels))
        return result

    acting = Network(init=network.init, apply=at_middles, named=network.named)
    base = action_values(acting, observation_space, values=_mean)
    return ImplicitQuantiles(**attrs.asdict(base, recurse=False), quantiles=at)


def _mean(outputs: Tensor) -> Tensor:
    return outputs.mean(-1)


def quantile_values_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "relu",
    *,
    quantiles: int = 32,
    product: str = "matmul",
) -> QuantileValues:
    """Return the policy of a perceptron from observations to quantiles, with the initial weights of `torch.nn.Linear`.

    Params of the network are one vector. Raises: StructureError, ChoiceError.

    >>> from purestep.core.spaces import Box, Discrete
    >>> model = quantile_values_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> model.outputs(model.init(keys.key(0))["network"], torch.zeros(3, 4)).shape
    torch.Size([3, 2, 32])
    """
    at_least("quantile_values_mlp: quantiles", quantiles, 1)
    actions = check_discrete("quantile_values_mlp", action_space).n
    features = features_of("quantile_values_mlp", observation_space)
    sizes = [encoded_size(features), *hidden, actions * quantiles]
    network = by_action(mlp(sizes, activation, gain=1.0, initial="uniform", product=product), actions)
    return quantile_values(flat(encoder(features, network)), observation_space)


def implicit_quantiles_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "relu",
    *,
    quantiles: int = 8,
    product: str = "matmul",
) -> ImplicitQuantiles:
    """Return the policy of perceptrons from observations and levels to quantiles, with the weights of `torch.nn.Linear`.

    The first hidden layer is multiplied by an embedding of the level, `level_embedding`. Params of the network are one vector.
    Raises: StructureError, ShapeError without a hidden layer, ChoiceError.

    >>> from purestep.core.spaces import Box, Discrete
    >>> model = implicit_quantiles_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> network = model.init(keys.key(0))["network"]
    >>> model.quantiles(network, torch.zeros(3, 4), torch.rand(3, 8)).shape
    torch.Size([3, 2, 8])
    """
    actions = check_discrete("implicit_quantiles_mlp", action_space).n
    features = features_of("implicit_quantiles_mlp", observation_space)
    if not hidden:
        remedy = "pass at least one size, as hidden=(64,)"
        raise ShapeError(message("implicit_quantiles_mlp: hidden", got="()", wanted="a layer", remedy=remedy))

    def perceptron(*sizes: int) -> Network:
        return mlp(sizes, activation, gain=1.0, initial="uniform", product=product)

    torso, head = perceptron(encoded_size(features), hidden[0]), perceptron(*hidden, actions)
    embedding = level_embedding(perceptron(COSINES, hidden[0]))
    function = activation if callable(activation) else ACTIVATIONS[activation]

    def init(key: Key) -> dict[str, Any]:
        torso_key, embedding_key, head_key = keys.split(key, 3)
        return {"torso": torso.init(torso_key), "embedding": embedding.init(embedding_key), "head": head.init(head_key)}

    def apply(params: dict[str, Any], pair: tuple[Any, Tensor]) -> Tensor:
        observation, levels = pair
        seen = function(torso.apply(params["torso"], encode(features, observation)))
        mixed = seen[..., None, :] * embedding.apply(params["embedding"], levels)
        result: Tensor = head.apply(params["head"], mixed).mT
        return result

    return implicit_quantiles(flat(Network(init=init, apply=apply)), observation_space, quantiles=quantiles)


def level_embedding(network: Network) -> Network:
    """Return relu of a network of cos(pi i u), i = 0 .. COSINES - 1, for levels u: [*] -> [*, D].

    Source: Dabney et al. 2018, arXiv:1806.06923, equation 4.

    >>> sums = Network(init=lambda key: (), apply=lambda params, cosines: cosines.sum(-1, keepdim=True))
    >>> level_embedding(sums).apply((), torch.tensor([0.0]))
    tensor([[64.]])
    """

    def apply(params: Any, levels: Tensor) -> Tensor:
        turns = torch.arange(COSINES, device=levels.device, dtype=levels.dtype)
        return torch.relu(network.apply(params, torch.cos(torch.pi * levels[..., None] * turns)))

    return Network(init=network.init, apply=apply, named=network.named)
