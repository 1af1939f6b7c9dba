"""The interface of a learning algorithm: two pure functions, `init` and `update`, over one state."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from torch import Tensor

from ..core.keys import Key
from ..core.record import record, tensor
from ..core.steps import Trajectory

Metrics = Mapping[str, Tensor]  # scalars, already reduced


@record
class TrainState:
    """The state of an algorithm between updates; it holds no random key."""

    params: Any  # of the model
    optimizer: Any  # the optimiser's state, including hyper-parameters
    step: Tensor = tensor("*", "int")  # updates done


@frozen
class Algorithm:
    """A learning algorithm: `update(state, trajectory [T, B, ...], key) -> (state, metrics)`."""

    init: Callable[[Key], TrainState]
    update: Callable[[TrainState, Trajectory, Key], tuple[TrainState, Metrics]]
    metrics: tuple[str, ...]  # names of the metrics that `update` returns, in that order
