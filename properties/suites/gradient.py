"""Laws of gradients (S7) of a function of float64 tensors, at points that `inputs` draws away from kinks."""

from collections.abc import Callable, Sequence

import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ..framework.compare import CURVATURE, require, same
from ..framework.law import Law, Mutant, Seen, Suite, always

# --- mutants ---
# Functions with right values and wrong gradients.


Function = Callable[..., Tensor]


def scaled_by_detached(function: Function) -> Function:
    """Detach half of the function: the value is kept, the gradient is halved."""

    def mutant(*arguments: Tensor) -> Tensor:
        value = function(*arguments)
        return 0.5 * value + 0.5 * value.detach()

    return mutant


def leaks_into(function: Function, constant: tuple[int, ...]) -> Function:
    """Add a term that is 0 but has a gradient in the constant arguments."""

    def mutant(*arguments: Tensor) -> Tensor:
        leak = torch.stack([(arguments[place] - arguments[place].detach()).sum() for place in constant]).sum()
        return function(*arguments) + leak

    return mutant


# --- laws ---


SOURCE = "properties: autograd's gradient is the slope, and what is declared constant has none"


def gradient_laws(inputs: SearchStrategy[tuple[Tensor, ...]], *, constant: Sequence[int] = ()) -> Suite:
    """Return the laws of a function f(*tensors) -> tensor; `constant` are the indices of arguments that get no gradient."""
    laws = [_slope(inputs, constant)]
    if constant:
        laws.append(_constant(inputs, constant))
    return Suite("gradient_laws", tuple(laws))


def _gradients(function: Function, arguments: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in arguments]
    value = function(*leaves).sum()
    live = [leaf for leaf in leaves if leaf.requires_grad]
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = iter(torch.autograd.grad(value, live, allow_unused=True, materialize_grads=True))
    return [next(found) if leaf.requires_grad else torch.zeros_like(leaf) for leaf in leaves]


def _slope(inputs: SearchStrategy[tuple[Tensor, ...]], constant: Sequence[int]) -> Law:
    def check(function: Function, arguments: tuple[Tensor, ...], seen: Seen) -> None:
        got, step = _gradients(function, arguments), 1e-6
        for place, x in enumerate(arguments):
            if place in constant or not x.is_floating_point():
                continue
            for index in range(x.numel()):
                nudge = torch.zeros_like(x).flatten().index_fill(0, torch.tensor(index), step).reshape(x.shape)
                up, down = (
                    function(*arguments[:place], x + sign * nudge, *arguments[place + 1 :]).sum() for sign in (1, -1)
                )
                where = f"the gradient of argument {place}, entry {index}"
                same(where, got[place].flatten()[index], (up - down) / (2 * step), CURVATURE)

    return Law(
        name="gradient_is_the_slope",
        claim="The gradient autograd gives is the slope, by central differences in float64.",
        source=SOURCE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("detaches what it scales by", scaled_by_detached),
    )


def _constant(inputs: SearchStrategy[tuple[Tensor, ...]], constant: Sequence[int]) -> Law:
    def check(function: Function, arguments: tuple[Tensor, ...], seen: Seen) -> None:
        got = _gradients(function, arguments)
        for place in constant:
            require(not bool(got[place].any()), f"argument {place} has the gradient {got[place].tolist()}, wanted 0")

    return Law(
        name="constants_have_no_gradient",
        claim="No gradient flows into the arguments declared constant.",
        source=SOURCE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("forgets a detach", lambda function: leaks_into(function, tuple(constant))),
    )
