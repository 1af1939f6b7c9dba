"""A torch module and its torch optimisers as a tree for a checkpoint, and back: for training that is not functional."""

from collections.abc import Iterable
from typing import Any

from attrs import frozen
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer

OPTIONS = StateDictOptions(
    flatten_optimizer_state_dict=True
)  # a name for each number, instead of the parameters' positions


@frozen
class ModuleState:
    """Arguments for `save`: `tree` is its tree, `settings` belong in its machine."""

    tree: dict[
        str, dict[str, Tensor]
    ]  # "params": the module's parameters and buffers; "optimizer": tensors of its state, such as moments
    settings: dict[str, Any]  # of the optimisers: learning rates and everything else that is not a tensor


def state_of(module: nn.Module, optimizers: Optimizer | Iterable[Optimizer]) -> ModuleState:
    """Return the state of a module, sharded or not, and of its optimisers; one that never stepped gets its initial state.

    The names are those of the parameters, so that they are the same at every world size.

    >>> import torch
    >>> module = nn.Linear(1, 1, bias=False)
    >>> state = state_of(module, torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9))
    >>> sorted(state.tree["params"]), sorted(state.tree["optimizer"]), state.settings["param_groups.weight.lr"]
    (['weight'], ['state.weight.momentum_buffer'], 0.5)
    """
    found: Any = get_state_dict(module, _several(optimizers), options=OPTIONS)
    params, numbers = found
    tensors: dict[str, Tensor] = {name: value for name, value in numbers.items() if isinstance(value, Tensor)}
    tree = {
        "params": {name: value for name, value in params.items() if isinstance(value, Tensor)},
        "optimizer": tensors,
    }
    return ModuleState(tree=tree, settings={name: value for name, value in numbers.items() if name not in tensors})


def restore(module: nn.Module, optimizers: Optimizer | Iterable[Optimizer], state: ModuleState) -> None:
    """Load a state, as returned by `state_of`, into a module of the same architecture and into its optimisers."""
    numbers: Any = {**state.tree["optimizer"], **state.settings}
    params: Any = state.tree["params"]
    set_state_dict(module, _several(optimizers), model_state_dict=params, optim_state_dict=numbers, options=OPTIONS)


def _several(optimizers: Optimizer | Iterable[Optimizer]) -> Any:
    return optimizers if isinstance(optimizers, Optimizer) else list(optimizers)
