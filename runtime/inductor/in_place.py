"""Writes in place: a tensor that a loop carries and only writes rows into keeps its memory, however large it is.

A write out of place copies its tensor, which a loop does in each iteration. In the body of a loop it may go into the memory of
the carry if every reader of the old value comes before it. What enters the loop is copied once before it, unless it is an outer
loop's carry of which the same holds, or an argument that the caller gave up. Where that cannot be shown, nothing changes.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

aten = torch.ops.aten
LOOP = torch.ops.higher_order.while_loop
WRITES: dict[Any, Any] = {
    aten.index_put.default: aten.index_put_.default,  # what `index_copy` and `index_add` become, too
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
}
IN_PLACE = frozenset(WRITES.values())
UNDECLARED = (aten._unsafe_view.default, torch.ops.prims.convert_element_type.default)  # may be views in generated code
COPY = aten.clone.default
IN_ONE_PIECE: dict[str, Any] = {"memory_format": torch.contiguous_format}

DONATED = "purestep_donated"  # of an input: its memory may be written to
WRITTEN = (
    "purestep_written"  # of a node or a loop's body: places of the arguments, of a loop's carries, that it writes to
)
SHARED = "purestep_shared"  # of a loop: for each result, places of the operands whose memory it may have
ENTRY = "purestep_entry"  # of a copy before a loop: it can go if the loop may write to its source


def write_in_place(graph: GraphModule, loops: Iterable[Any]) -> None:
    """Let the new loops of a graph write into their carries, and the graph itself into inputs that were given up."""
    for loop in loops:
        body: GraphModule = getattr(graph, str(loop.args[1].target))
        inputs = _inputs(body)
        carried: list[Any] = list(loop.args[2])
        written = tuple(place for place in range(len(carried)) if _taken_over(body, inputs[place], place))
        if written:
            for place in written:
                with graph.graph.inserting_before(loop):
                    carried[place] = _copied(carried[place])
                carried[place].meta[ENTRY] = True
            loop.args = (*loop.args[:2], tuple(carried), *loop.args[3:])
            loop.meta[WRITTEN] = body.meta[WRITTEN] = written
        places = {node: place for place, node in enumerate(inputs)}
        loop.meta[SHARED] = [[places[one] for one in _memory(node) if one in places] for node in _results(body)]
        body.recompile()
    for own in _inputs(graph):
        for place in range(len(_results(graph))) if own.meta.get(DONATED) else ():
            if _taken_over(graph, own, place):
                break


def lowered(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that generates code for a node: `stock`, after all that reads the old value of what it writes to.

    Code for a reader is generated lazily, and could otherwise stand after the write, or in one loop with it.
    """

    def call_function(code: Any, target: Any, arguments: Any, named: Any) -> Any:
        targets = arguments[2] if target is LOOP else arguments
        for place in code.current_node.meta.get(WRITTEN, ()):
            targets[place].realize()
            code.mark_buffer_mutated(targets[place].get_name())
        return stock(code, target, arguments, named)

    return call_function


def mutated(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for what a body's inputs share, and which of them it writes to: `stock`, and writes of loops in it."""

    def check(graph: GraphModule, fakes: Any) -> Any:
        *shared, places = stock(graph, fakes)
        if WRITTEN in graph.meta:
            inputs = {node: place for place, node in enumerate(_inputs(graph))}
            written = {root for node in graph.graph.nodes for one in _written(node) for root in _memory(one)}
            places = sorted(inputs[root] for root in written if root in inputs)
        return *shared, places

    return check


def with_true_memory(stock: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return the compiler's own pass for writes in place: `stock`, which is told of which memory each view is.

    It looks at the storages of stand-ins, and a view of a copy that an earlier pass has removed still has the copy's. It also
    lets a write read a part of what it writes to.
    """

    def reinplace(updater: Any, graph: Any) -> None:
        for node in graph.nodes:
            value = node.meta.get("val")
            sources = [one for one in _sources(node) if isinstance(one.meta.get("val"), Tensor)]
            if isinstance(value, Tensor) and sources and _storage(sources[0]) != _storage(node):
                arguments, named = pytree.tree_map_only(Node, lambda one: one.meta["val"], (node.args, node.kwargs))
                node.meta["val"] = node.target(*arguments, **named)
        stock(updater, graph)
        for node in list(graph.nodes):
            if node.target in IN_PLACE:
                _set_apart(node)
                node.meta[WRITTEN] = (0,)

    return reinplace


def _storage(node: Any) -> int:
    return int(node.meta["val"].untyped_storage()._cdata)


def _taken_over(graph: GraphModule, own: Any, place: int) -> bool:
    """Make the result at a place one that is written into the memory of an input; return False where that cannot be."""
    result = _results(graph)[place]
    values = _values(own, result) if isinstance(result, Node) else []
    if not any(map(_write, values)) or _layout(result) != _layout(own) or not _ordered(graph, values, place):
        return False
    for value in values[1:]:
        write = _write(value)
        if write is None:
            value.replace_all_uses_with(value.args[0])
            graph.graph.erase_node(value)
        elif write.target is LOOP:
            _enter(write, value.args[1])
        else:
            _set_apart(value)
            value.target = WRITES.get(value.target, value.target)
            value.meta.update(original_aten=value.target, val=own.meta["val"])  # kernels are named after the first
            value.meta[WRITTEN] = (0,)
    output = _output(graph)
    results = list(output.args[0])
    results[place] = own
    output.args = (tuple(results),)
    return True


def _set_apart(write: Any) -> None:
    """Let a write take copies of arguments in the memory that it writes to: it would read in part what it wrote."""
    memory = _memory(write.args[0])

    def apart(one: Any) -> Any:
        return one if memory.isdisjoint(_memory(one)) else _copied(one)

    with write.graph.inserting_before(write):
        write.args = (write.args[0], *map_arg(write.args[1:], apart))


def _enter(loop: Any, place: Any) -> None:
    """Let the source of a copy enter the loop in the place of the copy."""
    entry = loop.args[2][place]
    if ENTRY in entry.meta:
        entry.replace_all_uses_with(entry.args[0])
        entry.graph.erase_node(entry)


def _values(own: Any, result: Any) -> list[Any]:
    """Return the values from an input to a result, each the one before with a write, or the same; none if there is another."""
    values = [result]
    while values[-1] is not own:
        before = _before(values[-1])
        if before is None:
            return []
        values.append(before)
    return values[::-1]


def _before(value: Any) -> Any:
    """Return the value that this one is a write into, or the same as; None where it is something else."""
    write, (first, *_) = _write(value), value.args or (None,)
    if write is not None and write.target is LOOP:
        entry: Any = write.args[2][value.args[1]]
        return entry.args[0] if ENTRY in entry.meta else entry
    same = value.target is COPY or value.target in UNDECLARED or _is_view(value.target)
    return first if isinstance(first, Node) and (write or (same and _layout(value) == _layout(first))) else None


def _write(value: Any) -> Any:
    """Return the node that a value is written by: itself, or a loop that writes into its carry; None for other values."""
    if value.target is operator.getitem:
        loop, place = value.args
        written = loop.target is LOOP and place in loop.meta.get(WRITTEN, ())
        return loop if written and [user.args[1] for user in loop.users].count(place) == 1 else None
    if value.target not in WRITES and value.target not in IN_PLACE:
        return None
    indices = [leaf for leaf in pytree.tree_leaves(value.args[1:2]) if isinstance(leaf, Node)]
    return value if all(leaf.meta["val"].dtype in (torch.int64, torch.int32) for leaf in indices) else None


def _ordered(graph: GraphModule, values: list[Any], place: int) -> bool:
    """Put the readers of each value before the write that follows it; return False where that is impossible."""
    output, writes = _output(graph), [_write(value) for value in values]
    for number, value in enumerate(values):
        write = next((one for one in writes[number + 1 :] if one is not None), None)
        following = values[number + 1 :][:1]
        links = {*following, *(entry for one in following for entry in _entry(one))}
        for source, reader in list(_readers(value, links)):
            if any(source is one for one in _written(reader)):
                return False
            if reader is output:
                whole = [one for one in output.args[0] if one is source]
                if write is None and source is values[-1] and len(whole) == 1:
                    continue
                if write is None or not _kept(source, reader, write, values[0]):
                    return False
            elif write is not None and not _precedes(reader, write) and not _kept(source, reader, write, values[0]):
                return False
    return _results(graph)[place] is values[-1]


def _entry(value: Any) -> Iterator[Any]:
    """Yield the copy that enters the loop which writes a value."""
    write = _write(value)
    if write is not None and write.target is LOOP:
        entry = write.args[2][value.args[1]]
        if ENTRY in entry.meta:
            yield entry


def _readers(value: Any, links: set[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of a node that may share the memory of a value, and one that reads it; without the next of the chain."""
    for user in value.users:
        if user in links:
            continue
        yield value, user
        results = list(user.users) if user.target is LOOP else [user]
        for one in results:
            if any(value is source for source in _sources(one)) and one not in links:
                yield from _readers(one, links)


def _precedes(reader: Any, write: Any) -> bool:
    """Put a reader, and what it needs, before a write; return False where that is impossible."""
    if reader is write:
        return reader.target is not LOOP  # an operation gets copies of its other arguments
    if reader < write:
        return True
    needed, waiting = {reader}, [reader]
    while waiting:
        for one in waiting.pop().all_input_nodes:
            if one is write or (write < one and _impure(one)):
                return False
            if write < one and one not in needed:
                needed.add(one)
                waiting.append(one)
    if _impure(reader):
        return False
    read = {root for one in needed for source in one.all_input_nodes for root in _memory(source)}
    node = write.next
    while node is not reader:
        if any(not read.isdisjoint(_memory(one)) for one in _written(node)):
            return False
        node = node.next
    for one in sorted(needed):
        write.prepend(one)
    return True


def _kept(source: Any, reader: Any, write: Any, own: Any) -> bool:
    """Let a reader of a small part of a value read a copy made before the write; return False where it reads more."""
    if 2 * source.meta["val"].numel() > own.meta["val"].numel() or (write < source and not _precedes(source, write)):
        return False
    with write.graph.inserting_before(write):
        copy = _copied(source)
    reader.replace_input_with(source, copy)
    return True


def _copied(source: Any) -> Any:
    copy = source.graph.call_function(COPY, (source,), IN_ONE_PIECE)
    copy.meta["val"] = source.meta["val"].clone(**IN_ONE_PIECE)
    return copy


def _layout(node: Any) -> Any:
    value = node.meta["val"]
    return value.shape, value.stride(), value.storage_offset(), value.dtype


def _memory(node: Any) -> set[Any]:
    """Return the nodes whose memory a result may have: itself, or the sources of which it is a view."""
    found, waiting = set[Any](), [node]
    while waiting:
        one = waiting.pop()
        sources = _sources(one)
        waiting += sources
        found |= set() if sources else {one}
    return found


def _sources(node: Any) -> list[Any]:
    """Return the arguments whose memory the result of a node may share."""
    if node.target is operator.getitem:
        of, place = node.args
        if of.target is not LOOP:
            return [of]
        operands = [*of.args[2], *of.args[3]]
        shared = of.meta[SHARED][place] if SHARED in of.meta else []
        return [operands[one] for one in sorted({place, *shared})]
    if node.target in UNDECLARED:
        return list(node.all_input_nodes[:1])
    return _arguments(node, lambda one: one.alias_info)


def _written(node: Any) -> list[Any]:
    """Return the arguments that a node writes to."""
    if node.target is LOOP:
        return [node.args[2][place] for place in node.meta.get(WRITTEN, ())]
    return _arguments(node, lambda one: one.alias_info and one.alias_info.is_write)


def _arguments(node: Any, chosen: Callable[[Any], Any]) -> list[Any]:
    declared = getattr(getattr(node.target, "_schema", None), "arguments", ())
    given: dict[str, Any] = {**dict(zip((one.name for one in declared), node.args, strict=False)), **node.kwargs}
    leaves = pytree.tree_leaves([given.get(one.name) for one in declared if chosen(one)])
    return [leaf for leaf in leaves if isinstance(leaf, Node)]


def _is_view(target: Any) -> bool:
    declared = getattr(getattr(target, "_schema", None), "arguments", ())
    return any(one.alias_info is not None and not one.alias_info.is_write for one in declared)


def _impure(node: Any) -> bool:
    return node.target is LOOP or bool(_written(node)) or node.op != "call_function"


def _inputs(graph: GraphModule) -> list[Any]:
    return list(graph.graph.find_nodes(op="placeholder"))


def _output(graph: GraphModule) -> Any:
    return next(iter(graph.graph.find_nodes(op="output")))


def _results(graph: GraphModule) -> list[Any]:
    return list(_output(graph).args[0])
