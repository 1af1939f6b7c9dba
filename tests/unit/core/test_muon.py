"""Muon: equal to PyTorch's own over many steps; parts of a model under optimisers of their own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.optim import optimizers as optim
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.muon import by_label, match_rms_adamw, muon, original, orthogonalized
from purestep.core.optim.optimizers import apply_updates
from purestep.core.tree import leaves, tree_map
from purestep.properties import check

from ...laws.core.families import own_muon
from ...laws.core.muon import muon_laws

test_muon = check(muon_laws(), own_muon())

SHAPES = {"tall": (6, 3), "wide": (3, 6), "square": (4, 4)}
STEPS = 30
ROUNDED = 5e-4  # what a number in bfloat16 that is rounded the other way makes of thirty steps


def params_of() -> dict[str, Tensor]:
    drawn = keys.split(keys.key(0), len(SHAPES))
    return {name: 0.3 * keys.normal(key, shape) for key, (name, shape) in zip(drawn, SHAPES.items(), strict=True)}


POINTS = keys.normal(keys.key(1), (16, 6)), keys.normal(keys.key(2), (16, 6))


def loss(params: dict[str, Tensor]) -> Tensor:
    """Three regressions; their gradients change from step to step."""
    x, y = POINTS
    narrow = torch.tanh(x @ params["tall"]) @ params["wide"] - y
    return (narrow**2).mean() + ((x[:, :4] @ params["square"] - y[:, :4]) ** 2).mean()


def ours(optimizer: Optimizer, params: dict[str, Tensor]) -> dict[str, Tensor]:
    state = optimizer.init(params)
    for _ in range(STEPS):
        updates, state = optimizer.update(torch.func.grad(loss)(params), state, params)
        params = apply_updates(params, updates)
    return params


def theirs(params: dict[str, Tensor], *makers: tuple[tuple[str, ...], Any]) -> dict[str, Tensor]:
    params = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    optimizers = [make([params[name] for name in names]) for names, make in makers]
    for _ in range(STEPS):
        for one in optimizers:
            one.zero_grad()
        torch.autograd.backward([loss(params)])
        for one in optimizers:
            one.step()
    return {name: leaf.detach() for name, leaf in params.items()}


ALL = tuple(SHAPES)


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("numbers", [{}, {"momentum": 0.4, "weight_decay": 0.0}])
def test_many_steps_equal_those_of_torch(adjust: str, numbers: dict[str, float]) -> None:
    start = params_of()
    own: dict[str, Any] = {"adjust": adjust, **numbers}
    end = ours(muon(0.02, **own), start)
    given: dict[str, Any] = {"lr": 0.02, "adjust_lr_fn": adjust, **numbers}
    wanted = theirs(start, (ALL, lambda tensors: torch.optim.Muon(tensors, **given)))
    for name in SHAPES:
        torch.testing.assert_close(end[name], wanted[name], rtol=0.0, atol=ROUNDED)
        assert not torch.allclose(end[name], start[name], atol=1e-2)


def test_parts_under_optimisers_of_their_own_equal_those_of_torch() -> None:
    start = params_of()
    both = by_label(
        lambda name, leaf: "muon" if leaf.shape[0] == leaf.shape[1] else "adamw",
        {"muon": muon(0.02), "adamw": optim.adamw(3e-3)},
    )
    wanted = theirs(
        start,
        (("square",), lambda tensors: torch.optim.Muon(tensors, lr=0.02)),
        (("tall", "wide"), lambda tensors: torch.optim.AdamW(tensors, lr=3e-3)),
    )
    end = ours(both, start)
    assert list(end) == list(start)
    for name in SHAPES:
        torch.testing.assert_close(end[name], wanted[name], rtol=0.0, atol=ROUNDED)


def test_an_optimiser_without_a_part_has_no_state_and_its_numbers_can_be_changed() -> None:
    both = by_label(lambda name, leaf: "all", {"none": muon(0.1), "all": muon(0.02)})
    state = both.init(params_of())
    assert state[0] == ()
    changed = optim.with_hyperparameters(state, {"learning_rate": 0.5})
    assert float(optim.hyperparameters(changed)["learning_rate"]) == 0.5
    gradients = torch.func.grad(loss)(params_of())
    updates, after = both.update(gradients, state, params_of())
    assert after[0] == ()
    assert updates.keys() == gradients.keys()


def test_a_population_with_different_rates_is_one_vmap() -> None:
    gradients, params = torch.func.grad(loss)(params_of()), params_of()
    rates = torch.tensor([0.01, 0.02, 0.04], dtype=torch.float64)

    def one(rate: Tensor) -> dict[str, Tensor]:
        optimizer = muon(rate, precision=torch.float32)
        updates: dict[str, Tensor] = optimizer.update(gradients, optimizer.init(params), params)[0]
        return updates

    together = torch.vmap(one)(rates)
    for number, rate in enumerate(rates):
        alone = one(rate)
        for name in SHAPES:
            torch.testing.assert_close(together[name][number], alone[name], rtol=1e-4, atol=1e-6)


def test_a_step_compiles_as_one_graph() -> None:
    optimizer, params = muon(0.02, precision=torch.float32), {"wide": params_of()["wide"]}
    gradients, state = tree_map(lambda leaf: leaf.cos(), params), optimizer.init(params)
    compiled = torch.compile(optimizer.update, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(
        leaves(compiled(gradients, state, params)), leaves(optimizer.update(gradients, state, params)), strict=True
    ):
        torch.testing.assert_close(got, wanted)


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(ShapeError, match=r"muon: params.bias is \[3\], wanted a matrix; give it to another optimiser"):
        muon(0.1).init({"bias": torch.zeros(3)})
    with pytest.raises(ChoiceError, match=r"muon: adjust is 'originel', .*did you mean 'original'"):
        muon(0.1, adjust="originel")
    with pytest.raises(ChoiceError, match="divided: label is 'b'"):
        by_label(lambda name, leaf: "b", {"a": muon(0.1)}).init(params_of())
    with pytest.raises(StructureError, match="divided: params is tuple, wanted a dict"):
        by_label(lambda name, leaf: "a", {"a": muon(0.1)}).init((torch.zeros(2, 2),))


def test_singular_values_are_drawn_towards_one_and_vectors_stay() -> None:
    matrix = keys.normal(keys.key(3), (12, 20))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    assert float(values[0] / values[-1]) > 4
    turned = orthogonalized(matrix)
    assert 0.6 < float(torch.linalg.svdvals(turned)[-1]) <= float(torch.linalg.svdvals(turned)[0]) < 1.25
    middle = left.mT @ turned @ right.mT
    torch.testing.assert_close(middle, torch.diag(torch.diagonal(middle)), rtol=0.0, atol=1e-5)
    assert not bool(orthogonalized(torch.zeros(2, 3)).any())
    assert (original(9, 4), match_rms_adamw(25, 4)) == (1.5, 1.0)
