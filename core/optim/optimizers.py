"""Optimisers as values: two pure functions, with hyper-parameters as tensors in the state.

Parameters are updated by adding the result of `update`: `params + updates`. Since learning rates and other hyper-parameters
are tensors [] of the state, a population with different ones is one vmap over states. They are float64, and derived numbers
(1 - beta, bias corrections) are computed in float64 before conversion to the parameters' dtype: in float32, 1 - 0.999 has a
relative error of 1e-5.

`adam`, `adamw` and `sgd` are whole optimisers; a `chain` of parts (`clip_by_global_norm`, `scale_by_adam`,
`add_decayed_weights`, `scale_by_schedule`, `scale_by_rate`) makes others.

For parameters below float32 (bfloat16, float16) a float32 copy is kept, see `master_weights`, which wraps every optimiser
here: their moments are float32 too.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import ChoiceError, ShapeError, StructureError, choose, message
from ..numbers import Number, check_number
from ..record import record, replace, tensor
from ..rounding import below_float32, rounded
from ..tree import leaves, tree_map
from .interface import (
    BELOW_ONE,
    Optimizer,
    State,
    check_hyperparameters,
    check_optimizer,
    device_of,
    number_like,
    numbers_like,
)
from .master_weights import MasterState, master_weights
from .schedules import Schedule

P = TypeVar("P")


@record
class SgdState:
    """State of `sgd` and `nesterov`."""

    hyperparameters: dict[str, Tensor]  # learning_rate, momentum; each [] float64
    velocity: Any  # like params, or () without momentum


@record
class AdamState:
    """State of `adam`, `adamw` and `scale_by_adam`."""

    hyperparameters: dict[str, Tensor]  # beta1, beta2, eps; learning_rate, for adamw weight_decay; each [] float64
    first_power: Tensor = tensor("*", "float")  # beta1^t after t updates, float64
    second_power: Tensor = tensor("*", "float")  # beta2^t
    first_moment: Any  # like params: the decaying mean of gradients
    second_moment: Any  # like params: that of their squares


@record
class NumbersState:
    """State of a part that keeps its hyper-parameters alone, such as `clip_by_global_norm`."""

    hyperparameters: dict[str, Tensor]  # each [] float64


@record
class ScheduleState:
    """State of `scale_by_schedule`."""

    count: Tensor = tensor("*", "int")  # updates done
    factor: Tensor = tensor("*", "float")  # factor of the last update, float64


@record
class DecayState:
    """State of `linear_decay`."""

    hyperparameters: dict[str, Tensor]  # decay_steps [] float64
    count: Tensor = tensor("*", "int")  # updates done
    factor: Tensor = tensor("*", "float")  # factor of the last update, float64


def sgd(learning_rate: Number, *, momentum: Number = 0.0) -> Optimizer:
    """Gradient descent: v' = momentum v + g, update = -learning_rate v'.

    A momentum of 0.0 keeps no v. Source: Polyak 1964; equal to torch.optim.SGD.

    >>> optimizer = sgd(0.5)
    >>> optimizer.update(torch.tensor([2.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-1.])
    """
    check_hyperparameters("sgd", learning_rate=learning_rate, momentum=momentum)
    return _descent(learning_rate, momentum, lambda gradient, velocity, momentum: velocity)


def nesterov(learning_rate: Number, *, momentum: Number = 0.9) -> Optimizer:
    """Gradient descent with Nesterov momentum: v' = momentum v + g, update = -learning_rate (g + momentum v').

    Source: Sutskever et al. 2013; equal to torch.optim.SGD(nesterov=True).

    >>> optimizer = nesterov(1.0, momentum=0.5)
    >>> optimizer.update(torch.tensor([2.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-3.])
    """
    check_hyperparameters("nesterov", learning_rate=learning_rate, momentum=momentum)
    return _descent(learning_rate, momentum, lambda gradient, velocity, momentum: gradient + momentum * velocity)


def _descent(
    learning_rate: Number, momentum: Number, direction: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Optimizer:
    plain = isinstance(momentum, float) and momentum == 0.0

    def init(params: Any) -> SgdState:
        if plain:
            return SgdState(hyperparameters=numbers_like(params, learning_rate=learning_rate), velocity=())
        numbers = numbers_like(params, learning_rate=learning_rate, momentum=momentum)
        return SgdState(hyperparameters=numbers, velocity=tree_map(torch.zeros_like, params))

    def update(gradients: Any, state: SgdState, params: Any) -> tuple[Any, SgdState]:
        del params
        rate = state.hyperparameters["learning_rate"]
        if plain:
            return tree_map(lambda g: -rate.to(g.dtype) * g, gradients), state
        keep = state.hyperparameters["momentum"]
        velocity = tree_map(lambda g, v: keep.to(g.dtype) * v + g, gradients, state.velocity)
        updates = tree_map(lambda g, v: -rate.to(g.dtype) * direction(g, v, keep.to(g.dtype)), gradients, velocity)
        return updates, replace(state, velocity=velocity)

    return master_weights(Optimizer(init=init, update=update))


def adam(learning_rate: Number, *, beta1: Number = 0.9, beta2: Number = 0.999, eps: Number = 1e-8) -> Optimizer:
    """Adam: m' = m + (1 - beta1) (g - m), v' = beta2 v + (1 - beta2) g^2, and at the t-th update

    update = -learning_rate (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps).

    In parts, within rounding: chain(scale_by_adam(), scale_by_rate(learning_rate)).
    Source: Kingma and Ba 2014, arXiv:1412.6980; equal to torch.optim.Adam.

    >>> optimizer = adam(0.1)
    >>> optimizer.update(torch.tensor([5.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-0.1000])
    """
    numbers = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps}
    check_hyperparameters("adam", **numbers)
    return _adam(numbers)


def adamw(
    learning_rate: Number,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    eps: Number = 1e-8,
    weight_decay: Number = 0.01,
) -> Optimizer:
    """Adam with decoupled weight decay: its update, minus learning_rate weight_decay params.

    In parts, within rounding: chain(scale_by_adam(), add_decayed_weights(weight_decay), scale_by_rate(learning_rate)).
    Source: Loshchilov and Hutter 2017, arXiv:1711.05101; equal to torch.optim.AdamW.

    >>> optimizer = adamw(0.1, weight_decay=0.5)
    >>> optimizer.update(torch.tensor([0.0]), optimizer.init(torch.ones(1)), torch.ones(1))[0]
    tensor([-0.0500])
    """
    numbers = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    check_hyperparameters("adamw", **numbers)
    return _adam(numbers)


def scale_by_adam(*, beta1: Number = 0.9, beta2: Number = 0.999, eps: Number = 1e-8) -> Optimizer:
    """Adam's direction (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps), uphill like a gradient: see `adam`.

    Chain it before `scale_by_rate`; other parts may stand between, or before it.

    >>> optimizer = chain(scale_by_adam(), scale_by_rate(0.1))
    >>> optimizer.update(torch.tensor([5.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-0.1000])
    """
    numbers = {"beta1": beta1, "beta2": beta2, "eps": eps}
    check_hyperparameters("scale_by_adam", **numbers)
    return _adam(numbers)


def _adam(numbers: Mapping[str, Number]) -> Optimizer:
    # The powers are in the state, so that a compiler computes them once instead of a pow for every few parameters.
    def init(params: Any) -> AdamState:
        return AdamState(
            hyperparameters=numbers_like(params, **numbers),
            first_power=number_like(params, 1.0),
            second_power=number_like(params, 1.0),
            first_moment=tree_map(torch.zeros_like, params),
            second_moment=tree_map(torch.zeros_like, params),
        )

    def update(gradients: Any, state: AdamState, params: Any) -> tuple[Any, AdamState]:
        h = state.hyperparameters
        beta1, beta2, eps = h["beta1"], h["beta2"], h["eps"]
        first_power, second_power = state.first_power * beta1, state.second_power * beta2
        root = torch.sqrt(1.0 - second_power)
        # The rate and the corrections are one number in float64: one rounding, and one product for each parameter.
        upward = -h["learning_rate"] if "learning_rate" in h else 1.0
        step, floor = upward * root / (1.0 - first_power), eps * root
        first = tree_map(lambda g, m: m + (1.0 - beta1).to(g.dtype) * (g - m), gradients, state.first_moment)
        second = tree_map(
            lambda g, v: beta2.to(g.dtype) * v + (1.0 - beta2).to(g.dtype) * (g * g), gradients, state.second_moment
        )
        updates = tree_map(lambda m, v: step.to(m.dtype) * (m / (torch.sqrt(v) + floor.to(m.dtype))), first, second)
        if "weight_decay" in h:
            updates = _with_decay(updates, params, -h["learning_rate"] * h["weight_decay"])
        after = replace(
            state, first_power=first_power, second_power=second_power, first_moment=first, second_moment=second
        )
        return updates, after

    return master_weights(Optimizer(init=init, update=update))


def add_decayed_weights(weight_decay: Number) -> Optimizer:
    """Return the addition of weight_decay params to gradients or directions: chain it before `scale_by_rate`.

    >>> optimizer = chain(add_decayed_weights(0.5), scale_by_rate(0.1))
    >>> optimizer.update(torch.tensor([0.0]), optimizer.init(torch.ones(1)), torch.ones(1))[0]
    tensor([-0.0500])
    """
    check_hyperparameters("add_decayed_weights", weight_decay=weight_decay)

    def update(updates: Any, state: NumbersState, params: Any) -> tuple[Any, NumbersState]:
        return _with_decay(updates, params, state.hyperparameters["weight_decay"]), state

    return Optimizer(init=_numbers_state(weight_decay=weight_decay), update=update)


def _with_decay(updates: Any, params: Any, decay: Tensor) -> Any:
    return tree_map(lambda u, p: u + decay.to(p.dtype) * p, updates, params)


def scale_by_rate(learning_rate: Number) -> Optimizer:
    """Return the step down a direction, -learning_rate u: the last part of a chain of parts.

    >>> optimizer = scale_by_rate(0.5)
    >>> optimizer.update(torch.tensor([2.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-1.])
    """
    check_hyperparameters("scale_by_rate", learning_rate=learning_rate)

    def update(updates: Any, state: NumbersState, params: Any) -> tuple[Any, NumbersState]:
        del params
        rate = state.hyperparameters["learning_rate"]
        return tree_map(lambda u: -rate.to(u.dtype) * u, updates), state

    return Optimizer(init=_numbers_state(learning_rate=learning_rate), update=update)


def _numbers_state(**numbers: Number) -> Callable[[Any], NumbersState]:
    return lambda params: NumbersState(hyperparameters=numbers_like(params, **numbers))


def global_norm(tree: Any) -> Tensor:
    """Return the Euclidean norm of all leaves together: [].

    >>> global_norm({"a": torch.tensor([3.0]), "b": torch.tensor(4.0)})
    tensor(5.)
    """
    norms = [torch.linalg.vector_norm(leaf) for leaf in leaves(tree)]
    total: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    return total


def clip_by_global_norm(max_norm: Number) -> Optimizer:
    """Return the clipping of gradients by global norm: g min(1, max_norm / (|g| + 1e-6)), with |g| over all leaves.

    Source: Pascanu et al. 2012, arXiv:1211.5063; equal to torch.nn.utils.clip_grad_norm_.

    >>> clip = clip_by_global_norm(1.0)
    >>> clip.update(torch.tensor([0.5, 0.0]), clip.init(torch.zeros(2)), torch.zeros(2))[0]
    tensor([0.5000, 0.0000])
    """
    check_number("clip_by_global_norm: max_norm", max_norm, 0.0)
    if not isinstance(max_norm, Tensor) and max_norm == 0.0:
        remedy = "leave it out of the chain for no clipping: this would stop all learning"
        raise ChoiceError(message("clip_by_global_norm: max_norm", got=max_norm, wanted="above 0", remedy=remedy))

    def update(gradients: Any, state: NumbersState, params: Any) -> tuple[Any, NumbersState]:
        del params
        norm = global_norm(gradients)
        coefficient = (state.hyperparameters["max_norm"].to(norm.dtype) / (norm + 1e-6)).clamp_max(1.0)
        return tree_map(lambda g: coefficient.to(g.dtype) * g, gradients), state

    return Optimizer(init=_numbers_state(max_norm=max_norm), update=update)


def scale_by_schedule(schedule: Schedule) -> Optimizer:
    """Return the scaling of the n-th update by schedule(n), n = 0, 1, ...: chain it after an optimiser to change its rate.

    >>> from .schedules import constant
    >>> optimizer = chain(sgd(1.0), scale_by_schedule(constant(0.5)))
    >>> optimizer.update(torch.tensor([2.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-1.])
    """

    if not callable(schedule) or isinstance(schedule, Optimizer):
        where, got, remedy = "scale_by_schedule: schedule", repr(schedule), "for a number that stays, constant(number)"
        raise StructureError(message(where, got=got, wanted="a schedule, e.g. linear(1.0, 0.0, 1000)", remedy=remedy))

    def init(params: Any) -> ScheduleState:
        count = torch.zeros((), dtype=torch.int64, device=device_of(params))
        given = schedule(count)
        if not isinstance(given, Tensor):
            got, remedy = type(given).__name__, "for a number that stays, constant(number)"
            raise StructureError(message("scale_by_schedule: a value", got=got, wanted="a tensor []", remedy=remedy))
        return ScheduleState(count=count, factor=number_like(params, 0.0))

    def update(updates: Any, state: ScheduleState, params: Any) -> tuple[Any, ScheduleState]:
        del params
        factor = schedule(state.count).to(torch.float64)
        scaled = tree_map(lambda u: factor.to(u.dtype) * u, updates)
        return scaled, ScheduleState(count=state.count + 1, factor=factor)

    return Optimizer(init=init, update=update)


def linear_decay(steps: Number) -> Optimizer:
    """Return the scaling of the n-th update by max(0, 1 - n / steps), n = 0, 1, ...: chain it after an optimiser.

    Equal to scale_by_schedule(linear(1.0, 0.0, steps)), with `steps` as the hyper-parameter decay_steps of the state: one
    program trains for any number of steps. Raises: ChoiceError.

    >>> optimizer = chain(sgd(1.0), linear_decay(2))
    >>> state, rates = optimizer.init(torch.zeros(1)), []
    >>> for _ in range(3):
    ...     update, state = optimizer.update(torch.tensor([-1.0]), state, torch.zeros(1))
    ...     rates.append(float(update))
    >>> rates
    [1.0, 0.5, 0.0]
    """
    check_number("linear_decay: steps", steps, 1.0, below=True)

    def init(params: Any) -> DecayState:
        count = torch.zeros((), dtype=torch.int64, device=device_of(params))
        return DecayState(
            hyperparameters=numbers_like(params, decay_steps=steps), count=count, factor=number_like(params, 0.0)
        )

    def update(updates: Any, state: DecayState, params: Any) -> tuple[Any, DecayState]:
        del params
        factor = 1.0 - (state.count.to(torch.float64) / state.hyperparameters["decay_steps"]).clamp(0.0, 1.0)
        scaled = tree_map(lambda u: factor.to(u.dtype) * u, updates)
        return scaled, replace(state, count=state.count + 1, factor=factor)

    return Optimizer(init=init, update=update)


def chain(*optimizers: Optimizer) -> Optimizer:
    """Return the composition of optimisers: each takes the updates of the previous one as gradients; the state is a tuple.

    >>> optimizer = chain(clip_by_global_norm(1.0), sgd(0.5))
    >>> optimizer.update(torch.tensor([0.0]), optimizer.init(torch.zeros(1)), torch.zeros(1))[0]
    tensor([-0.])
    """
    for optimizer in optimizers:
        check_optimizer(optimizer)

    optimize = tuple(optimizer.update for optimizer in optimizers)

    def init(params: Any) -> tuple[State, ...]:
        return tuple(optimizer.init(params) for optimizer in optimizers)

    def update(gradients: Any, state: tuple[State, ...], params: Any) -> tuple[Any, tuple[State, ...]]:
        after = []
        for one, inner in zip(optimize, state, strict=True):
            gradients, inner = one(gradients, inner, params)
            after.append(inner)
        return gradients, tuple(after)

    return master_weights(Optimizer(init=init, update=update))


def hyperparameters(state: State) -> dict[str, Tensor]:
    """Return all hyper-parameters in a state, those of a chain merged.

    >>> sorted(hyperparameters(chain(clip_by_global_norm(0.5), sgd(0.1)).init(torch.zeros(1))))
    ['learning_rate', 'max_norm']
    """
    if isinstance(state, MasterState):
        return hyperparameters(state.inner)
    if isinstance(state, tuple):
        return {name: value for inner in state for name, value in hyperparameters(inner).items()}
    return dict(getattr(state, "hyperparameters", {}))


def with_hyperparameters(state: State, changes: Mapping[str, Number]) -> State:
    """Return the state with some hyper-parameters changed, anywhere in a chain.

    A value must broadcast to the shape it replaces: for a population, create the states first (`torch.vmap(init)`), then
    pass one value for each, [P]. Raises: ChoiceError (an unknown name), ShapeError.

    >>> state = with_hyperparameters(sgd(0.1).init(torch.zeros(1)), {"learning_rate": 0.5})
    >>> float(hyperparameters(state)["learning_rate"])
    0.5
    """
    known = hyperparameters(state)
    for name in changes:
        choose("with_hyperparameters: name", name, known)
    return _changed(state, changes)


def _changed(state: State, changes: Mapping[str, Number]) -> State:
    if isinstance(state, MasterState):
        return replace(state, inner=_changed(state.inner, changes))
    if isinstance(state, tuple):
        return tuple(_changed(inner, changes) for inner in state)
    old = hyperparameters(state)
    new = {name: like(name, changes[name], value) if name in changes else value for name, value in old.items()}
    return replace(state, hyperparameters=new) if old else state


def like(name: str, value: Number, old: Tensor) -> Tensor:
    """Return a hyper-parameter's new value in the shape of its old one. Raises: ChoiceError, ShapeError.

    >>> like("learning_rate", 0.5, torch.zeros(2))
    tensor([0.5000, 0.5000])
    """
    if not isinstance(value, Tensor | list | tuple):
        check_number(f"with_hyperparameters: {name}", value, 0.0, 1.0 if name in BELOW_ONE else math.inf)
    new = torch.as_tensor(value, dtype=old.dtype, device=old.device)
    if new.ndim > old.ndim or any(a not in (1, b) for a, b in zip(new.shape[::-1], old.shape[::-1], strict=False)):
        remedy = "for a population make the states with torch.vmap(optimizer.init) first"
        where = f"with_hyperparameters: {name}"
        raise ShapeError(message(where, got=list(new.shape), wanted=f"{list(old.shape)}", remedy=remedy))
    return new.expand_as(old).clone()


def apply_updates(params: P, updates: P) -> P:
    """Return params + updates, leaf by leaf; below float32 the sum is in float32 and rounded to the dtype of params.

    >>> apply_updates(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]))
    tensor([1.5000, 2.0000])
    >>> apply_updates(torch.ones(1, dtype=torch.bfloat16), torch.tensor([0.005]))
    tensor([1.0078], dtype=torch.bfloat16)
    """

    def moved(param: Tensor, update: Tensor) -> Tensor:
        if below_float32(param):
            return rounded(param.float() + update.float(), param.dtype).to(param.dtype)
        return torch.add(param, update)

    return tree_map(moved, params, updates)
