"""Optimisers as values: two pure functions, with hyper-parameters as tensors in the state.

Parameters are updated by adding the result of `update`: `params + updates`. Since learning rates and other hyper-parameters
are tensors [] of the state, a population with different ones is one vmap over states. They are float64, and derived numbers
(1 - beta, bias corrections) are computed in float64 before conversion to the parameters' dtype: in float32, 1 - 0.999 has a
relative error of 1e-5.

For parameters below float32 (bfloat16, float16) a float32 copy is kept, see `master_weights`, which wraps every optimiser
here: their moments are float32 too.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from attrs import frozen
from torch import Tensor

from ..errors import ChoiceError, ShapeError, StructureError, choose, message
from ..numbers import Number as Number
from ..numbers import check_number
from ..record import record, replace, tensor
from ..rounding import below_float32, rounded
from ..tree import leaves, tree_map
from .schedules import Schedule as Schedule
from .schedules import constant as constant
from .schedules import cosine as cosine
from .schedules import linear as linear
from .schedules import warmup as warmup

P = TypeVar("P")
State = Any


@frozen
class Optimizer:
    """An optimiser: `update(gradients, state, params) -> (updates, state)`; all but the state are trees like `params`.

    Updates of parameters below float32 are float32: `apply_updates` rounds the sum.
    """

    init: Callable[[Any], State]
    update: Callable[[Any, State, Any], tuple[Any, State]]


@record
class SgdState:
    """State of `sgd` and `nesterov`."""

    hyperparameters: dict[str, Tensor]  # learning_rate, momentum; each [] float64
    velocity: Any  # like params, or () without momentum


@record
class AdamState:
    """State of `adam` and `adamw`."""

    hyperparameters: dict[str, Tensor]  # learning_rate, beta1, beta2, eps, for adamw weight_decay; each [] float64
    first_power: Tensor = tensor("*", "float")  # beta1^t after t updates, float64
    second_power: Tensor = tensor("*", "float")  # beta2^t
    first_moment: Any  # like params: the decaying mean of gradients
    second_moment: Any  # like params: that of their squares


@record
class ClipState:
    """State of `clip_by_global_norm`."""

    hyperparameters: dict[str, Tensor]  # max_norm [] float64


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


@record
class MasterState:
    """State of an optimiser of parameters below float32."""

    inner: Any  # the optimiser's own state, for parameters in float32
    master: Any  # like params: float32 numbers that round to them; () for a leaf of float32 or more


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


def master_weights(optimizer: Optimizer) -> Optimizer:
    """Return the optimiser with a float32 copy of parameters below float32, to which updates are applied.

    It gets gradients and parameters in float32, and an update is the difference between a parameter and the copy's next value,
    so that `apply_updates` gives that value rounded: changes smaller than a parameter's last bit accumulate in the copy. If a
    parameter differs from its rounded copy, because weights were loaded or merged, the copy is reset to the parameter.
    Without such parameters optimiser and state are unchanged. Put transformations of updates into one `chain` with the
    optimiser: a chain keeps one copy for all of its optimisers.
    Raises: StructureError, if the state belongs to parameters of other dtypes.

    >>> optimizer, param = sgd(1.0), torch.ones(1, dtype=torch.bfloat16)
    >>> state = optimizer.init(param)
    >>> for _ in range(4):
    ...     updates, state = optimizer.update(torch.full_like(param, -0.001), state, param)
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
            return SgdState(hyperparameters=_numbers(params, learning_rate=learning_rate), velocity=())
        numbers = _numbers(params, learning_rate=learning_rate, momentum=momentum)
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

    Source: Loshchilov and Hutter 2017, arXiv:1711.05101; equal to torch.optim.AdamW.

    >>> optimizer = adamw(0.1, weight_decay=0.5)
    >>> optimizer.update(torch.tensor([0.0]), optimizer.init(torch.ones(1)), torch.ones(1))[0]
    tensor([-0.0500])
    """
    numbers = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    check_hyperparameters("adamw", **numbers)
    return _adam(numbers)


def _adam(numbers: Mapping[str, Number]) -> Optimizer:
    # The powers are in the state, so that a compiler computes them once instead of a pow for every few parameters.
    def init(params: Any) -> AdamState:
        return AdamState(
            hyperparameters=_numbers(params, **numbers),
            first_power=_number(params, 1.0),
            second_power=_number(params, 1.0),
            first_moment=tree_map(torch.zeros_like, params),
            second_moment=tree_map(torch.zeros_like, params),
        )

    def update(gradients: Any, state: AdamState, params: Any) -> tuple[Any, AdamState]:
        h = state.hyperparameters
        rate, beta1, beta2, eps = h["learning_rate"], h["beta1"], h["beta2"], h["eps"]
        first_power, second_power = state.first_power * beta1, state.second_power * beta2
        root = torch.sqrt(1.0 - second_power)
        step, floor = rate * root / (1.0 - first_power), eps * root
        first = tree_map(lambda g, m: m + (1.0 - beta1).to(g.dtype) * (g - m), gradients, state.first_moment)
        second = tree_map(
            lambda g, v: beta2.to(g.dtype) * v + (1.0 - beta2).to(g.dtype) * (g * g), gradients, state.second_moment
        )
        updates = tree_map(lambda m, v: -step.to(m.dtype) * (m / (torch.sqrt(v) + floor.to(m.dtype))), first, second)
        if "weight_decay" in h:
            decay = rate * h["weight_decay"]
            updates = tree_map(lambda u, p: u - decay.to(p.dtype) * p, updates, params)
        after = replace(
            state, first_power=first_power, second_power=second_power, first_moment=first, second_moment=second
        )
        return updates, after

    return master_weights(Optimizer(init=init, update=update))


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

    def update(gradients: Any, state: ClipState, params: Any) -> tuple[Any, ClipState]:
        del params
        norm = global_norm(gradients)
        coefficient = (state.hyperparameters["max_norm"].to(norm.dtype) / (norm + 1e-6)).clamp_max(1.0)
        return tree_map(lambda g: coefficient.to(g.dtype) * g, gradients), state

    return Optimizer(init=lambda params: ClipState(hyperparameters=_numbers(params, max_norm=max_norm)), update=update)


def scale_by_schedule(schedule: Schedule) -> Optimizer:
    """Return the scaling of the n-th update by schedule(n), n = 0, 1, ...: chain it after an optimiser to change its rate.

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
        return ScheduleState(count=count, factor=_number(params, 0.0))

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
        return DecayState(hyperparameters=_numbers(params, decay_steps=steps), count=count, factor=_number(params, 0.0))

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


BELOW_ONE = ("beta1", "beta2", "momentum")  # with 1 or more, old gradients would not decay


def check_hyperparameters(where: str, **numbers: Number) -> None:
    """Raise ChoiceError unless each number is finite and 0 or more, and the decays are below 1.

    >>> check_hyperparameters("adam", beta1=1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: adam: beta1 is 1.0, wanted a number from 0.0 to below 1.0; change it
    """
    for name, number in numbers.items():
        check_number(f"{where}: {name}", number, 0.0, 1.0 if name in BELOW_ONE else math.inf, below=True)


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise StructureError for anything but an Optimizer, e.g. a learning rate or an optimiser factory.

    >>> check_optimizer(sgd(0.1))
    """
    if not isinstance(optimizer, Optimizer):
        got, remedy = type(optimizer).__name__, "pass what adam(1e-3), or another of `core.optim.optimizers`, makes"
        raise StructureError(message("optimizer", got=got, wanted="an Optimizer", remedy=remedy))


def device_of(params: Any) -> torch.device:
    """Return the device that holds the params. Raises: StructureError for a tree without tensors.

    >>> device_of({"weight": torch.zeros(2)})
    device(type='cpu')
    """
    found = leaves(params)
    if not found or not isinstance(found[0], Tensor):
        got = f"a tree of {type(found[0]).__name__}" if found else "a tree without leaves"
        raise StructureError(message("optimizer: params", got=got, wanted="tensors", remedy="pass a model's params"))
    device: torch.device = found[0].device
    return device


def _number(params: Any, value: Number) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device=device_of(params)).clone()


def _numbers(params: Any, **values: Number) -> dict[str, Tensor]:
    return {name: _number(params, value) for name, value in values.items()}
