"""Programs in segments, as they are made for a GPU: the values of the plain function, wherever scans and ranges stand in it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.runtime.compile import program
from purestep.runtime.inductor.gpu_segments import segmented

Function = Callable[[Tensor], Any]


def nested(x: Tensor) -> Any:
    """Operations before, between and after scans, one in the body of another; its first carry is exchanged with its second."""

    def inner(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return total + row * torch.arange(3), total.sum()

    def outer(carry: tuple[Tensor, Tensor], row: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        first, second = carry
        total, sums = scan(inner, row.sin(), torch.stack([first, second]))
        return (second, first + total), sums.cos()

    (first, second), sums = scan(outer, (x[0].exp(), x[1] * 2), x)
    last, _ = scan(lambda total, row: (total * row, ()), sums[0], sums)
    return first, second + 1, last, torch.arange(4) + first.sum()


def random(x: Tensor) -> Any:
    """Draws with keys that are made in the loop, and outputs of a scan of which some are not read."""

    def step(key: Tensor, row: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        drawn, key = keys.split(key)
        return key, (keys.uniform(drawn, (5,)) + row.sum(), row)

    _, (rows, _) = scan(step, keys.key(3), x)
    return rows


def transposed(x: Tensor) -> Any:
    """Rows of a transposed tensor, outside a scan and in the body of another; a range that is an output."""

    def add(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return total + row, total * row

    def outer(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        table = (total[:, None] * row).sin().transpose(0, 1)
        return scan(add, total, table)[0], table

    last, rows = scan(add, x[:, 0], x.sin().transpose(0, 1))
    return last, rows, *scan(outer, last, x), torch.arange(3)


def members(x: Tensor) -> Any:
    """Scans for several members, whose carries are turned in each iteration, so that their strides are not the traced ones."""

    def inner(table: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return (table * row).T, table.sum(0)

    def member(column: Tensor) -> Any:
        def outer(table: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            new, rows = scan(inner, table.T, columns)
            return (new.T * row).tanh(), rows.T

        columns = torch.stack([column, column * 2, column + 1], 1)
        last, rows = scan(outer, columns[:3].cos().T, columns)
        return last @ last, rows.sum(-1)

    return torch.vmap(member, in_dims=1)(x)


@pytest.mark.parametrize("function", [nested, random, transposed, members, torch.sin])
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, under vmap; a `program` ignores it
@pytest.mark.slow
def test_segments_give_the_values_of_the_function(function: Function) -> None:
    x = keys.normal(keys.key(0), (4, 3))
    torch.compiler.reset()
    made = torch.compile(function, backend=segmented, fullgraph=True, dynamic=False)
    for wanted, got in zip(_flat(function(x)), _flat(made(x)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("function", [nested, random, transposed, members])
def test_a_program_on_a_gpu_gives_the_values_again_and_again(function: Function) -> None:
    with torch.device("cuda"):
        run = program(function)
        for seed in (0, 1, 0):
            x = keys.normal(keys.key(seed), (4, 3))
            for wanted, got in zip(_flat(function(x)), _flat(run(x)), strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert len(run.seconds) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_number_of_the_cpu_is_no_constant_of_a_program_on_a_gpu() -> None:
    def scaled(x: Tensor, rate: Tensor) -> Tensor:
        return scan(lambda total, row: (total + rate * row, ()), x[0], x)[0]

    run, x = program(scaled), torch.ones(4, 3, device="cuda")
    assert [float(run(x, torch.tensor(rate))[0]) for rate in (1.0, 2.0)] == [5.0, 9.0]


def _flat(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple) else [result]
