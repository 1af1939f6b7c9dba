"""Float32 copies of parameters below float32 (bfloat16, float16), so that changes smaller than their last bit add up."""

from typing import Any

import torch
from torch import Tensor

from ..errors import StructureError, message
from ..record import record
from ..rounding import below_float32, rounded
from ..tree import leaves, tree_map
from .interface import Optimizer, State


@record
class MasterState:
    """State of an optimiser of parameters below float32."""

    inner: Any  # the optimiser's own state, for parameters in float32
    master: Any  # like params: float32 numbers that round to them; () for a leaf of float32 or more


def master_weights(optimizer: Optimizer) -> Optimizer:
    """Return the optimiser with a float32 copy of parameters below float32, to which updates are applied.

    It gets gradients and parameters in float32, and an update is the difference between a parameter and the copy's next value,
    so that `apply_updates` gives that value rounded: changes smaller than a parameter's last bit accumulate in the copy. If a
    parameter differs from its rounded copy, because weights were loaded or merged, the copy is reset to the parameter.
    Without such parameters optimiser and state are unchanged. Put transformations of updates into one `chain` with the
    optimiser: a chain keeps one copy for all of its optimisers.
    Raises: StructureError, if the state belongs to parameters of other dtypes.

    >>> from .optimizers import apply_updates
    >>> plain = Optimizer(init=lambda params: (), update=lambda gradients, state, params: (gradients, state))
    >>> optimizer, param = master_weights(plain), torch.ones(1, dtype=torch.bfloat16)
    >>> state = optimizer.init(param)
    >>> for _ in range(4):
    ...     updates, state = optimizer.update(torch.full_like(param, 0.001), state, param)
    ...     param = apply_updates(param, updates)
    >>> state.master, param
    (tensor([1.0040]), tensor([1.0078], dtype=torch.bfloat16))
    """

    optimize = optimizer.update  # alone: init has numbers, which a program that only updates need not depend on

    def init(params: Any) -> State:
        if not any(below_float32(leaf) for leaf in leaves(params)):
            return optimizer.init(params)
        master = tree_map(lambda p: p.float() if below_float32(p) else (), params)
        return MasterState(inner=optimizer.init(tree_map(_widened, params)), master=master)

    def update(gradients: Any, state: State, params: Any) -> tuple[Any, State]:
        narrow = any(below_float32(leaf) for leaf in leaves(params))
        if narrow != isinstance(state, MasterState):
            raise _foreign(params, narrow)
        if not narrow:
            return optimize(gradients, state, params)
        current = tree_map(_current, params, state.master)
        updates, inner = optimize(tree_map(_widened, gradients), state.inner, current)
        updates = tree_map(lambda p, c, u: (c + u) - p.float() if below_float32(p) else u, params, current, updates)
        master = tree_map(lambda p, u: p.float() + u if below_float32(p) else (), params, updates)
        return updates, MasterState(inner=inner, master=master)

    return Optimizer(init=init, update=update)


def _widened(leaf: Tensor) -> Tensor:
    return leaf.float() if below_float32(leaf) else leaf


def _current(param: Tensor, master: Tensor | tuple[()]) -> Tensor:
    if below_float32(param) == isinstance(master, tuple):
        raise _foreign(param, below_float32(param))
    if isinstance(master, tuple):
        return param
    wide = param.float()
    return torch.where(rounded(master, param.dtype) == wide, master, wide)


def _foreign(params: Any, narrow: bool) -> StructureError:
    got = "without a float32 copy of parameters below float32" if narrow else "with a float32 copy of parameters"
    wanted = f"one of these parameters, {' and '.join(sorted({str(leaf.dtype) for leaf in leaves(params)}))}"
    remedy = "call init with the parameters that are updated"
    return StructureError(message("update: state", got=got, wanted=wanted, remedy=remedy))
