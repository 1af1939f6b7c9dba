"""Laws of derivatives of scans in traced programs: the gradient is that of the loop written out, whatever a step does.

The subject is a `Trace`, as in direct_trace: (function, inputs) -> a function of inputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.values import seeds
from purestep.runtime.inductor import loop_fission, scan_derivative
from purestep.runtime.inductor.scan_derivative import Captures

from .direct_trace import Trace, _with

SOURCE = "Werbos 1990, Backpropagation through time: the gradient of an unrolled loop"
WIDTH, ROWS = 3, 2
BOUND = 1e-9  # relative, in float64: sums over time are in another order than the unrolled loop's
Step = Callable[[Any, Tensor], tuple[Any, Tensor]]
Weights = tuple[Tensor, Tensor, Tensor]  # [W, W], [W], [ROWS, W] of each row's own

# --- steps: (weights) -> (first carry, step) ---


def plain(weights: Weights) -> tuple[Any, Step]:
    """A recurrent network with a bias."""

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h @ weights[0] + weights[1] + x)
        return h, h * h

    return weights[2], step


def gated(weights: Weights) -> tuple[Any, Step]:
    """Two carries, an encoder before the loop, a head behind it."""

    def step(carry: Any, x: Tensor) -> Any:
        h, c = carry
        inward = torch.sigmoid(torch.tanh(x @ weights[0]) @ weights[0].T + h @ weights[0])
        c = inward * c + (1 - inward) * torch.tanh(x * weights[1])
        h = inward * torch.tanh(c)
        return (h, c), torch.exp(-((h @ weights[0]) ** 2)) + x

    return (weights[2], weights[2] * 2), step


def counted(weights: Weights) -> tuple[Any, Step]:
    """Carries that are integers and keys; noise; a reset to a start that is closed over, where a flag says so."""
    fresh = weights[2].detach() * 0 + weights[1]

    def step(carry: Any, x: Tensor) -> Any:
        h, count, key = carry
        mine, key = keys.split(key)
        h = torch.where((count % 2 == 0) & (x > 0), fresh, h * weights[1] + x) + keys.uniform(mine, (WIDTH,)).to(
            x.dtype
        )
        return (h, count + 1, key), h.sum(-1, keepdim=True) * count

    return (weights[2], torch.tensor(1), keys.key(5)), step


def nested(weights: Weights) -> tuple[Any, Step]:
    """A scan in each step, over rows that depend on the carry, which closes over weights, carry and row."""

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def inner(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return torch.sin(total @ weights[0] + row * h + x), total

        last, ys = scan(inner, h, torch.stack([x, weights[1] * h]))
        return last, ys.sum(0)

    return weights[2], step


def mapped(weights: Weights) -> tuple[Any, Step]:
    """A function mapped over rows, with a gradient of its own inside."""

    def one(h: Tensor, x: Tensor) -> Tensor:
        slope: Tensor = torch.func.grad(lambda y: torch.tanh(y @ weights[0]).sum() * y[0])(h)
        return h - 0.5 * slope + x

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.func.vmap(one)(h, x)
        return h, h.max(-1).values[:, None]

    return weights[2], step


def flat(weights: Weights) -> tuple[Any, Step]:
    """Parameters as parts of one vector, a table of rows, a part of each result, and a scalar."""
    vector = torch.cat([weights[0].reshape(-1), weights[1]])

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        matrix, bias = vector[: WIDTH * WIDTH].reshape(WIDTH, WIDTH), vector[WIDTH * WIDTH :]
        row = matrix[x.argmax(-1)]
        h = torch.cat([h[:, :1] @ matrix[:1], h[:, 1:] @ matrix[1:]], 0)[:ROWS] * bias.sum() + row * vector[0]
        return torch.tanh(h), torch.nn.functional.pad(h, (0, 1))

    return weights[2], step


def unread(weights: Weights) -> tuple[Any, Step]:
    """A carry that no gradient reaches, and outputs of which one is constant."""

    def step(carry: Any, x: Tensor) -> Any:
        h, count = carry
        return (h + 1, count + x.detach().sum()), torch.cat([x * weights[1], h.detach()], -1)

    return (torch.zeros(ROWS, WIDTH, dtype=torch.float64), torch.zeros((), dtype=torch.float64)), step


STEPS = {one.__name__: one for one in (plain, gated, counted, nested, mapped, flat, unread)}


# --- where the gradient is taken ---


@frozen
class Course:
    """A drawn program: its step, the place of its gradient, and the choices of its scan."""

    step: str
    place: str
    length: int
    reverse: bool
    unroll: int
    remat: bool
    last: bool  # the loss depends on the last carry too

    def gradient(self, lowering: str) -> Callable[[Sequence[Tensor]], Any]:
        """Return the function from (xs, weights...) to gradients and value."""

        def loss(weights: Weights, xs: Tensor) -> Tensor:
            start, step = STEPS[self.step](weights)
            carry, ys = scan(
                step, start, xs, reverse=self.reverse, unroll=self.unroll, remat=self.remat, lowering=lowering
            )
            factors = torch.arange(1.0, len(xs) + 1, dtype=xs.dtype).reshape(-1, 1, 1)
            total: Tensor = (ys * factors).sum()
            return total + carry[0].sum() if self.last and isinstance(carry, tuple) else total

        both = torch.func.grad_and_value(loss, argnums=(0, 1))
        return lambda inputs: PLACES[self.place](both, loss, inputs[0], tuple(inputs[1:]))


def here(both: Any, _: Any, xs: Tensor, weights: Any) -> Any:
    """At the top."""
    return both(weights, xs)


def population(both: Any, _: Any, xs: Tensor, weights: Any) -> Any:
    """For each member of a population, all with the same rows."""
    many = tuple(torch.stack([leaf, 0.5 * leaf, -leaf]) for leaf in weights)
    return torch.func.vmap(both, in_dims=(0, None))(many, xs)


def batch(_: Any, loss: Any, xs: Tensor, weights: Any) -> Any:
    """Of the sum over a batch of rows."""
    many = torch.stack([xs, 2 * xs], 1)
    return torch.func.grad(lambda w: torch.func.vmap(loss, in_dims=(None, 1))(w, many).sum())(weights)


def rows(_: Any, loss: Any, xs: Tensor, weights: Any) -> Any:
    """Of the sum over a batch of rows that a step closes over, one of which is differentiated too."""

    def one(w: Weights, row: Tensor) -> Tensor:
        value: Tensor = loss((w[0], w[1] * row, w[2] + row), xs)
        return value

    many = torch.stack([weights[1], weights[1] * 2])
    return torch.func.grad(lambda w, m: torch.func.vmap(one, in_dims=(None, 0))(w, m).sum(), argnums=(0, 1))(
        weights, many
    )


def training(both: Any, _: Any, xs: Tensor, weights: Any) -> Any:
    """In each step of a scan of updates."""

    def update(weights: Any, rate: Tensor) -> Any:
        (slopes, _), value = both(weights, xs)
        return tuple(leaf - rate * slope for leaf, slope in zip(weights, slopes, strict=True)), value

    return scan(update, weights, torch.tensor([0.01, 0.02], dtype=xs.dtype), lowering="auto")


PLACES: dict[str, Callable[..., Any]] = {one.__name__: one for one in (here, population, batch, rows, training)}


def courses(steps: Sequence[str]) -> st.SearchStrategy[Course]:
    """Return drawn programs whose steps are among these."""
    return st.builds(
        Course,
        step=st.sampled_from(sorted(steps)),
        place=st.sampled_from(sorted(PLACES)),
        length=st.integers(3, 5),
        reverse=st.booleans(),
        unroll=st.integers(1, 2),
        remat=st.booleans(),
        last=st.booleans(),
    )


def _inputs(course: Course, seed: int) -> list[Tensor]:
    shapes = ((course.length, ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH,), (ROWS, WIDTH))
    parts = keys.split(keys.key(seed), len(shapes))
    return [keys.normal(key, shape).double() for key, shape in zip(parts, shapes, strict=True)]


# --- mutants ---


def _unlifted(captures: Captures, body: Any, values: Sequence[Tensor], *inputs: Tensor) -> Any:
    return STOCK_REPLACED(captures, body, [value.detach() for value in values], *inputs)


STOCK_REPLACED = Captures.replaced
MUTANTS = {
    "gives no gradient to what a step closes over": _with(Captures, "replaced", _unlifted),
    "stacks the rows of a product by their place, not by time": _with(
        loop_fission, "_rows", lambda stack: stack.movedim(0, -2).flatten(-3, -2)
    ),
    "goes the same way backwards": _with(scan_derivative, "opposite", lambda reverse: reverse),
}

# --- laws ---


def scan_derivative_laws() -> Suite:
    """The laws of gradients through scans."""
    return Suite("scan_derivative_laws", (_unrolled(), _summed()))


def check_gradient(trace: Trace, drawn: tuple[Course, int], seen: Seen) -> None:
    course, seed = drawn
    for name, happened in ((course.step, True), ("reverse", course.reverse), ("remat", course.remat)):
        seen(name, happened)
    run = trace(course.gradient("auto"), _inputs(course, 0))
    for other in (seed, seed + 1):
        inputs = _inputs(course, other)
        wanted = course.gradient("python")(inputs)
        torch.testing.assert_close(run(inputs), wanted, rtol=BOUND, atol=BOUND)


def _unrolled() -> Law:
    return Law(
        name="gradient_is_that_of_the_unrolled_loop",
        claim="The gradient of a scan is that of its steps written one after another.",
        source=SOURCE,
        inputs=always(st.tuples(courses(tuple(STEPS)), seeds())),
        check=check_gradient,
        mutant=Mutant("goes the same way backwards", MUTANTS["goes the same way backwards"]),
        needs=("reverse", "remat"),
        most=10,
    )


def _summed() -> Law:
    name = "stacks the rows of a product by their place, not by time"
    return Law(
        name="gradient_of_weights_is_one_product",
        claim="Weights that each step multiplies by have the sum of the steps' gradients as theirs.",
        source=SOURCE,
        inputs=always(st.tuples(courses(("flat", "gated", "plain")).filter(lambda one: not one.remat), seeds())),
        check=check_gradient,
        mutant=Mutant(name, MUTANTS[name]),
        needs=("flat",),
        most=8,
    )
