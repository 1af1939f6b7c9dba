"""An optimiser of `torch.optim` as a value: two functions, whose state is a tree of tensors like that of our own.

    optimizer = torch_optimizer(partial(torch.optim.AdamW, lr=1e-3, fused=False))

It works on copies, so its arguments are never written to, and on shards as on whole tensors. Hyper-parameters are fixed by the
call and not part of the state: for a schedule append one, `chain(torch_optimizer(...), scale_by_schedule(...))`.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from ....core.optim.interface import Optimizer
from ....core.optim.master_weights import master_weights
from ....core.record import record
from ....core.tree import leaves


@record
class TorchState:
    """State of an optimiser of torch."""

    slots: tuple[
        dict[str, Tensor], ...
    ]  # of each leaf of params, by torch's names; without entries before the first update


def torch_optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> Optimizer:
    """Return the optimiser that `make` builds for a list of parameters; its updates are what it adds to them.

    Adding an update reproduces the optimiser's own parameters, bit for bit unless it more than doubles or halves a number or
    changes its sign, and then up to rounding of the update. It gets parameters below float32 in float32.

    >>> optimizer = torch_optimizer(lambda params: torch.optim.SGD(params, lr=0.5, momentum=0.5))
    >>> params, gradients = {"a": torch.ones(2)}, {"a": torch.tensor([1.0, 0.0])}
    >>> updates, state = optimizer.update(gradients, optimizer.init(params), params)
    >>> updates["a"], optimizer.update(gradients, state, params)[0]["a"]
    (tensor([-0.5000,  0.0000]), tensor([-0.7500,  0.0000]))
    """

    def init(params: Any) -> TorchState:
        return TorchState(slots=tuple({} for _ in leaves(params)))

    def update(gradients: Any, state: TorchState, params: Any) -> tuple[Any, TorchState]:
        before, structure = pytree.tree_flatten(params)
        copies = [nn.Parameter(leaf.detach().clone()) for leaf in before]
        inner = make(copies)
        for copy, gradient, slots in zip(copies, leaves(gradients), state.slots, strict=True):
            copy.grad = gradient.detach().clone()
            if slots:
                inner.state[copy] = {name: value.clone() for name, value in slots.items()}
        inner.step()
        updates = [copy.detach() - leaf for copy, leaf in zip(copies, before, strict=True)]
        kept = tuple(
            {name: value for name, value in inner.state[copy].items() if isinstance(value, Tensor)} for copy in copies
        )
        return pytree.tree_unflatten(updates, structure), TorchState(slots=kept)

    return master_weights(Optimizer(init=init, update=update))
