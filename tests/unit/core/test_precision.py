"""Parameters below float32: copies and moments in float32, for every optimiser, compiled, in populations and on a scan."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import StructureError
from purestep.core.optim import optimizers, schedules
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.master_weights import MasterState
from purestep.core.optim.muon import by_label, muon
from purestep.core.optim.optimizers import apply_updates
from purestep.core.rounding import rounded
from purestep.core.scan import scan
from purestep.core.tree import leaves, tree_map
from purestep.properties import check, precision_laws
from purestep.properties.suites.precision import Descending
from purestep.runtime.compile import program as as_users_do
from purestep.runtime.effects.distributed.torch_optimizer import torch_optimizer

BELOW = (torch.bfloat16, torch.float16)
FULL = torch.float32


def both(rate: float) -> Optimizer:
    parts = {"short": muon(rate, precision=FULL), "long": optimizers.adam(rate)}
    return optimizers.chain(
        by_label(lambda name, leaf: name, parts), optimizers.scale_by_schedule(schedules.constant(0.5))
    )


test_adam = check(precision_laws(), Descending(optimizers.adam, apply_updates))
test_adamw = check(precision_laws(), Descending(optimizers.adamw, apply_updates))
test_muon = check(precision_laws(), Descending(lambda rate: muon(rate, precision=FULL), apply_updates))
test_sgd = check(precision_laws(), Descending(optimizers.sgd, apply_updates))
test_nesterov = check(precision_laws(), Descending(optimizers.nesterov, apply_updates))
test_divided = check(precision_laws(), Descending(both, apply_updates))
test_torch = check(
    precision_laws() - {"float32_has_no_copy"},  # torch's own state begins with the first update
    Descending(
        lambda rate: torch_optimizer(lambda params: torch.optim.SGD(params, lr=rate, momentum=0.5)), apply_updates
    ),
)


@pytest.mark.parametrize("dtype", BELOW)
def test_rounding_is_that_of_a_cast(dtype: torch.dtype) -> None:
    some = keys.randint(keys.key(0), (100_000,), 0, 2**31 - 1).to(torch.int32).view(torch.float32)
    ends = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, 65504.0, 65520.0, -65519.9, 2.0**-24, 2.0**-25, 3e-8])
    value = torch.cat([some, -some, ends, 2e-5 * keys.normal(keys.key(1), (50_000,))])
    wanted = value.to(dtype).float()
    got = rounded(value, dtype)
    assert bool(((got == wanted) | (got.isnan() & wanted.isnan())).all())
    assert torch.equal(torch.vmap(lambda x: rounded(x, dtype))(value[-9:]), wanted[-9:])
    assert torch.equal(torch.func.grad(lambda x: rounded(x, dtype).sum())(torch.ones(3)), torch.ones(3))


def steps(optimizer: Optimizer, params: Any, number: int) -> Any:
    state = optimizer.init(params)
    for _ in range(number):
        gradients = tree_map(lambda p: torch.sin(7.0 * p.float()).to(p.dtype), params)
        updates, state = optimizer.update(gradients, state, params)
        params = apply_updates(params, updates)
    return params, state


def test_small_rates_move_parameters_of_bfloat16() -> None:
    start = keys.normal(keys.key(2), (64, 64)).to(torch.bfloat16)
    optimizer = optimizers.chain(
        optimizers.clip_by_global_norm(1.0),
        optimizers.adamw(1e-6),
        optimizers.scale_by_schedule(schedules.constant(1.0)),
    )
    end, state = steps(optimizer, start, 200)
    assert isinstance(state, MasterState)
    still = (state.master - start.float()).abs() < 1e-4
    assert float(still.float().mean()) < 0.1
    assert float((end != start).float().mean()) > 0.05
    assert torch.equal(end, state.master.to(torch.bfloat16))


def test_a_state_of_float32_is_as_without_copies() -> None:
    state = optimizers.chain(optimizers.clip_by_global_norm(1.0), optimizers.adamw(1e-3)).init(torch.zeros(3))
    assert [type(inner).__name__ for inner in state] == ["NumbersState", "AdamState"]
    assert type(muon(0.1).init(torch.zeros(2, 2))).__name__ == "MuonState"
    assert type(optimizers.sgd(0.1).init(torch.zeros(2))).__name__ == "SgdState"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BELOW)
def test_compiled_steps_keep_the_copy(dtype: torch.dtype) -> None:
    optimizer = optimizers.chain(optimizers.clip_by_global_norm(1.0), optimizers.adamw(1e-4))
    params = {"w": keys.normal(keys.key(3), (8, 16)).to(dtype), "b": keys.normal(keys.key(4), (5,))}

    def step(carry: Any, noise: Tensor) -> tuple[Any, Any]:
        params, state = carry
        gradients = {"w": noise.to(dtype), "b": noise[0, :5]}
        updates, state = optimizer.update(gradients, state, params)
        return (apply_updates(params, updates), state), updates["w"].abs().amax()

    def run(params: Any, state: Any, noise: Tensor) -> Any:
        return scan(step, (params, state), noise)

    arguments = params, optimizer.init(params), keys.normal(keys.key(5), (4, 8, 16))
    (got, state), _ = as_users_do(run)(*arguments)
    (wanted, other), _ = run(*arguments)
    # The code generator drops roundings to fewer bits and back, of gradients as well: that is 2^-8 of a step of 1e-4.
    torch.testing.assert_close(state.master["w"], other.master["w"], rtol=0.0, atol=2e-6)
    assert torch.equal(got["w"], state.master["w"].to(dtype))
    assert float((got["w"] != wanted["w"]).float().mean()) < 0.02
    assert not torch.equal(state.master["w"], got["w"].float())


def test_a_population_keeps_a_copy_each() -> None:
    optimizer = optimizers.adamw(0.5)
    rates = torch.tensor([1e-5, 1e-4], dtype=torch.float64)
    start = keys.normal(keys.key(6), (4, 4)).to(torch.bfloat16)
    several = torch.stack([start, start])
    state = optimizers.with_hyperparameters(torch.vmap(optimizer.init)(several), {"learning_rate": rates})
    for _ in range(3):
        updates, state = torch.vmap(optimizer.update)(torch.ones_like(several), state, several)
        several = apply_updates(several, updates)
    for number, rate in enumerate(rates):
        alone, one = start, optimizers.with_hyperparameters(optimizer.init(start), {"learning_rate": rate})
        assert float(optimizers.hyperparameters(one)["learning_rate"]) == float(rate)
        for _ in range(3):
            updates, one = optimizer.update(torch.ones_like(alone), one, alone)
            alone = apply_updates(alone, updates)
        assert torch.equal(several[number], alone)
        torch.testing.assert_close(state.master[number], one.master, rtol=0.0, atol=1e-7)


def test_a_state_of_other_parameters_is_refused() -> None:
    short, long = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)
    optimizer = optimizers.adam(0.1)
    with pytest.raises(StructureError, match=r"update: state is without a float32 copy .*; call init with"):
        optimizer.update(short, optimizer.init(long), short)
    with pytest.raises(StructureError, match="update: state is with a float32 copy"):
        optimizer.update(long, optimizer.init(short), long)
    mixed = {"a": short, "b": long}
    turned = {"a": long, "b": short}
    with pytest.raises(StructureError, match="update: state"):
        optimizer.update(turned, optimizer.init(mixed), turned)
    assert len(leaves(optimizer.init(mixed))) == len(leaves(optimizer.init({"a": long, "b": long}))) + 1
