"""Policies as values: an actor-critic is two pure functions, whatever network is inside."""

from collections.abc import Callable
from typing import Any

from attrs import frozen
from torch import Tensor

from .distributions import Distribution
from .keys import Key
from .record import record, tensor

Params = Any
Carry = Any


@frozen
class ActorCritic:
    """`apply(params, observation, carry) -> (distribution over [*, A], value [*], carry)` for observation [*, ...].

    `carry` is `()` for a feed-forward network; `init(key)` makes params, any pytree of tensors.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Any, Carry], tuple[Distribution, Tensor, Carry]]


@record
class Action:
    """What `act` chose."""

    action: Tensor  # [*, ...]
    log_prob: Tensor = tensor("*", "float")  # of `action`
    carry: Any  # the network's memory


def act(model: ActorCritic, params: Params, observation: Any, carry: Carry, key: Key) -> Action:
    """Samples an action for observation [*, ...]; `key` is [*, 2], one for each."""
    distribution, _, carry = model.apply(params, observation, carry)
    action = distribution.sample(key)
    return Action(action=action, log_prob=distribution.log_prob(action), carry=carry)
