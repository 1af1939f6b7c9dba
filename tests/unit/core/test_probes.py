"""probe and probed: the values by hand, through scan, vmap and grad, uncompiled and compiled; the result unchanged."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core.errors import CompileError, StructureError
from purestep.core.probes import probe, probed, unprobed
from purestep.core.scan import scan
from purestep.runtime.compile import program

ROWS = torch.arange(12.0).reshape(4, 3)


def decay(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    total = probe("total", total * 0.5 + x)
    return total, total * 2


def cumulative(rows: Tensor) -> tuple[Tensor, Tensor]:
    return scan(decay, rows[0] * 0, rows)


def by_hand(rows: Tensor) -> Tensor:
    totals, total = [], rows[0] * 0
    for row in rows:
        total = total * 0.5 + row
        totals.append(total)
    return torch.stack(totals)


def assert_equal(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_a_scan_stacks_the_values_of_its_steps_in_the_order_of_its_inputs() -> None:
    for options in ({}, {"reverse": True}):

        def run(rows: Tensor, options: Any = options) -> Any:
            return scan(decay, rows[0] * 0, rows, **options)

        result, values = probed(run)(ROWS)
        totals = by_hand(ROWS.flip(0)).flip(0) if "reverse" in options else by_hand(ROWS)
        assert_equal(result, run(ROWS))
        assert_equal(values, {"total": (totals,)})


def test_no_steps_give_values_of_no_rows() -> None:
    values = probed(lambda: scan(decay, torch.zeros(3), torch.zeros(0, 3)))()[1]
    assert_equal(values, {"total": (torch.zeros(0, 3),)})


def test_vmap_gives_the_values_a_leading_axis_wherever_it_maps() -> None:
    result, values = probed(torch.vmap(cumulative, in_dims=1))(ROWS)
    assert_equal(result, torch.vmap(cumulative, in_dims=1)(ROWS))
    assert_equal(values, {"total": (torch.stack([by_hand(column) for column in ROWS.T]),)})  # the mapped axis first
    constant = probed(torch.vmap(lambda row: (probe("one", torch.ones(2)), row)[1]))(ROWS)[1]
    assert_equal(constant, {"one": (torch.ones(4, 2),)})


def nested(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Take the gradient, for each column, of a loss with a probe, in every step of a scan within a scan."""

    def loss(weight: Tensor, row: Tensor) -> Tensor:
        return probe("product", weight * row).square().sum()

    def inner(weight: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        gradient = torch.func.grad(loss)(weight, row)
        return probe("weight", weight - 0.125 * gradient), gradient

    def outer(weight: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        weight, gradients = scan(inner, weight, rows / 8)
        return weight, gradients.sum()

    return scan(outer, torch.ones(3), torch.zeros(2))


def nested_by_hand(rows: Tensor) -> dict[str, Tensor]:
    weight, products, weights = torch.ones(3), [], []
    for _ in range(2):
        for row in rows / 8:
            products.append(weight * row)
            weight = weight - 0.125 * 2 * weight * row * row
            weights.append(weight)
    return {"product": torch.stack(products).reshape(2, -1, 3), "weight": torch.stack(weights).reshape(2, -1, 3)}


def test_values_leave_gradients_and_scans_within_scans_also_compiled() -> None:
    wanted = nested_by_hand(ROWS)
    result, values = probed(nested)(ROWS)
    assert_equal(result, nested(ROWS))
    made = program(probed(nested))
    compiled_result, compiled_values = made(ROWS)
    assert made.reason == ""  # traced directly
    for found in (values, compiled_values):
        assert found.keys() == wanted.keys()
        for name, (value,) in found.items():
            torch.testing.assert_close(value, wanted[name])
            assert not value.requires_grad
    torch.testing.assert_close(compiled_result, result)


def test_scans_inside_vmap_are_compiled_with_their_probes() -> None:
    many = torch.stack([ROWS, ROWS.flip(0)])
    made = program(probed(torch.vmap(nested)))
    _, values = made(many)
    assert made.reason == ""
    for name, (value,) in values.items():
        torch.testing.assert_close(value, torch.stack([nested_by_hand(rows)[name] for rows in many]))


def test_each_place_has_a_tensor_of_its_own_and_an_inner_probed_takes_its_probes() -> None:
    def twice() -> Any:
        probe("a", torch.tensor(1))
        inside = probed(probe)("a", torch.tensor(2))
        probe("a", torch.tensor([3, 4]))
        return inside

    inside, values = probed(twice)()
    assert_equal(inside, (torch.tensor(2), {"a": (torch.tensor(2),)}))
    assert_equal(values, {"a": (torch.tensor(1), torch.tensor([3, 4]))})


def test_a_gradient_is_not_changed_by_a_probe() -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    loss, values = probed(lambda: probe("weight", weight * 3).square().sum())()
    assert_equal(torch.autograd.grad(loss, weight)[0], 18 * weight.detach())
    assert not values["weight"][0].requires_grad


def test_without_probed_and_after_an_error_nothing_is_kept() -> None:
    def fails() -> None:
        probe("a", torch.tensor(1))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        probed(fails)()
    assert probed(lambda: probed(unprobed(cumulative))(ROWS)[1])() == ({}, {})
    assert_equal(program(cumulative)(ROWS)[1], cumulative(ROWS)[1])


def test_bad_use_is_refused_in_one_line() -> None:
    with pytest.raises(StructureError, match="probe: a is float, wanted a tensor"):
        probe("a", 1.0)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="probe: the transformation is Functionalize, wanted vmap or grad; return"):
        probed(lambda: torch.func.functionalize(lambda x: probe("a", x))(ROWS))()
    made = program(probed(cumulative), backend="aot_eager")
    with pytest.raises(CompileError, match=r"probed: the function is compiled by torch.compile, wanted one traced"):
        made(ROWS)
