"""Matrix products of compiled programs: the kernel obeys its laws, is called where it serves, and else the library is."""

import re
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.properties import check
from purestep.runtime.compile import program
from purestep.runtime.inductor import loop_codegen
from purestep.runtime.inductor.products import VECTORS, multiplied
from purestep.runtime.inductor.replace_attributes import replace_attributes

from ...laws.runtime.products import kernel, product_laws

written = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in VECTORS, reason="the kernel is not written for this processor"
)
test_kernel = written(check(product_laws(), kernel))
KEY = keys.key(5)
BIASED = "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, bias, a, b, {}, {}));"
WHOLE = "#include <torch/csrc/inductor/cpp_wrapper/cpu.h>\n{}\nkernel_src = ''"


def drawn(number: int, *shape: int) -> Tensor:
    """A tensor of its own for each number."""
    return keys.normal(keys.fold_in(KEY, number), shape)


def layers(xs: Tensor, weights: Tensor, bias: Tensor) -> Any:
    """Products in a loop and after it: with biases of one and two axes, of views, batches, widths that are refused."""

    def step(carry: Tensor, x: Tensor) -> Any:
        hidden = torch.tanh(torch.addmm(bias, x, weights[0]))
        gradient = hidden.T @ x
        return torch.addmm(carry, hidden, weights[1].T) * 0.1, gradient

    last, gradients = scan(step, xs[0], xs)
    batch = torch.baddbmm(xs, torch.bmm(xs, weights), weights.mT)
    ragged = last[:, :10] @ weights[0][:10, :33]
    return last, gradients, batch, ragged, last.double() @ weights[0].double()


@written
def test_in_a_program() -> None:
    texts = list[str]()

    def watched(text: str) -> str:
        texts.append(multiplied(text))
        return texts[-1]

    inputs = drawn(0, 2, 12, 64), drawn(1, 2, 64, 64), drawn(2, 64)
    with replace_attributes(loop_codegen, {"multiplied": watched}), inductor.patch(fx_graph_cache=False):
        results = program(layers, name="layers")(*inputs)
    assert len(re.findall(r"if \(!purestep_multiplied\(", texts[-1])) >= 6
    exact = layers(*(one.double() for one in inputs))
    for result, wanted in zip(results, exact, strict=True):
        torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)


@written
@pytest.mark.parametrize(("beta", "alpha", "changed"), [("1L", "1L", True), ("1.0", "1L", True), ("1L", "0.5", False)])
def test_factors(beta: str, alpha: str, changed: bool) -> None:
    text = WHOLE.format(BIASED.format(beta, alpha))
    assert ("purestep_multiplied(" in multiplied(text)) is changed


def test_several_threads() -> None:
    text, threads = WHOLE.format(BIASED.format("1L", "1L")), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert multiplied(text) == text
    finally:
        torch.set_num_threads(threads)
