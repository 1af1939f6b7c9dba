"""One line for code that does not compile: the construct, the user's file and line, the remedy."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from purestep.core.errors import CompileError, ShapeError, StructureError, message
from purestep.core.scan import scan
from purestep.runtime.compile import program


def prints(x: Tensor) -> Tensor:
    print(x)
    return x


def branches(x: Tensor) -> Any:
    return x if x.sum() > 0 else -x


def lists(x: Tensor) -> Any:
    return x + sum(x[0].tolist())


def prints_in_a_scan(x: Tensor) -> Any:
    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        print(total)
        return total + row, total

    return scan(step, torch.zeros(3), x)


def branches_in_vmap(x: Tensor) -> Any:
    return torch.vmap(lambda row: row if row.sum() > 0 else -row)(x)


def multiplies(x: Tensor) -> Tensor:
    return x @ torch.ones(7, 2)


def opens(x: Tensor) -> Tensor:
    with open("/dev/null") as file:
        return x + len(file.read())


FAULTS = {
    "a print": (prints, 1, "`print`", "return what you want to see as an output, or run it uncompiled"),
    "a branch": (branches, 1, "a Python branch on a tensor", "take torch.where"),
    "a list": (lists, 1, r"Tensor.tolist\(\)", "use tensor operations only"),
    "a print in a scan": (prints_in_a_scan, 2, "`print`", "return what you want"),
    "a branch in vmap": (branches_in_vmap, 1, "a Python branch on a tensor", "take torch.where"),
    "a wrong shape": (multiplies, 1, "RuntimeError.*reduction dim", "use tensor operations"),
    "a file": (opens, 1, "`open`", "use tensor operations only"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_compile_is_one_line(fault: str, capfd: Any) -> None:
    function, offset, got, remedy = FAULTS[fault]
    line = function.__code__.co_firstlineno + offset
    said = (
        rf"^{function.__name__}: \S*test_untraceable.py:{line} is {got}.*, wanted a function that compiles .*; {remedy}"
    )
    with pytest.raises(CompileError, match=said) as caught:
        program(function, backend="aot_eager")(torch.ones(3, 3))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, TorchDynamoException)
    assert capfd.readouterr().err == ""


def test_an_error_of_ours_stays_what_it_is() -> None:
    def refuses(x: Tensor) -> Tensor:
        if x.shape[0] == 3:
            raise ShapeError(message("x: it's", got=3, wanted="4", remedy='make it "4"'))
        return x

    def widens(x: Tensor) -> Any:
        return scan(lambda total, row: ((total + row).double(), total), torch.zeros(3), x)

    with pytest.raises(ShapeError, match=r"^x: it's is 3, wanted 4; make it .4.$"):
        program(refuses, backend="aot_eager")(torch.ones(3))
    with pytest.raises(
        StructureError, match=r"^scan: carry is \[3\] torch.float64, wanted \[3\] torch.float32; keep shape"
    ):
        program(widens, backend="aot_eager")(torch.ones(3, 3))
