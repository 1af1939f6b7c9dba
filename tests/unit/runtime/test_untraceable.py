"""One line for code that does not compile: the construct, the user's file and line, the remedy."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import CppCompileError, InductorError

from purestep.core.errors import CompileError, ShapeError, StructureError, message
from purestep.core.scan import scan
from purestep.runtime.compile import program
from purestep.runtime.inductor.untraceable import untraceable


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
    "a file": (opens, 1, "`open`", "read it outside, and pass what it holds"),
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


WITHOUT = 'or do without it (slower): --backend none, from Python backend="none"'


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler", "/"])
def test_without_a_cpp_compiler_nothing_is_traced(compiler: str, capfd: Any) -> None:
    calls = []

    def double(x: Tensor) -> Tensor:
        calls.append(x)
        return 2 * x

    said = f"double: the C++ compiler is absent: '{compiler}' does not run, wanted one; install one, e.g. apt install g++, "
    with inductor.patch({"cpp.cxx": (None, compiler)}), pytest.raises(CompileError) as caught:
        program(double)(torch.ones(3))
    assert str(caught.value) == f"{said}or name one in CXX, {WITHOUT}"
    assert calls == []
    assert capfd.readouterr().err == ""
    assert program(double, backend="none")(torch.ones(3)).tolist() == [2.0] * 3


def test_a_cpp_compiler_that_fails_is_named_with_its_first_error() -> None:
    output = "In file included from a.cpp:1:\na.cpp:1:10: fatal error: omp.h: No such file\ncompilation terminated.\n"
    fault = InductorError(CppCompileError(["g++", "a.cpp"], output), None)
    said = "step: the C++ compiler is failing: a.cpp:1:10: fatal error: omp.h: No such file, wanted one that works; repair it, "
    assert str(untraceable("step", fault)) == f"{said}or name another in CXX, {WITHOUT}"


@pytest.mark.slow
def test_a_compiler_that_answers_and_builds_nothing_is_one_line(tmp_path: Path, capfd: Any) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ "$@"\necho "cc1plus: fatal error: no headers" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    said = r"^step: the C\+\+ compiler is failing: cc1plus: fatal error: no headers, wanted .* --backend none"
    with inductor.patch({"cpp.cxx": (None, str(compiler))}), pytest.raises(CompileError, match=said):
        program(lambda x: torch.sin(x).cumsum(0), name="step")(torch.ones(3))
    assert "Traceback" not in capfd.readouterr().err
