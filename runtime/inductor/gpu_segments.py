"""Programs for a GPU: the operations between scans are compiled as kernels, and each scan is a loop over its compiled body.

The compiler's own loop asks the GPU in every iteration for its condition, and launches every kernel by itself. Here the body of
an outermost scan, with all loops inside it, is captured once as a CUDA graph, and an iteration is one replay of it. The
graph's memory is the program's: one thread at a time may call a program on a GPU.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

SCAN = torch.ops.higher_order.scan
IOTA = torch.ops.prims.iota.default
Body = Callable[[list[Any]], Sequence[Any]]  # (carry, a row of each x, the rest) -> (carry, a row of each output)
Loop = Callable[[Body], Callable[[list[Tensor], list[Tensor], list[Any]], list[Tensor]]]  # (carry, xs, the rest)


def segmented(graph: GraphModule, inputs: list[Any]) -> Any:
    """Compile a traced graph: a backend of `torch.compile`, for functions whose inputs require no gradient."""
    from torch._inductor.decomposition import select_decomp_table

    def lower(traced: GraphModule, examples: Sequence[Any]) -> Any:
        run = _lowered(traced, examples, capture_loop)
        return make_boxed_func(lambda *values: run(list(values)))

    return aot_autograd(fw_compiler=lower, decompositions=select_decomp_table())(graph, inputs)


def _lowered(graph: GraphModule, examples: Sequence[Any], loop: Loop) -> Body:
    """Return the graph's function of a list of inputs; `loop` makes the function of each scan that stands in it."""
    parts = _parts(graph)
    if not any(node.target in (SCAN, IOTA) for node in parts):
        return _kernels(graph, examples)
    whole = split_module(graph, torch.nn.Module(), lambda node: parts[node], keep_original_order=True)
    for node in whole.graph.nodes:
        if node.op == "call_module":
            piece = getattr(whole, node.target)
            scans = [inner for inner in piece.graph.nodes if inner.target is SCAN]
            if any(inner.target is IOTA for inner in piece.graph.nodes):
                run = _ranges(piece, once=loop is unrolled)
            else:
                run = _scan(piece, scans[0], loop) if scans else _segment(piece)
            node.op, node.target = "call_function", run
    whole.recompile()
    return lambda inputs: whole(*inputs)


def _ranges(piece: GraphModule, *, once: bool) -> Callable[..., Any]:
    """Return the function of a part that makes ranges of numbers.

    In a body, whose outputs are copied, they are made `once`; at the top they may be outputs, and then the caller's own.
    """

    def ranges() -> Any:
        return piece()

    return functools.cache(ranges) if once else ranges


def _parts(graph: GraphModule) -> dict[Node, int]:
    """Return the number of each operation's part: one for each scan with the reading of its outputs, one for all between two.

    Ranges of numbers become the first part: the compiler takes a range times a constant for a place in memory, and computes it
    in 32 bits, too few for the multipliers of Philox (torch 2.11: "Scalar 3528531795 is out of range for type int32").
    """
    operations = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    for node in operations:
        if node.target is IOTA:
            operations[0].prepend(node)
    parts, number = dict[Node, int](), 1
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node.target is IOTA:
            parts[node] = 0
        elif node.target is SCAN:
            parts[node], number = number + 1, number + 2
        elif node.target is operator.getitem and node.args[0].target is SCAN:
            parts[node] = parts[node.args[0]]
        else:
            parts[node] = number
    return parts


def _placeholders(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _output(graph: GraphModule) -> Node:
    output: Node = graph.graph.output_node()
    return output


def _segment(piece: GraphModule) -> Callable[..., Any]:
    output, examples = _output(piece), [node.meta["val"] for node in _placeholders(piece)]
    single = not isinstance(output.args[0], tuple | list)
    if single:
        output.args = ((output.args[0],),)
        piece.recompile()
    run = _kernels(piece, examples)
    return (lambda *inputs: run(list(inputs))[0]) if single else (lambda *inputs: run(list(inputs)))


def _kernels(graph: GraphModule, examples: Sequence[Any]) -> Body:
    """Compile operations without scans; outputs have the strides of the traced ones, as the parts that read them expect."""
    from torch._inductor.compile_fx import compile_fx_inner, record_original_output_strides

    outputs: Any = _output(graph).args[0]
    _output(graph).meta["user_visible_output_idxs"] = range(len(outputs))
    record_original_output_strides(graph)
    with tracing(TracingContext(detect_fake_mode(examples))):
        compiled: Body = compile_fx_inner(graph, examples)
    return compiled


def _scan(piece: GraphModule, node: Node, loop: Loop) -> Callable[..., Any]:
    """Return the function of a part that holds a scan and nothing else: its inputs -> those outputs of it that are read."""
    holder, *groups = cast("tuple[Any, ...]", node.args)
    body: GraphModule = getattr(piece, holder.target)
    examples = [inner.meta["val"] for inner in _placeholders(body)]
    iterate = _lowered(body, examples, unrolled)
    run = loop(lambda values: iterate(_laid(values, examples)))
    places = {inner: place for place, inner in enumerate(_placeholders(piece))}
    carry, xs, rest = ([places[inner] for inner in group] for group in groups)
    read: Any = _output(piece).args[0]
    several = isinstance(read, tuple | list)
    outputs: Sequence[Node] = read if several else (read,)
    numbers, layouts = [cast("int", one.args[1]) for one in outputs], [one.meta["val"] for one in outputs]

    def scan(*inputs: Any) -> Any:
        found = run(*([inputs[place] for place in group] for group in (carry, xs, rest)))
        chosen = _laid([found[number] for number in numbers], layouts)
        return chosen if several else chosen[0]

    return scan


def _laid(values: Sequence[Any], examples: Sequence[Any]) -> list[Any]:
    """Return the values in the strides of the traced ones, which compiled parts rely on.

    A scan under vmap is traced with members in any dimension of its carry, and another one after an iteration.
    """
    return [
        value
        if not isinstance(value, Tensor) or value.stride() == like.stride()
        else value.new_empty_strided(value.shape, like.stride()).copy_(value)
        for value, like in zip(values, examples, strict=True)
    ]


def unrolled(body: Body) -> Callable[[list[Tensor], list[Tensor], list[Any]], list[Tensor]]:
    """Return the loop that calls the body once for each row of the xs."""

    def run(carry: list[Tensor], xs: list[Tensor], rest: list[Any]) -> list[Tensor]:
        size, rows = len(carry), []
        for place in range(xs[0].shape[0]):
            result = body([*carry, *(x[place] for x in xs), *rest])
            carry = list(result[:size])
            rows.append(result[size:])
        return [*carry, *(torch.stack(column) for column in zip(*rows, strict=True))]

    return run


def capture_loop(body: Body) -> Callable[[list[Tensor], list[Tensor], list[Any]], list[Tensor]]:
    """Return the loop that captures the body on its first call, and replays it for each row of the xs.

    The captured body reads its inputs from memory of its own, into which it writes the carry at its end. With a tensor of the
    CPU among the inputs nothing is captured: a graph would keep the number that it had.
    """
    captured = list[_Captured]()

    def run(carry: list[Tensor], xs: list[Tensor], rest: list[Any]) -> list[Tensor]:
        if not all(leaf.is_cuda for leaf in (*carry, *xs, *rest) if isinstance(leaf, Tensor)):
            result = unrolled(body)(carry, xs, rest)
            return [leaf.clone() for leaf in result]
        if not captured:
            captured.append(_Captured(body, carry, [x[0] for x in xs], rest))
        return captured[0](carry, xs, rest)

    return run


class _Captured:
    """A body as a CUDA graph, with the memory that it reads and writes."""

    def __init__(self, body: Body, carry: list[Tensor], x: list[Tensor], rest: list[Any]) -> None:
        self.carry, self.x = [leaf.clone() for leaf in carry], [leaf.clone() for leaf in x]
        self.rest = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in rest]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(carry[0].device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # the first call loads the kernels, which cannot be captured
                body([*self.carry, *self.x, *self.rest])
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(self.graph):
                result = body([*self.carry, *self.x, *self.rest])
                self.rows = [row.clone() for row in result[len(carry) :]]
                for leaf, new in zip(self.carry, [leaf.clone() for leaf in result[: len(carry)]], strict=True):
                    leaf.copy_(new)

    def __call__(self, carry: list[Tensor], xs: list[Tensor], rest: list[Any]) -> list[Tensor]:
        for own, leaf in zip([*self.carry, *self.rest], [*carry, *rest], strict=True):
            if isinstance(leaf, Tensor):
                own.copy_(leaf)
        count = xs[0].shape[0]
        columns = [row.new_empty((count, *row.shape)) for row in self.rows]
        for place in range(count):
            for own, x in zip(self.x, xs, strict=True):
                own.copy_(x[place])
            self.graph.replay()
            for column, row in zip(columns, self.rows, strict=True):
                column[place].copy_(row)
        return [*(leaf.clone() for leaf in self.carry), *columns]
