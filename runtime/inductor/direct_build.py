"""From a pure function to a library, through a direct trace and inductor's passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx
from torch._inductor.lowering import clone, lowerings, register_lowering
from torch._inductor.virtualized import V
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from .direct_library import Library, Passed
from .direct_trace import Traced, Untraced, traced
from .in_place import DONATED
from .philox import generated


def build_directly(
    function: Callable[[list[Any]], Any], inputs: list[Any], donated: frozenset[int] = frozenset()
) -> Library:
    """Return a function of flat inputs, compiled for the processor by inductor's own passes and code generator.

    Results may take the memory of the inputs at the positions `donated`.
    Raises: Untraced, and errors of the function and the compiler.
    """
    with _use_lazy_graph_module(True):  # graphs become Python code only where something calls them
        tensors = [place for place, leaf in enumerate(inputs) if isinstance(leaf, Tensor)]
        one = traced(function, inputs)
        results = {leaf.position for leaf in one.outputs if isinstance(leaf, Passed)}  # they keep their numbers
        return _built(one, [k for k, place in enumerate(tensors) if place in donated and k not in results])


def _lower_copies() -> None:
    """Let the compiler fuse copies of a part of a tensor, for which it has no rule of its own but a call from Python."""
    aten = torch.ops.aten
    for copy, view in ((aten.select_copy.int, aten.select.int), (aten.slice_copy.Tensor, aten.slice.Tensor)):
        if copy not in lowerings:
            register_lowering(copy, type_promotion_kind=None)(
                lambda *given, _view=lowerings[view], **named: clone(_view(*given, **named))
            )
    if aten.split_copy.Tensor not in lowerings:
        split = lowerings[aten.split.Tensor]
        register_lowering(aten.split_copy.Tensor, type_promotion_kind=None)(
            lambda *given, **named: [clone(part) for part in split(*given, **named)]
        )


def _built(one: Traced, donated: list[int]) -> Library:
    _lower_copies()
    options = inductor.patch(compile_fx.get_cpp_wrapper_config())
    with tracing(TracingContext(one.mode)), V.set_fake_mode(one.mode), options, generated():
        graph = compile_fx._recursive_joint_graph_passes(one.graph)
        given = list(graph.graph.find_nodes(op="placeholder"))
        for place in donated:
            given[place].meta[DONATED] = True
        made: Any = compile_fx.compile_fx_inner(graph, one.inputs, is_inference=True, cpp_wrapper=True)
    wrapper = getattr(made, "current_callable", None)  # Python around the library's one function
    if wrapper is None:
        raise Untraced("a graph without operations")
    entry = wrapper.__globals__["inductor_entry"]
    return Library(Path(entry.__self__.__file__).read_bytes(), one.captured, one.outputs, one.structure, donated, entry)
