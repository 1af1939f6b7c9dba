"""The derivative of a scan, in a direct trace: a scan over the steps in reverse, which runs each again for its own derivative.

    (c_{t+1}, y_t) = step(c_t, x_t, w)
    (dc_t, dx_t, dw_t) = pullback of step at (c_t, x_t, w), applied to (dc_{t+1}, dy_t);   dw = sum over t of dw_t

The scan forwards stores the carries c_t and nothing else of its steps. Tensors w that a step closes over become arguments:
`captures_of` finds them by running the step once. A derivative of the derivative is refused.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import evolve, frozen
from torch import Tensor
from torch._C._functorch import (
    _add_batch_dim,
    current_level,
    get_unwrapped,
    is_batchedtensor,
    maybe_get_bdim,
    maybe_get_level,
    peek_interpreter_stack,
)
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from .replace_attributes import replace_attributes

Body = Callable[..., tuple[Tensor, ...]]  # of a scan: (carry, x) -> (carry, y), all of them flat
Lowered = Callable[
    ..., Sequence[Tensor]
]  # (body, init, xs, sums=n): the scan, and the last n of its ys as sums over time
MODES: Callable[[], list[TorchFunctionMode]] = _get_current_function_mode_stack
# Functions by which tensors enter and leave transformations of torch.func, in the modules that call them.
CROSSINGS = {
    "torch._functorch.eager_transforms": ("_wrap_for_grad", "_unwrap_for_grad"),
    "torch._functorch.vmap": ("_add_batch_dim", "_remove_batch_dim", "unwrap_batched"),
    "torch._functorch.autograd_function": ("_wrap_for_grad", "_unwrap_for_grad", "_add_batch_dim", "unwrap_batched"),
    "torch._functorch.utils": ("unwrap_if_dead",),
    f"{__package__}.direct_trace": ("_add_batch_dim", "unwrap_batched"),
}


@frozen
class Order:
    """The course of a scan: its direction, and for one that is differentiated which results it adds up and stores."""

    reverse: bool
    sums: int | None = None  # the number of its last outputs that are summed over time
    remat: bool = False  # store nothing but carries and outputs


class NoDerivative(Exception):
    """A reason why a derivative through a scan is left to a loop that is unrolled."""

    GRADIENT = "a gradient through a scan"  # in the compiler's usual way, which has none
    SECOND = "a second derivative through a scan"
    FORWARD = "a derivative through a scan that is no gradient"
    UNSEEN = "a gradient through a scan whose step reaches a tensor outside torch's functions"


def differentiable(
    lowered: Lowered, body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], order: Order, level: int
) -> Sequence[Tensor]:
    """Return the results of `lowered(body, init, xs, order)` with a derivative at this level, that of the innermost gradient.

    Raises: NoDerivative.
    """
    captures, moving, outputs = _captures_of(body, init, xs, level)
    values = captures.values
    first, carries, count = len(values), len(init), len(values) + len(init) + len(xs)
    varies = [*(leaf.requires_grad for leaf in values), *moving, *(leaf.requires_grad for leaf in xs)]
    of_values, ends = sum(varies[:first]), sum(moving)

    class Backwards(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*flat: Any) -> Any:
            given, stored, gradients = flat[:first], flat[first:count], flat[count:]

            def pulled(*inputs: Tensor) -> tuple[Tensor, ...]:
                of_carry, at, of_outputs = (
                    inputs[:ends],
                    inputs[ends : ends + len(stored)],
                    inputs[ends + len(stored) :],
                )
                point = [*given, *at]

                def step(*varied: Tensor) -> tuple[Tensor, ...]:
                    now = _merged(point, varies, varied)
                    return tuple(_chosen(captures.replaced(body, now[:first], *now[first:]), [*moving, *outputs]))

                pull: Any = torch.func.vjp(step, *_chosen(point, varies))[1]
                found = pull((*of_carry, *of_outputs))
                return (*found[of_values:], *found[:of_values])

            start = [leaf.clone(memory_format=torch.contiguous_format) for leaf in gradients[:ends]]
            rows = [leaf.contiguous() for leaf in (*stored, *gradients[ends:])]
            found = lowered(pulled, start, rows, Order(opposite(order.reverse), of_values, order.remat))
            return (*found[len(found) - of_values :], *found[: len(found) - of_values])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise NoDerivative(NoDerivative.SECOND)

    class Forwards(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*flat: Any) -> Any:
            given, start, rows = flat[:first], flat[first : first + carries], flat[first + carries :]

            def storing(*inputs: Tensor) -> tuple[Tensor, ...]:
                results = captures.replaced(body, given, *inputs)
                return (*results[:carries], *(leaf.clone() for leaf in inputs[:carries]), *results[carries:])

            return tuple(lowered(storing, start, rows, evolve(order, sums=0)))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[:first], *output[carries : 2 * carries], *inputs[first + carries :])

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            chosen = _chosen((*gradients[:carries], *gradients[2 * carries :]), [*moving, *outputs])
            found: Any = Backwards.apply(*ctx.saved_tensors, *chosen)  # type: ignore[no-untyped-call]
            return tuple(_merged([None] * count, varies, found))

    results: Any = Forwards.apply(*values, *init, *xs)  # type: ignore[no-untyped-call]
    return [*results[:carries], *results[2 * carries :]]


def _chosen(leaves: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [leaf for leaf, chosen in zip(leaves, flags, strict=True) if chosen]


def _merged(leaves: Sequence[Any], flags: Sequence[bool], others: Sequence[Any]) -> list[Any]:
    """Return the leaves, with the others in the place of those that are flagged."""
    remaining = iter(others)
    return [next(remaining) if other else leaf for leaf, other in zip(leaves, flags, strict=True)]


def opposite(reverse: bool) -> bool:
    """Return the direction of the derivative of a scan."""
    return not reverse


def _captures_of(
    body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], level: int
) -> tuple["Captures", list[bool], list[bool]]:
    """Return what a body closes over, which parts of its carry depend on what is differentiated, and which outputs do."""
    x = [leaf[0] for leaf in xs]
    watch = _Watch((*init, *x), finding=True)
    carry = list(init)
    moving = [leaf.requires_grad for leaf in init]
    while True:
        with watch.watching():
            results = body(*carry, *x)
        after = [leaf.requires_grad for leaf in results]
        now = [before or later for before, later in zip(moving, after, strict=False)]
        if now == moving:
            break
        carry = [new if later else old for old, new, later in zip(carry, results, after, strict=False)]
        moving = now
    captures = Captures([one for one in watch.found if maybe_get_level(_inner(one, level)[0]) <= level], level)
    constant = captures.replaced(
        body, [leaf.detach() for leaf in captures.values], *(leaf.detach() for leaf in (*init, *x))
    )
    if any(leaf.requires_grad for leaf in constant):
        raise NoDerivative(NoDerivative.UNSEEN)
    return captures, moving, after[len(init) :]


@frozen
class Captures:
    """Tensors of transformations that a body closes over, and the values in them that become its arguments."""

    tensors: list[Tensor]
    level: int

    @property
    def values(self) -> list[Tensor]:
        """Return the tensors without the batches of transformations inside this level's."""
        return [_inner(replaced_by_outer(tensor), self.level)[0] for tensor in self.tensors]

    def replaced(self, body: Body, values: Sequence[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the body's results with these values in place of those that it closes over."""
        watch = _Watch((*inputs, *values))
        depth = (
            current_level() if peek_interpreter_stack() else 0
        )  # of the transformations that the body is now called in
        for tensor, value in zip(self.tensors, values, strict=True):
            for axis, level in _inner(replaced_by_outer(tensor), self.level)[1]:
                value = _add_batch_dim(value, axis, depth + level - self.level)
            watch.replacements[id(tensor)] = watch.returned(value)
        with watch.watching():
            return body(*inputs)


def _inner(tensor: Tensor, level: int) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the value of a tensor at a level, and the axes and levels of the batches around it, the innermost first."""
    batches: list[tuple[int, int]] = []
    while maybe_get_level(tensor) > level and is_batchedtensor(tensor):
        batches.insert(0, (maybe_get_bdim(tensor), maybe_get_level(tensor)))
        tensor = get_unwrapped(tensor)
    return tensor, batches


class _Watch(TorchFunctionMode):
    """Find or replace the tensors of transformations that functions are called with and no function has returned."""

    def __init__(self, inputs: Sequence[Tensor], *, finding: bool = False) -> None:
        super().__init__()
        self.finding, self.paused = finding, False
        self.known = {id(leaf): leaf for leaf in inputs}  # held, so that no other tensor gets their identity
        self.replacements: dict[int, Tensor] = {}
        self.found: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.paused:
            return function(*args, **(kwargs or {}))
        given, named = pytree.tree_map(self.taken, (args, kwargs or {}))
        return self.returned(function(*given, **named))

    def taken(self, leaf: Any) -> Any:
        """Return the argument to call a function with in the place of this one."""
        if not isinstance(leaf, Tensor) or id(leaf) in self.known:
            return leaf
        if id(leaf) in self.replacements:
            return self.replacements[id(leaf)]
        if self.finding and maybe_get_level(leaf) > 0:  # others are constants, or inputs of the whole graph
            self.found.append(self.returned(leaf))
        return leaf

    def returned(self, result: Any) -> Any:
        """Return a result that is known from now on."""
        self.known.update((id(leaf), leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        return result

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See in the block all functions, and the tensors that enter and leave transformations."""
        with contextlib.ExitStack() as stack:
            for name, functions in CROSSINGS.items():
                module = importlib.import_module(name)
                seen = {one: self._seeing(getattr(module, one)) for one in functions}
                stack.enter_context(replace_attributes(module, seen))
            stack.enter_context(self)
            yield

    def _seeing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def seen(tensors: Any, *rest: Any) -> Any:
            if self.paused:
                return function(tensors, *rest)
            return self.returned(function(pytree.tree_map(self.taken, tensors), *rest))

        return seen


def _watches() -> list[_Watch]:
    """Return the watches around the code that runs, the outermost first."""
    return [mode for mode in MODES() if isinstance(mode, _Watch)]


def replaced_by_outer(tensor: Tensor) -> Tensor:
    """Return the tensor that stands for this one where scans around this code are differentiated."""
    for watch in reversed(_watches()):
        if watch.paused:
            tensor = watch.taken(tensor)
    return tensor


def unwatched(lowered: Lowered, body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], order: Order) -> Any:
    """Return the results of `lowered(body, init, xs, order)`, of which the watches around it see the body alone."""
    watches = [watch for watch in _watches() if not watch.paused]

    def watched(*inputs: Tensor) -> tuple[Tensor, ...]:
        for watch in watches:
            watch.paused = False
            watch.returned(inputs)
        try:
            return body(*inputs)
        finally:
            for watch in watches:
                watch.paused = True

    for watch in watches:
        watch.paused = True
    try:
        inputs = [[replaced_by_outer(leaf) for leaf in leaves] for leaves in (init, xs)]
        results = lowered(watched, *inputs, order)
    finally:
        for watch in watches:
            watch.paused = False
    for watch in watches:
        watch.returned(results)
    return results
