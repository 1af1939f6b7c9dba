"""Policies for discrete actions with critics that give Q of each action, for algorithms such as discrete SAC."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from .actor_q import actor_and_critics
from .distributions import Categorical, masked
from .errors import StructureError, at_least, message
from .networks import Activation, Network, mlp
from .policy import ActorCritic, Carry, encoded_size, encoder, features_of, flat
from .spaces import Discrete, Space, field, learners_of


@frozen(kw_only=True)
class CategoricalActor(ActorCritic):
    """A policy a ~ softmax(logits) with critics Q(s, a) of all actions; its value is E[min_i Q_i(s, a)].

    Params: {"policy": the policy's, "critics": [C, ...]}.
    """

    distribution: Callable[[Any, Any], Categorical]  # (the policy's params, observation [*, ...]) -> over [*]
    critics: Callable[[Any, Any], Tensor]  # (the critics' params, observation [*, ...]) -> Q [C, *, A]
    critics_count: int  # C


def categorical_actor(
    policy: Network, critic: Network, observation_space: Space, *, critics: int = 2
) -> CategoricalActor:
    """Return the actor of a network from observations to logits [*, A], and one from observations to Q [*, A].

    Where the observation has the fields `features` and `action_mask`, the networks get the features, and no action is taken
    that the mask forbids. Raises: StructureError, ChoiceError.

    >>> from purestep.core import keys
    >>> from purestep.core.spaces import Box
    >>> model = categorical_actor(mlp([2, 3]), mlp([2, 3]), Box(-1.0, 1.0, (2,)))
    >>> params = model.init(keys.key(0))
    >>> distribution, value, _ = model.apply(params, torch.zeros(4, 2), ())
    >>> distribution.logits.shape, value.shape, model.critics(params["critics"], torch.zeros(4, 2)).shape
    (torch.Size([4, 3]), torch.Size([4]), torch.Size([2, 4, 3]))
    """
    has_mask = features_of("categorical_actor", observation_space) is not observation_space
    at_least("categorical_actor: critics", critics, 1)
    init, named = actor_and_critics(policy, critic, critics)

    def distribution(params: Any, observation: Any) -> Categorical:
        if has_mask:
            return masked(policy.apply(params, field(observation, "features")), field(observation, "action_mask"))
        return Categorical(logits=policy.apply(params, observation))

    def q(params: Any, observation: Any) -> Tensor:
        features = field(observation, "features") if has_mask else observation
        values: Tensor = torch.vmap(lambda one: critic.apply(one, features))(params)
        return values

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[Categorical, Tensor, Carry]:
        result = distribution(params["policy"], observation)
        least = q(params["critics"], observation).amin(0)
        return result, (torch.softmax(result.logits, -1) * least).sum(-1), carry

    return CategoricalActor(
        init=init, apply=apply, named=named, distribution=distribution, critics=q, critics_count=critics
    )


def categorical_actor_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "relu",
    *,
    critics: int = 2,
    product: str = "matmul",
) -> CategoricalActor:
    """Return the actor of perceptrons, with the initial weights of `torch.nn.Linear`.

    Params of the policy are one vector, those of the critics a row each. Raises: StructureError, ChoiceError.

    >>> from purestep.core import keys
    >>> from purestep.core.spaces import Box
    >>> model = categorical_actor_mlp(Box(-1.0, 1.0, (4,)), Discrete(2), (8,))
    >>> params = model.init(keys.key(0))
    >>> params["policy"].shape, params["critics"].shape
    (torch.Size([58]), torch.Size([2, 58]))
    """
    if not isinstance(action_space, Discrete):
        got, remedy = type(action_space).__name__, f"use an algorithm for such actions: {learners_of(action_space)}"
        raise StructureError(message("categorical_actor_mlp: actions", got=got, wanted="Discrete", remedy=remedy))
    features = features_of("categorical_actor_mlp", observation_space)
    sizes = [encoded_size(features), *hidden, action_space.n]
    network = flat(encoder(features, mlp(sizes, activation, gain=1.0, initial="uniform", product=product)))
    return categorical_actor(network, network, observation_space, critics=critics)
