"""What does not compile is one line: the construct, the user's file and line, the remedy; the compiler's words are the cause."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from purestep.core.errors import CompileError, ShapeError, StructureError, message
from purestep.core.scan import scan
from purestep.runtime.compile import program


def prints(x: Tensor) -> Tensor:
    print(x)  # line 18
    return x


def branches(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x  # line 23


def lists(x: Tensor) -> Tensor:
    return x + sum(x[0].tolist())  # line 27


def prints_in_a_scan(x: Tensor) -> Any:
    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        print(total)  # line 32
        return total + row, total

    return scan(step, torch.zeros(3), x)


def branches_in_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: row if row.sum() > 0 else -row)(x)  # line 39


def multiplies(x: Tensor) -> Tensor:
    return x @ torch.ones(7, 2)  # line 43


def opens(x: Tensor) -> Tensor:
    with open("/dev/null") as file:  # line 47
        return x + len(file.read())


FAULTS = {
    "a print": (prints, 18, "`print`", "return what you want to see as an output, or run it uncompiled"),
    "a branch": (branches, 23, "a Python branch on a tensor", "take torch.where"),
    "a list": (lists, 27, r"Tensor.tolist\(\)", "use tensor operations only"),
    "a print in a scan": (prints_in_a_scan, 32, "`print`", "return what you want"),
    "a branch in vmap": (branches_in_vmap, 39, "a Python branch on a tensor", "take torch.where"),
    "a wrong shape": (multiplies, 43, "RuntimeError.*reduction dim", "use tensor operations"),
    "a file": (opens, 47, "`open`", "use tensor operations only"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_compile_is_one_line(fault: str, capfd: Any) -> None:
    function, line, got, remedy = FAULTS[fault]
    said = rf"^{function.__name__}: \S*test_untraceable.py:{line} is {got}.*, wanted a function that compiles .*; {remedy}"
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

    with pytest.raises(ShapeError, match="^x: it's is 3, wanted 4; make it \"4\"$"):
        program(refuses, backend="aot_eager")(torch.ones(3))
    with pytest.raises(StructureError, match=r"^scan: carry is \[3\] torch.float64, wanted \[3\] torch.float32; keep shape"):
        program(widens, backend="aot_eager")(torch.ones(3, 3))
