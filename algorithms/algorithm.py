"""What every learner is: two pure functions over one state."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from torch import Tensor

from ..core.keys import Key
from ..core.record import record, tensor
from ..core.steps import Trajectory

Metrics = Mapping[str, Tensor]  # scalars, reduced where they are made


@record
class TrainState:
    """All an algorithm remembers between updates; never a key."""

    params: Any  # of the model
    optimizer: Any  # the optimiser's state, hyper-parameters included
    step: Tensor = tensor("*", "int")  # updates done


@frozen
class Algorithm:
    """`update(state, trajectory [T, B, ...], key) -> (state, metrics)`."""

    init: Callable[[Key], TrainState]
    update: Callable[[TrainState, Trajectory, Key], tuple[TrainState, Metrics]]
    metrics: tuple[str, ...]  # the names `update` gives, in its order
