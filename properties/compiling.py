"""Compiling a subject for a law: full graph, one code object each, and a count of compilations."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend

from ..core.tree import leaves

Function = Callable[..., Any]


class Compiled:
    """A compiled function that knows how often the compiler ran, and for how many shapes it was called.

    The compiler allows one code object eight compilations, so that every instance wraps the function in a new one.
    """

    def __init__(self, function: Function, backend: str) -> None:
        self.backend = backend
        self.count = 0
        self.shapes: set[tuple[Any, ...]] = set()
        inner: Function = lookup_backend(backend)

        def counted(graph: torch.fx.GraphModule, example: Sequence[Any], **options: Any) -> Function:
            self.count += 1
            result: Function = inner(graph, example, **options)
            return result

        self._call: Function = torch.compile(own_code(function), fullgraph=True, dynamic=False, backend=counted)

    def __call__(self, *arguments: Any) -> Any:
        self.shapes.add(tuple((leaf.shape, leaf.dtype) for leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)))
        return self._call(*arguments)


def own_code(function: Function) -> Function:
    """The function behind a code object that nobody else compiles."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return types.FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)


def compile_each(function: Function, backends: Sequence[str]) -> list[Compiled]:
    """The function once for each backend."""
    return [Compiled(function, backend) for backend in backends]
