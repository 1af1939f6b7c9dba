"""Optimisers: equal to PyTorch's own over a hundred steps; their numbers are tensors that vmap, scan and compile carry."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.networks import mlp, tree_layout
from purestep.core.optim import optimizers, schedules
from purestep.core.optim.interface import Optimizer
from purestep.core.scan import scan
from purestep.core.tree import leaves, size, tree_map
from purestep.runtime.compile import program as as_users_do

NETWORK = mlp([3, 8, 1])
STEPS = 100
FLOAT32, FLOAT64 = 1e-5, 1e-12  # what a hundred steps of descent make of differences in rounding

Reference = Callable[[list[Tensor]], torch.optim.Optimizer]
PAIRS: dict[str, tuple[Optimizer, Reference]] = {
    "sgd": (optimizers.sgd(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": (optimizers.sgd(0.02, momentum=0.9), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
    "nesterov": (
        optimizers.nesterov(0.02, momentum=0.9),
        lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True),
    ),
    "adam": (optimizers.adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam, large eps": (optimizers.adam(0.01, eps=1e-3), lambda p: torch.optim.Adam(p, 0.01, eps=1e-3)),
    "adam, ppo": (optimizers.adam(2.5e-3, eps=1e-5), lambda p: torch.optim.Adam(p, 2.5e-3, eps=1e-5)),
    "adam, betas": (
        optimizers.adam(0.01, beta1=0.8, beta2=0.99),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.99)),
    ),
    "adamw": (optimizers.adamw(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
    "adamw, strong": (
        optimizers.adamw(0.01, weight_decay=0.3, eps=1e-5),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.3, eps=1e-5),
    ),
    "parts, adam": (
        optimizers.chain(optimizers.scale_by_adam(beta1=0.8), optimizers.scale_by_rate(0.01)),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.999)),
    ),
    "parts, adamw": (
        optimizers.chain(
            optimizers.scale_by_adam(), optimizers.add_decayed_weights(0.3), optimizers.scale_by_rate(0.01)
        ),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.3),
    ),
    "parts, adam with an L2 penalty": (
        optimizers.chain(
            optimizers.add_decayed_weights(0.3), optimizers.scale_by_adam(), optimizers.scale_by_rate(0.01)
        ),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.3),
    ),
}


def params_of(dtype: torch.dtype = torch.float32) -> Any:
    return tree_map(lambda leaf: leaf.to(dtype), NETWORK.init(keys.key(0)))


POINTS = {dtype: keys.normal(keys.key(1), (32, 3)).to(dtype) for dtype in (torch.float32, torch.float64)}
VALUES = {dtype: torch.sin(2.0 * x).sum(-1, keepdim=True) for dtype, x in POINTS.items()}


def loss(params: Any) -> Tensor:
    """Regression on thirty-two fixed points."""
    dtype = leaves(params)[0].dtype
    error: Tensor = NETWORK.apply(params, POINTS[dtype]) - VALUES[dtype]
    return (error**2).mean()


def ours(optimizer: Optimizer, params: Any, state: Any = None, steps: int = STEPS) -> tuple[Any, Any]:
    state = optimizer.init(params) if state is None else state
    for _ in range(steps):
        updates, state = optimizer.update(torch.func.grad(loss)(params), state, params)
        params = optimizers.apply_updates(params, updates)
    return params, state


def theirs(
    reference: Reference,
    params: Any,
    before_step: Callable[[list[Tensor]], object] = lambda tensors: None,
    schedule: Callable[[int], float] = lambda n: 1.0,
) -> Any:
    params = tree_map(lambda leaf: leaf.clone().requires_grad_(), params)
    tensors = leaves(params)
    optimizer = reference(tensors)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward([loss(params)])
        before_step(tensors)
        optimizer.step()
        rates.step()
    return tree_map(torch.Tensor.detach, params)


def distance(one: Any, other: Any) -> float:
    """The relative distance of two trees, over all their numbers."""
    return float(optimizers.global_norm(tree_map(torch.sub, one, other)) / optimizers.global_norm(other))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)])
def test_a_hundred_steps_equal_those_of_torch(name: str, dtype: torch.dtype, tolerance: float) -> None:
    optimizer, reference = PAIRS[name]
    start = params_of(dtype)
    end, _ = ours(optimizer, start)
    assert distance(end, theirs(reference, start)) < tolerance
    assert distance(end, start) > 1e-2
    assert float(loss(end)) < 0.9 * float(loss(start))
    assert all(leaf.dtype == dtype for leaf in leaves(end))


@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clipping_equals_that_of_torch(max_norm: float) -> None:
    start = params_of(torch.float64)
    chained = optimizers.chain(optimizers.clip_by_global_norm(max_norm), optimizers.sgd(0.05))
    reference = theirs(lambda p: torch.optim.SGD(p, 0.05), start, lambda p: torch.nn.utils.clip_grad_norm_(p, max_norm))
    assert distance(ours(chained, start)[0], reference) < FLOAT64


def test_clipping_bounds_long_gradients_and_keeps_short_ones() -> None:
    clip = optimizers.clip_by_global_norm(0.5)
    gradients = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor(4.0)}
    clipped, _ = clip.update(gradients, clip.init(gradients), gradients)
    torch.testing.assert_close(optimizers.global_norm(clipped), torch.tensor(0.5))
    torch.testing.assert_close(clipped["b"] / clipped["a"][0], torch.tensor(4.0 / 3.0))
    small = tree_map(lambda g: 0.01 * g, gradients)
    kept, _ = clip.update(small, clip.init(small), small)
    assert all(torch.equal(a, b) for a, b in zip(leaves(kept), leaves(small), strict=True))
    zero = tree_map(torch.zeros_like, gradients)
    assert not bool(clip.update(zero, clip.init(zero), zero)[0]["a"].any())


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [
        (schedules.linear(1.0, 0.0, 80), lambda n: max(1.0 - n / 80, 0.0)),
        (schedules.warmup(10, schedules.constant(1.0)), lambda n: min((n + 1) / 11, 1.0)),
    ],
    ids=["linear", "warmup"],
)
def test_schedules_change_the_learning_rate_as_those_of_torch(
    schedule: schedules.Schedule, reference: Callable[[int], float]
) -> None:
    start = params_of(torch.float64)
    end, state = ours(optimizers.chain(optimizers.adam(0.01), optimizers.scale_by_schedule(schedule)), start)
    assert distance(end, theirs(lambda p: torch.optim.Adam(p, 0.01), start, schedule=reference)) < FLOAT64
    assert int(state[1].count) == STEPS
    assert float(state[1].factor) == pytest.approx(reference(STEPS - 1))


def test_schedules_have_their_ends() -> None:
    count = torch.tensor([0, 5, 10, 20])
    half = 0.1 + 0.9 / 2
    for schedule in (schedules.linear(1.0, 0.1, 10), schedules.cosine(1.0, 0.1, 10)):
        assert schedule(count).tolist() == pytest.approx([1.0, half, 0.1, 0.1])
    late = schedules.warmup(5, schedules.linear(2.0, 0.0, 10))(torch.tensor([0, 4, 5, 10, 15]))
    assert late.tolist() == pytest.approx([2.0 / 6, 10.0 / 6, 2.0, 1.0, 0.0])
    makers: list[Callable[[], schedules.Schedule]] = [
        lambda: schedules.linear(1.0, 0.0, 0),
        lambda: schedules.cosine(1.0, 0.0, 0),
        lambda: schedules.warmup(0, schedules.constant(1.0)),
    ]
    for make in makers:
        with pytest.raises(ChoiceError, match="steps is 0"):
            make()


@pytest.mark.parametrize("name", PAIRS)
def test_a_zero_learning_rate_leaves_params_bit_equal(name: str) -> None:
    optimizer, _ = PAIRS[name]
    start = params_of()
    state = optimizers.with_hyperparameters(optimizer.init(start), {"learning_rate": 0.0})
    end, _ = ours(optimizer, start, state, steps=3)
    assert all(torch.equal(a, b) for a, b in zip(leaves(end), leaves(start), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_an_update_changes_none_of_its_inputs(name: str) -> None:
    optimizer, _ = PAIRS[name]
    params = params_of()
    _, state = ours(optimizer, params, steps=2)
    gradients = torch.func.grad(loss)(params)
    inputs = (gradients, state, params)
    before = tree_map(torch.clone, inputs)
    versions = [leaf._version for leaf in leaves(inputs)]
    first, second = optimizer.update(*inputs), optimizer.update(*inputs)
    assert versions == [leaf._version for leaf in leaves(inputs)]
    for one, other in zip(leaves(inputs), leaves(before), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(leaves(first), leaves(second), strict=True):
        assert torch.equal(one, other)


def test_a_population_of_learning_rates_is_its_members() -> None:
    optimizer = optimizers.chain(
        optimizers.clip_by_global_norm(1.0),
        optimizers.adam(0.5),
        optimizers.scale_by_schedule(schedules.linear(1.0, 0.0, 20)),
    )
    rates = torch.tensor([0.0, 1e-3, 1e-2])
    start = params_of()
    several = tree_map(lambda leaf: torch.stack([leaf] * 3), start)
    state = optimizers.with_hyperparameters(torch.vmap(optimizer.init)(several), {"learning_rate": rates})

    def step(carry: Any, _: Tensor) -> Any:
        params, state = carry
        updates, state = torch.vmap(optimizer.update)(torch.vmap(torch.func.grad(loss))(params), state, params)
        return (optimizers.apply_updates(params, updates), state), torch.vmap(loss)(params)

    (end, _), losses = scan(step, (several, state), torch.zeros(10))
    for i, rate in enumerate(rates):
        alone = optimizers.with_hyperparameters(optimizer.init(start), {"learning_rate": rate})
        single, _ = ours(optimizer, start, alone, steps=10)
        assert distance(tree_map(lambda leaf, i=i: leaf[i], end), single) < 1e-5
    assert torch.equal(losses[0, 0], losses[-1, 0])
    assert float(losses[-1, 2]) < float(losses[-1, 1]) < float(losses[-1, 0])


def test_one_vector_of_params_trains_as_their_tree() -> None:
    optimizer = optimizers.chain(optimizers.clip_by_global_norm(0.5), optimizers.adamw(0.01))
    start = params_of()
    places = tree_layout(start)
    vector = places.ravel(start)
    state = optimizer.init(vector)
    for _ in range(10):
        gradient = torch.func.grad(lambda v: loss(places.unravel(v)))(vector)
        updates, state = optimizer.update(gradient, state, vector)
        vector = optimizers.apply_updates(vector, updates)
    assert distance(places.unravel(vector), ours(optimizer, start, steps=10)[0]) < 1e-6


def test_hyperparameters_are_read_and_replaced_wherever_they_stand() -> None:
    optimizer = optimizers.chain(
        optimizers.clip_by_global_norm(0.5), optimizers.chain(optimizers.sgd(0.1, momentum=0.9))
    )
    state = optimizer.init(params_of())
    assert {name: float(value) for name, value in optimizers.hyperparameters(state).items()} == {
        "max_norm": 0.5,
        "learning_rate": 0.1,
        "momentum": 0.9,
    }
    changed = optimizers.with_hyperparameters(state, {"learning_rate": 0.2, "max_norm": torch.tensor(2.0)})
    assert {name: float(value) for name, value in optimizers.hyperparameters(changed).items()} == {
        "max_norm": 2.0,
        "learning_rate": 0.2,
        "momentum": 0.9,
    }
    assert float(optimizers.hyperparameters(state)["learning_rate"]) == 0.1
    assert size(changed) == size(state)
    with pytest.raises(ChoiceError, match="did you mean 'learning_rate'"):
        optimizers.with_hyperparameters(state, {"learning_rat": 0.1})
    with pytest.raises(ShapeError, match="learning_rate is \\[3\\], wanted \\[\\]"):
        optimizers.with_hyperparameters(state, {"learning_rate": torch.ones(3)})


def test_a_learning_rate_given_as_a_tensor_has_a_gradient() -> None:
    start = params_of(torch.float64)

    def after(rate: Tensor) -> Tensor:
        optimizer = optimizers.sgd(rate)
        updates, _ = optimizer.update(torch.func.grad(loss)(start), optimizer.init(start), start)
        return loss(optimizers.apply_updates(start, updates))

    rate = torch.tensor(0.05, dtype=torch.float64)
    numeric = (after(rate + 1e-6) - after(rate - 1e-6)) / 2e-6
    torch.testing.assert_close(torch.func.grad(after)(rate), numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_a_compiled_update_is_the_eager_one() -> None:
    optimizer = optimizers.chain(
        optimizers.clip_by_global_norm(0.5),
        optimizers.adamw(0.01),
        optimizers.scale_by_schedule(schedules.cosine(1.0, 0.1, 10)),
    )
    params = {"w": keys.normal(keys.key(0), (5, 3)), "b": torch.tensor(0.5)}

    def step(carry: Any, noise: Tensor) -> tuple[Any, Any]:
        params, state = carry
        gradients = {"w": params["w"] + noise, "b": params["b"] - noise.sum()}
        updates, state = optimizer.update(gradients, state, params)
        return (optimizers.apply_updates(params, updates), state), optimizers.global_norm(updates)

    def run(params: Any, state: Any, noise: Tensor) -> Any:
        return scan(step, (params, state), noise)

    arguments = (params, optimizer.init(params), keys.normal(keys.key(1), (10, 5, 3)))
    compiled, eager = as_users_do(run)(*arguments), run(*arguments)
    for got, wanted in zip(leaves(compiled), leaves(eager), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert int(compiled[0][1][2].count) == 10
