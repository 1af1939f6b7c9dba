"""Values by name out of the middle of a function: from inside scans, vmap and gradients, uncompiled and compiled.

A probe changes nothing: without `probed` around the function it is the identity, and the graph is the same.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import torch
import torch._C._functorch as functorch
from attrs import field, frozen
from torch import Tensor

from .errors import CompileError, StructureError, message

P = ParamSpec("P")
R = TypeVar("R")
Values = dict[str, tuple[Tensor, ...]]  # for each name a tensor for each place that has it, in the order met


@frozen
class _Frame:
    depth: int  # transformations of torch.func around the function
    found: dict[str, list[Tensor]] = field(factory=dict)


FRAME: ContextVar[_Frame | None] = ContextVar("probes", default=None)  # of the innermost `probed`


@contextlib.contextmanager
def _opened(frame: _Frame | None) -> Iterator[None]:
    before = FRAME.set(frame)
    try:
        yield
    finally:
        FRAME.reset(before)


def probe(name: str, value: Tensor) -> Tensor:
    """Return `value`, and add it to the values that `probed` returns under this name, where it is around the caller.

    Raises: StructureError for a value that is no tensor.

    >>> probe("half", torch.tensor(0.5))
    tensor(0.5000)
    """
    if not isinstance(value, Tensor):
        remedy = "pass a tensor; of a tree, one probe for each leaf"
        raise StructureError(message(f"probe: {name}", got=type(value).__name__, wanted="a tensor", remedy=remedy))
    if probing():
        _found(name, value)
    return value


def probed(function: Callable[P, R]) -> Callable[P, tuple[R, Values]]:
    """Return a function that returns the result of `function` and the values of all probes reached in it.

    A probe in the step of a scan gives a tensor with a leading axis for its steps; under vmap, one for the mapped axis. A probe
    that is met at several places (a network in a rollout and in a loss) gives a tensor for each, in the order met. Values are
    cut off from gradients. Of nested `probed` the inner one takes the probes. A `program` of it is for the CPU.
    Raises: CompileError where the function is compiled in the compiler's usual way (`program.reason` is not empty).

    >>> from purestep.core.scan import scan
    >>> def step(total, x):
    ...     return total + probe("square", x * x), ()
    >>> (total, _), values = probed(lambda: scan(step, torch.tensor(0), torch.arange(4)))()
    >>> total, values
    (tensor(14), {'square': (tensor([0, 1, 4, 9]),)})
    """

    def run(*arguments: P.args, **named: P.kwargs) -> tuple[R, Values]:
        if torch.compiler.is_dynamo_compiling():
            got, remedy = "compiled by torch.compile", "use `program`, on the CPU, or run it uncompiled"
            raise CompileError(message("probed: the function", got=got, wanted="one traced directly", remedy=remedy))
        frame = _Frame(_depth())
        with _opened(frame):
            result = function(*arguments, **named)
        return result, {name: tuple(values) for name, values in frame.found.items()}

    return run


def unprobed(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` with its probes ignored: for a call whose values nothing uses.

    >>> probed(unprobed(lambda: probe("half", torch.tensor(0.5))))()
    (tensor(0.5000), {})
    """

    def run(*arguments: "P.args", **named: "P.kwargs") -> R:  # as text: torch 2.11 traces no annotation without a hash
        if not probing():
            return function(*arguments, **named)
        with _opened(None):
            return function(*arguments, **named)

    return run


def probing() -> bool:
    """Return whether `probed` is around the caller.

    >>> probing(), probed(probing)()
    (False, (True, {}))
    """
    return not torch.compiler.is_dynamo_compiling() and FRAME.get() is not None


def collect(values: Values) -> None:
    """Add values that an inner `probed` took to those of the outer one.

    >>> probed(lambda: collect({"half": (torch.tensor(0.5),)}))()
    (None, {'half': (tensor(0.5000),)})
    """
    for name, tensors in values.items():
        for value in tensors:
            _found(name, value)


def _found(name: str, value: Tensor) -> None:
    frame = FRAME.get()
    if frame is not None:
        frame.found.setdefault(name, []).append(_outside(value.detach(), frame.depth))


def _depth() -> int:
    return len(functorch.get_interpreter_stack() or ())


def _outside(value: Tensor, depth: int) -> Tensor:
    """Return a value of inside as many transformations as there are, as it is inside the outer `depth` of them.

    It gets a leading axis for each vmap that it leaves.
    """
    if _depth() <= depth:
        return value
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
    from torch._functorch.vmap import unwrap_batched

    interpreter: Any = retrieve_current_functorch_interpreter()
    level = interpreter.level()
    if interpreter.key() == functorch.TransformType.Vmap:
        (inner,), (axis,) = unwrap_batched((value,), level)
        with interpreter.lower():
            if axis is None:
                inner = inner.expand(interpreter.batch_size(), *inner.shape)
            return _outside(inner.movedim(axis or 0, 0), depth)
    if interpreter.key() == functorch.TransformType.Grad:
        inner = functorch._unwrap_for_grad(value, level)
        with interpreter.lower():
            return _outside(inner.detach(), depth)
    got, remedy = interpreter.key().name, "return the value from the transformed function"
    raise StructureError(message("probe: the transformation", got=got, wanted="vmap or grad", remedy=remedy))
