"""The C++ of a compiled loop: its inputs are borrowed, where the compiler's own code copies a handle for each.

The compiler's own code does so for the condition and for the body in every iteration, which takes a tenth of the time of a
small step. It also generates C++ that does not build when the last reader of a loop's output could reuse its memory, frees the
same handle in every iteration when an input is the whole of another tensor, and crashes if two parts of the carry become the
same constant. The code written here has none of these faults.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .compile_speed import VERSIONS
from .hoist_buffers import hoisted
from .products import multiplied
from .replace_attributes import replace_attributes

BORROWED = """
struct Borrowed {
  AtenTensorHandle handle;
  void* data = nullptr;
  explicit Borrowed(AtenTensorHandle owner) : handle(owner) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle, &data));
  }
  operator AtenTensorHandle() const { return handle; }
  AtenTensorHandle get() const { return handle; }
  void* data_ptr() const { return data; }
  void reset() {}
};
"""


@contextlib.contextmanager
def borrowing_loops() -> Iterator[None]:
    """Write loops for the CPU in the block as described above, and products by our kernel, for versions of torch we know."""
    if not torch.__version__.startswith(VERSIONS):
        yield
        return
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    stock: Any = CppWrapperCpu.codegen_while_loop

    def codegen_while_loop(self: Any, loop: Any, stack_output: bool = False) -> None:
        if stack_output or not _tensors_only(loop):
            stock(self, loop, stack_output)
        else:
            _write_loop(self, loop)

    generate: Any = CppWrapperCpu.generate

    def hoisting(self: Any, is_inference: bool) -> Any:
        code, *rest = generate(self, is_inference)
        code.value = multiplied(hoisted(code.value))
        return code, *rest

    with replace_attributes(CppWrapperCpu, {"codegen_while_loop": codegen_while_loop, "generate": hoisting}):
        yield


def _tensors_only(loop: Any) -> bool:
    from torch._inductor import ir

    graphs = (loop.cond_subgraph.graph, loop.body_subgraph.graph)
    predicate = graphs[0].graph_outputs[0]
    inputs = [value for graph in graphs for value in graph.graph_inputs.values()]
    return all(isinstance(value, ir.TensorBox) for value in inputs) and not isinstance(
        predicate, ir.ShapeAsConstantBuffer
    )


def _write_loop(code: Any, loop: Any) -> None:
    """Write the loop: slots that hold the carry, the other inputs once before it, then condition and body in turn."""
    from torch._inductor.codegen.wrapper import EnterSubgraphLine, ExitSubgraphLine
    from torch._inductor.virtualized import V

    if "struct Borrowed" not in code.header.getvalue():
        code.header.splice(BORROWED)
    # An output that the loop writes in place has its memory already; reusing a buffer for it would declare it again.
    V.graph.never_reuse_buffers.update(output.get_name() for output in loop.mutation_outputs)
    slots = code._get_while_loop_carried_output_names(loop)
    condition, body = loop.cond_subgraph.graph, loop.body_subgraph.graph
    for value, slot in zip(loop.carried_inputs, slots, strict=True):
        _own(code, slot, value.codegen_reference())
    for number, value in enumerate(loop.additional_inputs):
        kept = f"{loop.get_name()}_input_{number}"
        _own(code, kept, value.codegen_reference())
        for graph in (condition, body):
            code.writeline(f"Borrowed {list(graph.graph_inputs)[len(slots) + number]}({kept});")
    code.writeline("while (1) {")
    code.writeline(EnterSubgraphLine(code, condition))
    for name, slot in zip(condition.graph_inputs, slots, strict=False):
        code.writeline(f"Borrowed {name}({slot});")
    _inline(code, condition)
    goes_on = f"{loop.get_name()}_goes_on"
    code.codegen_tensor_item(torch.bool, condition.graph_outputs[0].codegen_reference(), goes_on)
    code.writeline(f"if (!{goes_on}) break;")
    code.writeline(ExitSubgraphLine(code))
    code.writeline(EnterSubgraphLine(code, body))
    _write_body(code, body, slots)
    code.writeline(ExitSubgraphLine(code))
    code.writeline("}")


def _write_body(code: Any, body: Any, slots: list[str]) -> None:
    """Write one iteration. An input is its slot itself, unless an output elsewhere is made of it: the slot may change first."""
    inputs = list(body.graph_inputs)[: len(slots)]
    changed = [
        (output, slot)
        for output, own, slot in zip(body.graph_outputs, inputs, slots, strict=True)
        if not _is(output, own)
    ]
    elsewhere = {output.get_name() for output, _ in changed}
    for name, slot in zip(inputs, slots, strict=True):
        if name in elsewhere:
            _own(code, name, slot)
        else:
            code.writeline(f"auto& {name} = {slot};")
    _inline(code, body)
    references = [output.codegen_reference() for output, _ in changed]
    # The compiler merges equal constants: the first slot takes the tensor over, so the others need copies before.
    repeated = {slot for number, (_, slot) in enumerate(changed) if references[number] in references[:number]}
    for reference, (_, slot) in zip(references, changed, strict=True):
        if slot in repeated:
            _copy(code, f"{slot}_copy", reference)
    for reference, (_, slot) in zip(references, changed, strict=True):
        code.writeline(f"{slot}.reset();")
        code.writeline(f"{slot} = std::move({f'{slot}_copy' if slot in repeated else reference});")


def _is(output: Any, name: str) -> bool:
    """Return whether an output is the input of this name unchanged, not a view of it."""
    from torch._inductor import ir

    while isinstance(output, ir.TensorBox | ir.StorageBox):
        output = output.data
    return not isinstance(output, ir.BaseView) and output.get_name() == name


def _own(code: Any, name: str, source: str) -> None:
    code.writeline(f"AtenTensorHandle {name}_handle;")
    code.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out({source}, &{name}_handle));")
    code.writeline(f"RAIIAtenTensorHandle {name}({name}_handle);")


def _copy(code: Any, name: str, source: str) -> None:
    code.writeline(f"AtenTensorHandle {name}_handle;")
    code.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_clone({source}, &{name}_handle));")
    code.writeline(f"RAIIAtenTensorHandle {name}({name}_handle);")


def _inline(code: Any, graph: Any) -> None:
    from torch._inductor.virtualized import V

    try:
        code.push_codegened_graph(graph)
        parent = V.graph
        with V.set_graph_handler(graph):
            graph.codegen_subgraph(parent_graph=parent)
    finally:
        code.pop_codegened_graph()
