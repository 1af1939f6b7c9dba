"""Policies written as one `torch.nn.Module`, for `policy_laws`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core.distributions import Distribution
from ...core.networks import functional
from ...core.policy import ActorCritic


def module_as_actor_critic(
    module: torch.nn.Module, read: Callable[[Any], tuple[Distribution, Tensor]] = lambda outputs: outputs
) -> ActorCritic:
    """Return a module as an actor-critic whose parameters are an argument; `read(outputs)` is (distribution, value [*]).

    Raises: StructureError, as `functional` does: call `.eval()` on a module with dropout first.

    >>> from purestep import Box, Categorical, Discrete
    >>> from purestep.properties import policy_laws, verify
    >>> def read(outputs):
    ...     return Categorical(logits=outputs[..., :2]), outputs[..., 2]
    >>> model = module_as_actor_critic(torch.nn.Linear(4, 3), read)
    >>> bool(verify(policy_laws(Box(-1.0, 1.0, (4,)), Discrete(2)), model))
    True
    """
    network = functional(module)

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Distribution, Tensor, Any]:
        distribution, value = read(network.apply(params, observation))
        return distribution, value, carry

    return ActorCritic(init=network.init, apply=apply)
