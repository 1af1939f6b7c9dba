"""A policy as a torch module from the tensors of one observation to the action, to be exported."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import evolve
from torch import Tensor

from ....core.record import take
from ....core.tree import leaf_paths, leaves
from ...normalizer import observed_part
from ...trained_policy import TrainedPolicy

OBSERVATION, ACTION = "observation", "action"


class PolicyModule(torch.nn.Module):
    """The likeliest action for an observation: its tensor, or one named tensor for each field.

    Without rows it takes one observation and returns one action, else that number of them; weights and statistics are buffers.
    """

    def __init__(self, policy: TrainedPolicy, structure: Any) -> None:
        super().__init__()
        held = (policy.params, observed_part(policy.statistics))
        self._policy, self._structure, self._held = policy, structure, pytree.tree_structure(held)
        named = (policy.model.named(policy.params), held[1])
        paths = leaf_paths(named) if len(leaves(named)) == len(leaves(held)) else leaf_paths(held)
        self._names = [f"weight_{number}_" + re.sub(r"\W", "_", "_".join(path)) for number, path in enumerate(paths)]
        for name, leaf in zip(self._names, leaves(held), strict=True):
            self.register_buffer(name, leaf.detach().clone())

    def _action(self, tensors: Sequence[Tensor]) -> Any:
        params, statistics = pytree.tree_unflatten([getattr(self, name) for name in self._names], self._held)
        one = evolve(self._policy, params=params, statistics=statistics)
        return one.action(pytree.tree_unflatten(list(tensors), self._structure))


class OfTensor(PolicyModule):
    """The module of a policy whose observation is one tensor."""

    def forward(self, observation: Tensor) -> Any:
        """Return the action."""
        return self._action([observation])


class OfFields(PolicyModule):
    """The module of a policy whose observation has fields, in the order of the tree."""

    def forward(self, **fields: Tensor) -> Any:
        """Return the action."""
        return self._action(list(fields.values()))


def inputs_of(observation: Any) -> dict[str, Tensor]:
    """Return the tensors of an observation by the names of the module's inputs.

    >>> sorted(inputs_of({"place": torch.zeros(2), "room": torch.tensor(1)}))
    ['place', 'room']
    """
    if isinstance(observation, Tensor):
        return {OBSERVATION: observation}
    names = [re.sub(r"\W", "_", "_".join(path)) for path in leaf_paths(observation)]
    return dict(zip(names, leaves(observation), strict=True))


def outputs_of(action: Any) -> dict[str, Tensor]:
    """Return the tensors of an action by the names of an ONNX program's outputs.

    >>> list(outputs_of(torch.tensor(1))), list(outputs_of({"gear": torch.tensor(1), "hands": (torch.ones(2),)}))
    (['action'], ['action_gear', 'action_hands_0'])
    """
    if isinstance(action, Tensor):
        return {ACTION: action}
    return {f"{ACTION}_{name}": leaf for name, leaf in inputs_of(action).items()}


def module_of(policy: TrainedPolicy, observation: Any) -> PolicyModule:
    """Return the policy's module for observations like this one."""
    make = OfTensor if isinstance(observation, Tensor) else OfFields
    return make(policy, pytree.tree_structure(observation)).eval()


def call_policy(module: Any, inputs: Mapping[str, Tensor]) -> Any:
    """Return the action of a module, or of an exported one, for inputs by their names."""
    with torch.no_grad():
        return module(*inputs.values()) if list(inputs) == [OBSERVATION] else module(**inputs)


def portions(observations: Any, rows: int) -> list[Any]:
    """Return single observations, or parts of this number of rows; a last part that is not full is left out.

    >>> portions(torch.arange(5), 0)[4], portions(torch.arange(5), 2)
    (tensor(4), [tensor([0, 1]), tensor([2, 3])])
    """
    count = leaves(observations)[0].shape[0]
    if not rows:
        return [take(observations, number) for number in range(count)]
    return [take(observations, slice(start, start + rows)) for start in range(0, count - rows + 1, rows)]
