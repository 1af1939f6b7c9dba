"""Functional forms of modules as people get them wrong."""

from typing import Any

import attrs
import torch
from torch import Tensor

Pair = tuple[torch.nn.Module, Any]


def zero_biases(pair: Pair) -> Pair:
    """Begins with the biases at 0, whatever the module has."""
    module, network = pair

    def init(key: Tensor) -> dict[str, Tensor]:
        params = network.init(key)
        return {name: torch.zeros_like(leaf) if "bias" in name else leaf for name, leaf in params.items()}

    return module, attrs.evolve(network, init=init)


def loads_parameters(pair: Pair) -> Pair:
    """Puts the parameters where the module keeps its own."""
    module, network = pair

    def apply(params: dict[str, Tensor], x: Any) -> Any:
        module.load_state_dict({**module.state_dict(), **{name: leaf.detach() for name, leaf in params.items()}})
        return module(x)

    return module, attrs.evolve(network, apply=apply)
