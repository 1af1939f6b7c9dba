"""Things that cannot be compiled: each is one line that names the user's line and the thing."""

import random
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._inductor.exc import CppCompileError, InductorError
from torch.nn import functional

from purestep.core.errors import CompileError
from purestep.core.scan import scan
from purestep.runtime.compile import program
from purestep.runtime.inductor.untraceable import untraceable


def branch(x: Tensor) -> Any:
    return x if x.sum() > 0 else -x


def loop(x: Tensor) -> Any:
    while x.sum() < 100:
        x = x * 2
    return x


def tolist(x: Tensor) -> Any:
    return x + sum(x[0].tolist())


def numpy_draw(x: Tensor) -> Any:
    return x + float(np.random.rand())


def python_draw(x: Tensor) -> Any:
    return x + random.random()


def generator(x: Tensor) -> Any:
    return x + torch.rand(3, generator=torch.Generator().manual_seed(0))


def prints(x: Tensor) -> Any:
    print(x)
    return x + 1


def opens(x: Tensor) -> Any:
    with open("/dev/null") as file:
        return x + len(file.read())


def clock(x: Tensor) -> Any:
    return x + time.time()


def sparse(x: Tensor) -> Any:
    return torch.sparse.mm(x.to_sparse(), x)


def large(x: Tensor) -> Any:
    return x + 2**70


def ctc(x: Tensor) -> Any:
    rows, one = x.log_softmax(-1)[:, None], torch.ones(1, 2, dtype=torch.int64)
    return functional.ctc_loss(rows, one, torch.tensor([3]), torch.tensor([2]))


def raises(x: Tensor) -> Any:
    raise ValueError("two\nlines")


def misfit(x: Tensor) -> Any:
    return x @ torch.ones(7, 2)


def backward(x: Tensor) -> Any:
    weight = torch.ones(3, requires_grad=True)
    (x * weight).sum().backward()  # type: ignore[no-untyped-call]
    return weight.grad


def classes(x: Tensor) -> Any:
    return functional.one_hot(x.long())


def layer(x: Tensor) -> Any:
    return nn.LSTM(3, 3)(x)[0]


def text(x: Tensor) -> Any:
    return x * len(str(x))


def ordered(x: Tensor) -> Any:
    return torch.stack(sorted(x.flatten()))


def scan_in_gradient(x: Tensor) -> Any:
    def total(weight: Tensor) -> Tensor:
        return scan(lambda carry, row: (carry * weight + row.sum(), carry), weight.sum(), x)[0]

    return torch.func.grad(total)(x[0, 0])


def scan_in_mapped_gradient(x: Tensor) -> Any:
    def total(weight: Tensor, rows: Tensor) -> Tensor:
        return scan(lambda carry, row: (carry * weight + row, carry), weight, rows)[0]

    return torch.vmap(torch.func.grad(total), (None, 0))(x[0, 0], x)


def numpy_call(x: Tensor) -> Any:
    return torch.from_numpy(np.linalg.inv(x.numpy()))


def appends(x: Tensor) -> Any:
    FAULTS_SEEN.append(x)
    return x


FAULTS_SEEN: list[Tensor] = []
FAULTS: dict[Any, tuple[int, str]] = {  # function -> its line that is to be named, and what is to be said of it
    branch: (1, "a Python branch on a tensor"),
    loop: (1, "a Python branch on a tensor"),
    tolist: (1, "tolist"),
    numpy_draw: (1, "a number in Python that depends on"),
    python_draw: (1, "random"),
    generator: (1, "object"),
    prints: (1, "`print`"),
    opens: (1, "`open`"),
    clock: (1, "`time.time`"),
    sparse: (1, "sparse"),
    large: (1, "int too big"),
    ctc: (2, "Dynamic shape operator"),
    raises: (1, "ValueError: .two"),
    misfit: (1, "reduction dim"),
    backward: (1, "requires_grad=True"),
    classes: (1, "one_hot"),
    layer: (1, "Parameter"),
    text: (1, "`str`"),
    ordered: (1, "`sorted`"),
    numpy_call: (1, "a call outside torch"),
    appends: (0, "a function that computes nothing"),
    scan_in_gradient: (2, r'a gradient through a scan.*write scan\(\.\.\., lowering="python"\) there'),
    scan_in_mapped_gradient: (2, r'a gradient through a scan.*write scan\(\.\.\., lowering="python"\) there'),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", FAULTS, ids=lambda function: function.__name__)
def test_the_line_and_the_thing_are_named(function: Any) -> None:
    offset, thing = FAULTS[function]
    line = function.__code__.co_firstlineno + offset
    with pytest.raises(CompileError) as caught:
        program(function, backend="aot_eager")(torch.ones(3, 3))
    said = str(caught.value)
    assert "\n" not in said
    assert f"{__file__}:{line} is " in said
    assert "C++" not in said
    with pytest.raises(CompileError, match=thing):
        raise caught.value


def test_a_gradient_through_a_scan_says_what_to_write() -> None:
    with pytest.raises(CompileError, match=rf"test_uncompilable.py:\d+ is {FAULTS[scan_in_gradient][1]}"):
        program(scan_in_gradient, backend="aot_eager")(torch.ones(3, 3))


def test_the_cpp_compiler_is_blamed_only_where_one_line_fails_too() -> None:
    fault = InductorError(CppCompileError(["g++", "a.cpp"], "a.cpp:9:1: error: 'u0' was not declared"), None)
    function = sys.modules[__name__].branch
    said = str(untraceable("step", fault, function=function, compiler_works=True))
    line = function.__code__.co_firstlineno
    assert said.startswith(
        f"step: {__file__}:{line} is C++ that does not compile (a.cpp:9:1: error: 'u0' was not declared)"
    )
    assert "the C++ compiler is failing" in str(untraceable("step", fault, function=function))
