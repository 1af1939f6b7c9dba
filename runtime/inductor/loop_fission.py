"""Fission of a scan that is differentiated: all that does not wait for the carry is computed for all steps at once.

The operations of a step fall into three parts. The prologue needs nothing of the carry: an encoder of observations and, in the
scan backwards, the activations, which follow from the stored carries. The loop is that of which the next carry is made. The
epilogue follows from both, and no carry follows from it: the heads of a network and, backwards, the gradients of weights. Their
sum over time is one matrix product of stacked operands:

    sum over t of A_t @ B_t  =  [A_0 ... A_T] @ [B_0; ...; B_T]

Values that cross from one part to another are stacked over time, as the derivative of an unrolled loop keeps them.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch._higher_order_ops.scan import scan_op
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from .scan_derivative import Order

aten, prims = torch.ops.aten, torch.ops.prims
BATCHED: dict[Any, Callable[..., Any]] = {  # functions in the place of operations of which torch has none for a batch
    prims.convert_element_type.default: lambda x, dtype: x.to(dtype),
    prims.rev.default: torch.flip,
    operator.getitem: operator.getitem,
}
RULES = ("FuncTorchBatched", "FuncTorchBatchedDecomposition", "CompositeImplicitAutograd")
# Operations that cost no more than to load their result: each part that reads it computes it again.
CHEAP = (
    "add sub mul neg abs where eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not "
    "maximum minimum clamp clamp_min clamp_max select slice view _unsafe_view unsqueeze squeeze expand permute split "
    "split_with_sizes cat clone alias full iota scalar_tensor convert_element_type"
)
# Operations with f(x_0) + f(x_1) = f(x_0 + x_1), x the first argument.
LINEAR = "permute view _unsafe_view unsqueeze squeeze expand clone alias neg slice"
Stacks = dict[Node, Tensor]  # for all steps
Sum = Callable[[Stacks, dict[Node, Tensor]], Tensor]  # of stacked operands, and of terms that the loop has added up


def fissioned(
    graph: GraphModule,
    init: Sequence[Tensor],
    xs: Sequence[Tensor],
    captured: Sequence[Tensor],
    order: Order,
    trace: Callable[..., GraphModule],
    scan: Callable[..., Sequence[Tensor]],
) -> list[Tensor]:
    """Return (carry, ys, sums) of a scan of the graph over xs.

    `trace(function, *inputs)` returns the graph of a function, `scan(graph, init, xs, captured)` the results of its scan. Where
    `order.remat` is set, all stays in the loop, which adds sums up in its carry.
    """
    parts = _parts(graph, len(init), len(xs), order, scan)
    in_order: Callable[[Tensor], Tensor] = (lambda leaf: leaf.flip(0)) if order.reverse else (lambda leaf: leaf)
    stacks = dict(zip(parts.xs, xs, strict=True))
    known = dict(zip(parts.captured, captured, strict=True))
    stacks |= parts.at_once(parts.prologue, parts.entering, stacks, known)
    rows = [in_order(stacks[node]).contiguous() for node in parts.read] or [torch.zeros(len(xs[0]))]
    start = [*init, *(torch.zeros_like(_value(node)) for node in parts.totals)]
    body = trace(parts.iteration, *(leaf.clone() for leaf in start), *(leaf[0].clone() for leaf in rows), *captured)
    found = scan(body, start, rows, captured)
    final, added, leaving = _split(found, len(init), len(parts.totals))
    stacks |= dict(zip(parts.written, map(in_order, leaving), strict=True))
    stacks |= parts.at_once(parts.epilogue, parts.stacked, stacks, known)
    totals = dict(zip(parts.totals, added, strict=True))
    return [*final, *(stacks[node] for node in parts.ys), *(total(stacks, totals) for total in parts.sums)]


@frozen
class _Parts:
    """The operations of a step by the part that they belong to, in the order of the graph, and the values between them."""

    graph: GraphModule
    scan: Callable[..., Sequence[Tensor]]
    carry: list[Node]
    xs: list[Node]
    captured: list[Node]
    results: list[Node]  # the next carry
    ys: list[Node]
    sums: list[Sum]
    stacked: list[Node]  # that ys and sums are made of
    totals: list[Node]  # terms that the loop adds up
    prologue: list[Node]
    entering: list[Node]  # from the prologue to the others
    loop: list[Node]
    read: list[Node]  # by the loop, of xs and what enters
    written: list[Node]  # by the loop, for the epilogue
    epilogue: list[Node]

    def iteration(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return one step of the loop: (carry, totals, what it reads, captured) to (carry, totals, what it writes)."""
        carry, totals, rest = _split(inputs, len(self.carry), len(self.totals))
        read, captured = rest[: len(rest) - len(self.captured)], rest[len(rest) - len(self.captured) :]
        known = dict(
            zip((*self.carry, *self.read, *self.captured), (*carry, *read[: len(self.read)], *captured), strict=True)
        )
        self.run(self.loop, known)
        added = [total + known[node] for total, node in zip(totals, self.totals, strict=True)]
        carry = [known[node].contiguous() for node in self.results]  # a loop's carry keeps its strides
        return (*carry, *added, *(known[node] for node in self.written))

    def at_once(self, nodes: Sequence[Node], wanted: Sequence[Node], stacks: Stacks, known: Stacks) -> Stacks:
        """Return those of the wanted values that no stack has yet, computed for all steps."""
        missing = [node for node in wanted if node not in stacks]
        if not missing:
            return {}
        used = {*missing, *(source for node in nodes for source in node.all_input_nodes)}
        read = [node for node in stacks if node in used] or list(stacks)[:1]

        def step(*rows: Tensor) -> tuple[Tensor, ...]:
            values = known | dict(zip(read, rows, strict=True))
            self.run(nodes, values)
            return tuple(values[node] for node in missing)

        return dict(zip(missing, torch.func.vmap(step)(*(stacks[node] for node in read)), strict=True))

    def run(self, nodes: Sequence[Node], known: dict[Node, Any]) -> None:
        """Add the values of the nodes to those that are known."""
        for node in nodes:
            if node.op == "get_attr":
                known[node] = getattr(self.graph, str(node.target))
                continue
            function: Any = self.scan if node.target is scan_op else BATCHED.get(node.target, node.target)
            known[node] = function(*map_arg(node.args, known.__getitem__), **map_arg(node.kwargs, known.__getitem__))


def _parts(graph: GraphModule, carries: int, inputs: int, plan: Order, scan: Callable[..., Sequence[Tensor]]) -> _Parts:
    order = list(graph.graph.nodes)
    given = [node for node in order if node.op == "placeholder"]
    carry, xs, captured = _split(given, carries, inputs)
    outputs: Any = order[-1].args[0]
    results, ys, summed = _split(outputs, carries, len(outputs) - carries - (plan.sums or 0))
    operands, totals = list[Node](), list[Node]()
    formulas = [_sum(node, operands, totals, whole=plan.remat) for node in summed]
    stacked = _unique([*ys, *operands])

    waiting = set(carry)  # all that waits for the carry, or cannot be computed for all steps at once
    for node in order:
        alone = plan.remat or not _has_batches(node) or waiting & set(node.all_input_nodes)
        if alone and node.op not in ("placeholder", "output"):
            waiting.add(node)
    roots = [
        *results,
        *totals,
        *(ys if plan.remat else ()),
        *(node for node in waiting if node not in carry and not _has_batches(node)),
    ]
    stored = {node for node in order if node.op == "call_function" and node not in waiting and _is_worth_storing(node)}
    looping = {node for node in _needed(roots, stop=given) if node in waiting}
    looping |= {node for node in order if node.target is operator.getitem and node.args[0] in looping}
    loop = _needed([*roots, *looping], stop=[*given, *stored])
    epilogue = _needed(stacked, stop=[*given, *stored, *looping])
    later = {*stacked, *(source for node in epilogue for source in node.all_input_nodes)}
    now = {*roots, *(source for node in loop for source in node.all_input_nodes)}
    entering = [node for node in order if node in stored and node in later | now]
    return _Parts(
        graph=graph,
        scan=scan,
        carry=carry,
        xs=xs,
        captured=captured,
        results=results,
        ys=ys,
        sums=formulas,
        stacked=stacked,
        totals=totals,
        prologue=_sorted(_needed(entering, stop=given), order),
        entering=entering,
        loop=_sorted(loop, order),
        read=[node for node in (*xs, *entering) if node in now],
        written=[node for node in order if node in later and (node in looping or node in carry)],
        epilogue=_sorted(epilogue, order),
    )


def _sum(node: Any, operands: list[Node], totals: list[Node], *, whole: bool) -> Sum:
    """Return the sum over time of a node as a function of stacks of the operands and totals, which are added to the lists.

    With `whole` it is a total itself.
    """
    name, args = "" if whole else _name(node), node.args
    if name in ("mm", "bmm"):
        left, right = args[:2]
        operands += [left, right]
        return lambda stacks, _: node.target(stacks[left].movedim(0, -2).flatten(-2), _rows(stacks[right]))
    if name == "sum" and len(args) > 1:
        term, dims = args[:2]
        operands.append(term)
        axes = [0, *(axis % _value(term).ndim + 1 for axis in dims)]
        return lambda stacks, _: stacks[term].sum(axes, *args[2:])
    if name == "add" and all(isinstance(one, Node) for one in args) and not node.kwargs:
        one, other = (_sum(part, operands, totals, whole=False) for part in args)
        return lambda stacks, added: one(stacks, added) + other(stacks, added)
    if name == "cat":
        parts = [_sum(part, operands, totals, whole=False) for part in args[0]]
        return lambda stacks, added: node.target([part(stacks, added) for part in parts], *args[1:])
    if name in LINEAR.split() or (name == "constant_pad_nd" and not any(args[2:])):
        inner = _sum(args[0], operands, totals, whole=False)
        return lambda stacks, added: node.target(inner(stacks, added), *args[1:], **node.kwargs)
    if name == "slice_scatter" and _is_zero(args[0]):
        inner, base = _sum(args[1], operands, totals, whole=False), _value(args[0])
        return lambda stacks, added: node.target(torch.zeros_like(base), inner(stacks, added), *args[2:], **node.kwargs)
    totals.append(node)
    return lambda _, added: added[node]


def _rows(stack: Tensor) -> Tensor:
    """Return matrices one below the other: [T, ..., K, N] -> [..., T * K, N]."""
    return stack.movedim(0, -3).flatten(-3, -2)


def _is_zero(node: Any) -> bool:
    return _name(node) == "full" and not node.args[1]


def _name(node: Any) -> str:
    """Return the name of an operation without that of its form."""
    return str(getattr(node.target, "__name__", "")).split(".")[0]


def _value(node: Node) -> Any:
    return node.meta["val"]


def _is_worth_storing(node: Any) -> bool:
    if node.target is operator.getitem:
        return _name(node.args[0]) not in CHEAP.split()
    return _name(node) not in CHEAP.split() and isinstance(_value(node), Tensor)


def _has_batches(node: Any) -> bool:
    """Return whether an operation can be computed for all steps at once."""
    if node.target in BATCHED or not isinstance(node.target, torch._ops.OpOverload):
        return node.target in BATCHED or node.op == "placeholder"
    name = str(node.target.name())  # type: ignore[no-untyped-call]
    return not node.all_input_nodes or any(torch._C._dispatch_has_kernel_for_dispatch_key(name, rule) for rule in RULES)


def _needed(roots: Iterable[Node], stop: Collection[Node]) -> set[Node]:
    """Return the roots and all that they are computed of, up to nodes that are given."""
    given, found, open_nodes = set(stop), set[Node](), list(roots)
    while open_nodes:
        node = open_nodes.pop()
        if node not in given and node not in found:
            found.add(node)
            open_nodes += node.all_input_nodes
    return found


def _sorted(nodes: Collection[Node], order: Sequence[Node]) -> list[Node]:
    return [node for node in order if node in nodes]


def _unique(nodes: Iterable[Node]) -> list[Node]:
    return list(dict.fromkeys(nodes))


def _split(leaves: Sequence[Any], first: int, second: int) -> tuple[list[Any], list[Any], list[Any]]:
    return list(leaves[:first]), list(leaves[first : first + second]), list(leaves[first + second :])
