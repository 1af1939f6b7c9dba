"""Policies of action values: a network gives Q of each action; the policy takes the best one, and at times a random one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .distributions import EpsilonGreedy, illegal
from .errors import StructureError, choose, message
from .keys import Key
from .networks import ACTIVATIONS, Activation, Network, composed, mlp
from .policy import ActorCritic, Carry, encoded_size, encoder, features_of, flat
from .spaces import Discrete, Space, field, learners_of

Values = Callable[[Tensor], Tensor]


def _as_it_is(output: Tensor) -> Tensor:
    return output


@frozen(kw_only=True)
class ActionValues(ActorCritic):
    """A policy that takes the best action by Q(s, a), and with probability epsilon a random one.

    Params: {"network": the network's, "epsilon": []}. The algorithm sets epsilon; by "mode", as in evaluation, no action is
    random.
    """

    outputs: Callable[[Any, Any], Tensor]  # (the network's params, observation [*, ...]) -> [*, A, ...]
    values: Callable[[Tensor, Any], Tensor]  # (outputs, observation) -> Q [*, A], an illegal action's hugely negative


def action_values(network: Network, observation_space: Space, *, values: Values = _as_it_is) -> ActionValues:
    """Return the policy of a network from observations [*, ...] to Q [*, A], or to outputs of which `values` makes Q.

    Where the observation has the fields `features` and `action_mask`, the network gets the features, and no action is taken
    that the mask forbids. Raises: StructureError.

    >>> from purestep.core.spaces import Box
    >>> model = action_values(mlp([2, 3]), Box(-1.0, 1.0, (2,)))
    >>> params = model.init(keys.key(0))
    >>> distribution, value, _ = model.apply(params, torch.zeros(4, 2), ())
    >>> distribution.values.shape, value.shape, params["epsilon"]
    (torch.Size([4, 3]), torch.Size([4]), tensor(1.))
    """
    visible, legal = with_mask("action_values", observation_space)

    def outputs(params: Any, observation: Any) -> Tensor:
        result: Tensor = network.apply(params, visible(observation))
        return result

    def legal_values(output: Tensor, observation: Any) -> Tensor:
        return legal(values(output), observation)

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[EpsilonGreedy, Tensor, Carry]:
        q = legal_values(outputs(params["network"], observation), observation)
        return *greedy(q, params["epsilon"]), carry

    init, named = exploring(network)
    return ActionValues(init=init, apply=apply, named=named, outputs=outputs, values=legal_values)


def with_mask(where: str, space: Space) -> tuple[Callable[[Any], Any], Callable[[Tensor, Any], Tensor]]:
    """Return two functions: observation -> what a network sees of it; (Q [*, A], observation) -> Q, low where it forbids.

    Without the fields `features` and `action_mask` they return the observation and Q. Raises: StructureError.

    >>> from purestep.core.spaces import Box, Fields
    >>> box = Box(0.0, 1.0, (2,))
    >>> visible, legal = with_mask("dqn", Fields((("features", box), ("action_mask", box))))
    >>> seen = {"features": torch.zeros(2), "action_mask": torch.tensor([True, False])}
    >>> visible(seen), legal(torch.ones(2), seen).argmax()
    (tensor([0., 0.]), tensor(0))
    """
    if features_of(where, space) is space:
        return lambda observation: observation, lambda q, observation: q

    def legal(q: Tensor, observation: Any) -> Tensor:
        return torch.where(field(observation, "action_mask"), q, illegal(q.dtype))

    return lambda observation: field(observation, "features"), legal


def greedy(q: Tensor, epsilon: Tensor) -> tuple[EpsilonGreedy, Tensor]:
    """Return the policy of Q [*, A] with one epsilon [], and the highest Q [*].

    >>> policy, value = greedy(torch.tensor([1.0, 3.0]), torch.tensor(0.5))
    >>> policy.probs(), value
    (tensor([0.2500, 0.7500]), tensor(3.))
    """
    return EpsilonGreedy(values=q, epsilon=epsilon.to(q.dtype).expand(q.shape[:-1])), q.max(-1).values


def exploring(network: Network) -> tuple[Callable[[Key], dict[str, Any]], Callable[[dict[str, Any]], Any]]:
    """Return `init` and `named` of a policy with the params {"network": the network's, "epsilon": []}, epsilon 1 at first.

    >>> init, _ = exploring(mlp([2, 3]))
    >>> init(keys.key(0))["epsilon"]
    tensor(1.)
    """

    def init(key: Key) -> dict[str, Any]:
        return {"network": network.init(key), "epsilon": torch.ones(key.shape[:-1], device=key.device)}

    def named(params: dict[str, Any]) -> Any:
        return {**params, "network": network.named(params["network"])}

    return init, named


def dueling(value: Network, advantage: Network) -> Network:
    """Return the network Q(s, a) = V(s) + A(s, a) - mean_b A(s, b) of V [*, 1] and A [*, A].

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.

    >>> network = dueling(mlp([2, 1]), mlp([2, 3]))
    >>> network.apply(network.init(keys.key(0)), torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    def init(key: Key) -> dict[str, Any]:
        value_key, advantage_key = keys.split(key)
        return {"value": value.init(value_key), "advantage": advantage.init(advantage_key)}

    def apply(params: dict[str, Any], x: Any) -> Tensor:
        advantages = advantage.apply(params["advantage"], x)
        result: Tensor = value.apply(params["value"], x) + advantages - advantages.mean(-1, keepdim=True)
        return result

    return Network(init=init, apply=apply)


def action_values_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "relu",
    *,
    is_dueling: bool = False,
    is_normalized: bool = False,
    product: str = "matmul",
) -> ActionValues:
    """Return the policy of a perceptron from observations to Q of each action, with the initial weights of `torch.nn.Linear`.

    Params of the network are one vector. With `is_dueling` there are two perceptrons, `dueling`; with `is_normalized` hidden
    layers are `normalized` before the activation. Raises: StructureError, ChoiceError.

    >>> from purestep.core.spaces import Box
    >>> model = action_values_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> model.apply(model.init(keys.key(0)), torch.zeros(3, 4), ())[0].mode().shape
    torch.Size([3])
    """
    actions = check_discrete("action_values_mlp", action_space).n
    features = features_of("action_values_mlp", observation_space)
    between = normalized(activation) if is_normalized else activation

    def perceptron(outputs: int) -> Network:
        sizes = [encoded_size(features), *hidden, outputs]
        return mlp(sizes, between, gain=1.0, initial="uniform", product=product)

    network = dueling(perceptron(1), perceptron(actions)) if is_dueling else perceptron(actions)
    return action_values(flat(encoder(features, network)), observation_space)


def encoded_action_values(
    encoder: Network, size: int, observation_space: Space, action_space: Space, *, is_dueling: bool = False
) -> ActionValues:
    """Return the policy of an encoder from observations to features [*, size], such as `nature_cnn`, and a layer to Q of each.

    The layer has the initial weights of `torch.nn.Linear`; with `is_dueling` there are two, `dueling`. Where the observation
    has the fields `features` and `action_mask`, the encoder gets the features. Raises: StructureError.

    >>> from purestep.core.spaces import Box
    >>> space = Box(-1.0, 1.0, (4,))
    >>> model = encoded_action_values(mlp([4, 8]), 8, space, Discrete(2), is_dueling=True)
    >>> model.apply(model.init(keys.key(0)), torch.zeros(3, 4), ())[0].values.shape
    torch.Size([3, 2])
    """
    actions = check_discrete("encoded_action_values", action_space).n

    def layer(outputs: int) -> Network:
        return mlp([size, outputs], gain=1.0, initial="uniform")

    head = dueling(layer(1), layer(actions)) if is_dueling else layer(actions)
    return action_values(composed(encoder, head), observation_space)


def check_discrete(where: str, space: Any) -> Discrete:
    """Return the space if it is Discrete. Raises: StructureError.

    >>> check_discrete("dqn", Discrete(2)).n
    2
    """
    if not isinstance(space, Discrete):
        got, remedy = type(space).__name__, f"use an algorithm for such actions: {learners_of(space)}"
        raise StructureError(message(f"{where}: actions", got=got, wanted="Discrete", remedy=remedy))
    return space


def normalized(activation: str | Activation) -> Activation:
    """Return x -> activation((x - mean) / sqrt(variance + 1e-5)), over the last axis, without weights: [*, D] -> [*, D].

    Source: Ba et al. 2016, arXiv:1607.06450.

    >>> normalized("relu")(torch.tensor([2000.0, 4000.0]))
    tensor([0., 1.])
    """
    function = choose("normalized: activation", activation, ACTIVATIONS) if isinstance(activation, str) else activation
    return lambda x: function(torch.nn.functional.layer_norm(x, x.shape[-1:]))
