"""Gradients through scans in compiled programs: loops in reverse, with the products that can leave them outside."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.properties.framework.law import Seen
from purestep.runtime.compile import program
from purestep.runtime.inductor.direct_trace import traced
from purestep.runtime.inductor.scan_derivative import NoDerivative

from ...laws.runtime.direct_trace import interpreted
from ...laws.runtime.scan_derivative import PLACES, STEPS, Course, check_gradient

LENGTH, ROWS, WIDTH = 20, 3, 4


def loss(weights: tuple[Tensor, Tensor], xs: Tensor, lowering: str = "auto", *, remat: bool = False) -> Tensor:
    """Return the loss of a recurrent network with an encoder before it and a head behind it."""

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h @ weights[0] + torch.relu(x @ weights[1]))
        return h, torch.sigmoid(h @ weights[1])

    start = xs.new_zeros(ROWS, WIDTH)
    outputs: Tensor = scan(step, start, xs, lowering=lowering, remat=remat)[1]
    return outputs.square().sum()


def drawn(seed: int) -> list[Tensor]:
    shapes = ((LENGTH, ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH))
    parts = keys.split(keys.key(seed), len(shapes))
    return [keys.normal(key, shape).double() for key, shape in zip(parts, shapes, strict=True)]


def bodies(*, remat: bool) -> list[list[str]]:
    """Return the names of the operations in each loop of the gradient's graph."""
    graph = traced(
        lambda inputs: torch.func.grad(lambda w: loss(w, inputs[0], remat=remat))(tuple(inputs[1:])), drawn(0)
    )
    loops = [
        getattr(graph.graph, str(node.args[0].target))
        for node in graph.graph.graph.nodes
        if "scan" in str(node.target) and node.op == "call_function"
    ]
    return [[str(node.target) for node in loop.graph.nodes if node.op == "call_function"] for loop in loops]


def test_a_compiled_gradient_is_that_of_the_unrolled_loop() -> None:
    xs, *weights = drawn(1)
    run = program(lambda w, x: torch.func.grad_and_value(loss)(w, x))
    got = run(tuple(weights), xs)
    assert run.reason == ""
    wanted = torch.func.grad_and_value(lambda w, x: loss(w, x, "python"))(tuple(weights), xs)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_what_does_not_wait_for_the_carry_leaves_the_loop() -> None:
    forwards, backwards = bodies(remat=False)
    assert sum("mm" in name for name in forwards) == 1  # h @ w; the encoder and the head are outside
    assert sum("mm" in name for name in backwards) == 1  # its transpose; the weights' gradients are outside
    assert not any("tanh" in name for name in backwards)


def test_remat_stores_carries_alone() -> None:
    forwards, backwards = bodies(remat=True)
    assert sum("mm" in name for name in forwards) == 3
    assert sum("mm" in name for name in backwards) == 8  # three again, two for the derivative of each but that of x


@pytest.mark.slow
@pytest.mark.parametrize(("step", "place"), [*itertools.product(sorted(STEPS), sorted(PLACES))])
def test_every_step_has_its_gradient_in_every_place(step: str, place: str) -> None:
    for reverse, unroll, remat in ((False, 1, False), (True, 2, False), (False, 2, True)):
        course = Course(step, place, length=4, reverse=reverse, unroll=unroll, remat=remat, last=True)
        check_gradient(interpreted, (course, 3), Seen())


def hessian(x: Tensor) -> Any:
    return torch.func.grad(lambda y: torch.func.grad(lambda z: doubled(z))(y).sum())(x)


def tangent(x: Tensor) -> Any:
    return torch.func.jvp(doubled, (x,), (x,))


def doubled(x: Tensor) -> Tensor:
    return scan(lambda carry, row: (carry * row.sum(), carry), x.sum(), x)[0]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in jvp
@pytest.mark.parametrize(("function", "reason"), [(hessian, NoDerivative.SECOND), (tangent, NoDerivative.FORWARD)])
def test_other_derivatives_are_refused(function: Callable[[Tensor], Any], reason: str) -> None:
    with pytest.raises(NoDerivative, match=reason):
        traced(lambda inputs: function(inputs[0]), [torch.ones(3, 3)])
