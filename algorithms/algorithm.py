"""The interface of a learning algorithm: two pure functions, `init` and `update`, over one state."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import frozen
from torch import Tensor

from ..core.errors import choose
from ..core.keys import Key
from ..core.optim.schedules import Schedule
from ..core.record import record, replace, tensor
from ..core.steps import Trajectory, Transition

Metrics = Mapping[str, Tensor]  # scalars, already reduced


@record
class TrainState:
    """The state of an algorithm between updates; it holds no random key."""

    params: Any  # of the model
    optimizer: Any  # the optimiser's state, including hyper-parameters
    step: Tensor = tensor("*", "int")  # updates done
    numbers: Any = ()  # hyper-parameters of the algorithm by name, each [] float64; () where it keeps none
    targets: Any = ()  # params that follow those of the model, and whatever else the algorithm learns; () where it has none
    replay: Any = ()  # a `Replay` of transitions; () where the algorithm has none


@frozen
class Algorithm:
    """A learning algorithm: `update(state, trajectory [T, B, ...], key) -> (state, metrics)`.

    One that learns from old transitions has `replay`: of a transition without axes it makes an empty buffer, which becomes a
    part of the state that `init` returns (`begin` calls both). One with `memory` can train a model with memory: in place of
    the trajectory its `update` is then given a `Remembered`, the trajectory with the memory that it was played from.
    """

    init: Callable[[Key], TrainState]
    update: Callable[[TrainState, Trajectory, Key], tuple[TrainState, Metrics]]
    metrics: tuple[str, ...]  # names of the metrics that `update` returns, in that order
    replay: Callable[[Transition], Any] | tuple[()] = ()
    memory: bool = False  # whether it can train a model with memory


def begin(algorithm: Algorithm, key: Key, transition: Transition) -> TrainState:
    """Return the first state of an algorithm for transitions like this one, without axes.

    >>> from purestep.algorithms.a2c import a2c
    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = a2c(actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), sgd(0.1))
    >>> begin(algorithm, keys.key(0), ()).replay
    ()
    """
    state = algorithm.init(key)
    return state if isinstance(algorithm.replay, tuple) else replace(state, replay=algorithm.replay(transition))


def with_numbers(state: TrainState, changes: Mapping[str, Tensor]) -> TrainState:
    """Return the state with some of the algorithm's numbers changed. Raises: ChoiceError for a name that it does not have.

    >>> state = TrainState(params=(), optimizer=(), step=(), numbers={"clip": 0.2, "gamma": 0.9})
    >>> with_numbers(state, {"clip": 0.1}).numbers
    {'clip': 0.1, 'gamma': 0.9}
    """
    known = dict(state.numbers or {})
    for name in changes:
        choose("algorithm: number", name, known)
    return replace(state, numbers={**known, **changes})


def scheduled(algorithm: Algorithm, **schedules: Schedule) -> Algorithm:
    """Return the algorithm with some of its numbers (clip, entropy_coefficient, gamma, ...) as functions of the updates done.

    Raises: ChoiceError for a name that the algorithm does not have.

    >>> from purestep.algorithms.ppo import ppo
    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.optim.schedules import linear
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> algorithm = ppo(actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2)), adam(1e-3))
    >>> state = scheduled(algorithm, clip=linear(0.2, 0.0, 100)).init(keys.key(0))
    >>> state.numbers["clip"]
    tensor(0.2000, dtype=torch.float64)
    """

    def now(state: TrainState) -> TrainState:
        return with_numbers(state, {name: schedule(state.step) for name, schedule in schedules.items()})

    begin, update = algorithm.init, algorithm.update
    return attrs.evolve(
        algorithm,
        init=lambda key: now(begin(key)),
        update=lambda state, trajectory, key: update(now(state), trajectory, key),
    )
