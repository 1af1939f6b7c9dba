"""Compilation of a subject for a law: full graph, a separate code object, and a count of compilations."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend

from ...core.tree import leaves
from .law import Broken

Function = Callable[..., Any]


class Compiled:
    """A compiled function that raises Broken if it is compiled more than once for a shape.

    The compiler recompiles one code object at most eight times, so every instance wraps the function in a new one. The first
    error is stored, and later calls raise it without compiling again, so that shrinking a counterexample is fast.
    """

    def __init__(self, function: Function, backend: str) -> None:
        self.backend = backend
        self.count = 0
        self.shapes: set[tuple[Any, ...]] = set()
        self.error: Exception | None = None
        inner: Function = lookup_backend(backend)

        def counted(graph: torch.fx.GraphModule, example: Sequence[Any], **options: Any) -> Function:
            self.count += 1
            result: Function = inner(graph, example, **options)
            return result

        self._call: Function = torch.compile(own_code(function), fullgraph=True, dynamic=False, backend=counted)

    def __call__(self, *arguments: Any) -> Any:
        if self.error:
            raise self.error
        tensors = [leaf for leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)]
        self.shapes.add(tuple((leaf.shape, leaf.dtype) for leaf in tensors))
        before = self.count
        try:
            result = self._call(*arguments)
        except Exception as error:
            self.error = error
            raise
        if self.count > max(before, len(self.shapes)):
            self.error = Broken(f"{self.backend} compiled it {self.count} times for {len(self.shapes)} shapes")
            raise self.error
        return result


def own_code(function: Function) -> Function:
    """Return a wrapper of the function with a code object of its own, so that it shares no compilations."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return types.FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)


def compile_each(function: Function, backends: Sequence[str]) -> list[Compiled]:
    """Return a `Compiled` of the function for each backend."""
    return [Compiled(function, backend) for backend in backends]
