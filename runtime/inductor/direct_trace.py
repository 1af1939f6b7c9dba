"""Programs traced by running them once on stand-in tensors: no analysis of bytecode, each body of a scan run once.

The compiler's usual way interprets Python's bytecode, then runs the graph that it found again to take derivatives and to remove
mutation. Our functions are pure and need neither: `traced` runs them under the tracer that the usual way ends in. Where that
cannot give the same program (`Untraced` says why) the usual way is taken.
"""

import contextlib
import importlib
import operator
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import define, frozen
from torch import Tensor
from torch._C._functorch import TransformType, _add_batch_dim, peek_interpreter_stack
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._functorch.vmap import restore_vmap, unwrap_batched
from torch._higher_order_ops.scan import scan_op
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

from . import philox
from .direct_library import Computed, Passed
from .loop_fission import fissioned
from .replace_attributes import replace_attributes
from .scan_derivative import Body, NoDerivative, Order, differentiable, unwatched

aten = torch.ops.aten
SCANS = importlib.import_module("torch._higher_order_ops.scan")  # the name in its package is that of the function
STOCK_SCAN = SCANS.scan
FRESH = (aten.lift_fresh_copy.default, aten.lift_fresh.default)  # nodes that make a tensor of a Python number or list
READS = frozenset(
    getattr(Tensor, name)
    for name in ("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__")
)
ONE_HOT = torch.nn.functional.one_hot


class Untraced(Exception):
    """A reason why a function is left to the compiler's usual way."""


@frozen
class Traced:
    """A graph of flat tensors, stand-ins for its inputs, and the way back to what the function returns."""

    graph: GraphModule
    inputs: list[FakeTensor]
    captured: list[Tensor]  # the last of the inputs: tensors that the function closes over
    mode: FakeTensorMode
    outputs: tuple[Any, ...]  # for each leaf of the result: Computed, Passed, or the value itself
    structure: pytree.TreeSpec


def traced(function: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> Traced:
    """Return the graph of `function` for tensors like `inputs`; leaves of it that are no tensors are constants.

    Tensors that the function closes over become inputs, read in each call. Raises: Untraced (an operation in place, a
    derivative through a scan, a value of a tensor that Python needs), and the function's own errors.
    """
    tensors = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
    if any(leaf.requires_grad for leaf in tensors):
        raise Untraced("an argument that requires a gradient")
    _require_plain(tensors)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    fakes = [mode.from_tensor(leaf) for leaf in tensors]
    found: dict[str, Any] = {}

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(tensors)
        whole = [next(remaining) if isinstance(leaf, Tensor) else leaf for leaf in inputs]
        leaves, structure = pytree.tree_flatten(function(whole))
        places, computed = _places(leaves, tensors)
        found.update(structure=structure, places=places)
        return tuple(computed)

    scans, drawn = _Scans(mode), _generators()

    def graph_of(run: Callable[..., Any], *given: FakeTensor) -> GraphModule:
        options: Any = {"_allow_non_fake_inputs": True, "_disable_torch_fn_metadata_mode": True}
        with scans.caught(), philox.trace_blocks_whole(), _NothingRead(), mode, torch.no_grad():
            graph: GraphModule = proxy_tensor.make_fx(run, _decompositions(), tracing_mode="fake", **options)(*given)
        return graph

    graph = graph_of(flat, *fakes)
    captured = scans._lifted(graph, len(fakes))
    graph = _without_writes(graph, graph_of)
    _require_pure(graph)
    graph.recompile()
    if _generators() != drawn:
        raise Untraced("a number drawn from Python's or NumPy's generator")
    _require_plain(captured)
    fakes += [mode.from_tensor(tensor) for tensor in captured]
    return Traced(graph, fakes, captured, mode, found["places"], found["structure"])


def _require_plain(tensors: Sequence[Tensor]) -> None:
    """Raise Untraced for tensors of subclasses, stand-ins of another trace among them, and for those of other devices."""
    for tensor in tensors:
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
            raise Untraced(f"a tensor that is a {type(tensor).__name__} on {tensor.device}")


def _generators() -> tuple[Any, ...]:
    """Return the states of the generators of numbers whose draws would become constants of the program."""
    numpy = sys.modules.get("numpy")
    name, words, *rest = numpy.random.get_state() if numpy else ("", b"")
    return random.getstate(), name, bytes(words), rest


def _places(leaves: Sequence[Any], inputs: Sequence[Tensor]) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Return the source of each leaf, and the tensors among them that are to be computed, each once and none an input."""
    known: dict[int, Any] = {id(tensor): Passed(k) for k, tensor in enumerate(inputs)}
    shared = {_storage(tensor) for tensor in inputs}
    computed: list[Tensor] = []
    places = []
    for leaf in leaves:
        if isinstance(leaf, Tensor) and id(leaf) not in known:
            known[id(leaf)] = Computed(len(computed))
            computed.append(leaf.clone() if _storage(leaf) in shared else leaf)
        places.append(known[id(leaf)] if isinstance(leaf, Tensor) else leaf)
    return tuple(places), computed


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _decompositions() -> Any:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Return what `torch.nn.functional.one_hot` does, which itself reads the greatest number: int64 [*] -> int64 [*, n].

    Raises: Untraced without a number of classes, which would be that number plus 1.

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0, 0, 1],
            [1, 0, 0]])
    """
    if num_classes < 1:
        raise Untraced("one_hot without its number of classes")
    nothing = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return nothing.scatter(-1, tensor[..., None], 1)


class _NothingRead(TorchFunctionMode):
    """Refuse to read the numbers in a tensor, which would become constants of the program."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in READS:
            raise Untraced("a value of a tensor that Python needs")
        if function is ONE_HOT:
            return one_hot(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


@define
class _Scans:
    """Each scan as one node of the graph, its body traced once; what the body closes over becomes an input of it."""

    mode: FakeTensorMode

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Trace calls of `scan` in the block."""
        with (
            replace_attributes(torch.compiler, {"_is_compiling_flag": True}),
            replace_attributes(SCANS, {"scan": self.scan}),
        ):
            yield

    def scan(self, step: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
        """Stand for torch's own function of this name."""
        if proxy_tensor.get_proxy_mode() is None:  # another thread, which does not trace
            return STOCK_SCAN(step, init, xs, dim=dim, reverse=reverse)
        if dim:
            raise Untraced("a scan over an axis other than the first")
        start, carry_structure = pytree.tree_flatten(init)
        inputs, x_structure = pytree.tree_flatten(xs)
        found = []

        def body(*flat: Tensor) -> tuple[Tensor, ...]:
            carry = pytree.tree_unflatten(flat[: len(start)], carry_structure)
            carry, y = step(carry, pytree.tree_unflatten(flat[len(start) :], x_structure))
            leaves, y_structure = pytree.tree_flatten(y)
            found.append(y_structure)
            return (*pytree.tree_leaves(carry), *leaves)

        results = unwatched(
            self._lowered, body, start, inputs, Order(reverse, remat="remat" in getattr(step, "keywords", ()))
        )
        final, ys = results[: len(start)], results[len(start) :]
        return pytree.tree_unflatten(final, carry_structure), pytree.tree_unflatten(ys, found[-1])

    def _lowered(self, body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], order: Order) -> Sequence[Tensor]:
        """Take the transformations off, the innermost first."""
        if peek_interpreter_stack() is None:
            return self._node(body, init, xs, order)
        interpreter = retrieve_current_functorch_interpreter()
        if interpreter.key() == TransformType.Grad and order.sums is None:
            return differentiable(self._lowered, body, init, xs, order, interpreter.level())
        if interpreter.key() != TransformType.Vmap:
            raise NoDerivative(NoDerivative.FORWARD)
        size, level = interpreter.batch_size(), interpreter.level()  # type: ignore[attr-defined]
        randomness = interpreter.randomness()  # type: ignore[attr-defined]
        (carry, steps), (of_carry, of_steps) = unwrap_batched((tuple(init), tuple(xs)), level)
        # The axis of the batch is the first of each x, and so the second of xs; a carry has it in any case.
        carry = [_batched(leaf, axis, size) for leaf, axis in zip(carry, of_carry, strict=True)]
        steps = [leaf if axis is None else leaf.movedim(axis, 1) for leaf, axis in zip(steps, of_steps, strict=True)]
        axes = (*(0 for _ in carry), *(None if axis is None else 0 for axis in of_steps))

        def whole(*flat: Tensor) -> tuple[Tensor, ...]:
            leaves, of_leaves = restore_vmap(body, axes, size, randomness)(*flat)
            return tuple(_batched(leaf, axis, size) for leaf, axis in zip(leaves, of_leaves, strict=True))

        with interpreter.lower():
            carry, steps = [_contiguous(leaf) for leaf in carry], [_contiguous(leaf) for leaf in steps]
            results = self._lowered(whole, carry, steps, order)
        stacked = range(len(carry), len(results) - (order.sums or 0))
        return [_add_batch_dim(leaf, int(k in stacked), level) for k, leaf in enumerate(results)]

    def _node(self, body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], order: Order) -> Sequence[Tensor]:
        tracer: Any = proxy_tensor._CURRENT_MAKE_FX_TRACER
        differentiated = order.sums is not None
        inputs = [leaf.flip(0) for leaf in xs] if order.reverse and not differentiated else xs
        with proxy_tensor.disable_proxy_modes_tracing():
            samples = [leaf.clone() for leaf in init] + [leaf[0].clone() for leaf in inputs]
        graph = tracer.trace_subgraph(body, *samples)
        captured = self._lifted(graph, len(samples))
        graph = _without_writes(graph, tracer.trace_subgraph)
        if differentiated:
            return fissioned(graph, init, xs, captured, order, tracer.trace_subgraph, self._scan_of)
        results = self._scan_of(graph, init, inputs, captured)
        return [*results[: len(init)], *(leaf.flip(0) if order.reverse else leaf for leaf in results[len(init) :])]

    def _scan_of(
        self, graph: GraphModule, init: Sequence[Tensor], xs: Sequence[Tensor], captured: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the results of a node that scans a graph with inputs (carry, x, captured)."""
        mode: Any = proxy_tensor.get_proxy_mode()
        _unshared(graph)
        graph.recompile()
        values = [_value(node) for node in _results(graph)]
        if [_kind(value) for value in values[: len(init)]] != [_kind(leaf) for leaf in init]:
            raise Untraced("a carry of a scan that changes its shape or dtype")
        name = f"scan_body_{len(list(mode.tracer.root.named_children()))}"
        mode.tracer.root.register_module(name, graph)
        arguments = (graph, list(init), list(xs), tuple(captured))
        proxies = pytree.tree_map(mode.tracer.unwrap_proxy, arguments)
        proxy = mode.tracer.create_proxy("call_function", scan_op, proxies, {}, name="scan")
        with proxy_tensor.disable_proxy_modes_tracing():
            count = xs[0].shape[0]
            outputs = [leaf.clone() for leaf in init] + [
                value.new_empty((count, *value.shape)) for value in values[len(init) :]
            ]
        return list(proxy_tensor.track_tensor_tree(outputs, proxy, constant=None, tracer=mode.tracer))

    def _lifted(self, graph: GraphModule, inputs: int) -> list[Tensor]:
        """Make inputs of the tensors that a graph closes over, and return them; a number that it makes a tensor of stays."""
        _without_dead_code(graph)
        last = [node for node in graph.graph.nodes if node.op == "placeholder"][inputs - 1]
        lifted: dict[int, tuple[Tensor, Node]] = {}
        for node in list(graph.graph.nodes):
            value = getattr(graph, str(node.target), None) if node.op == "get_attr" else None
            if not isinstance(value, Tensor):
                continue
            if isinstance(value, FakeTensor) or not _in_place_of_numbers(graph, node, value):
                if id(value) not in lifted:
                    with graph.graph.inserting_after(last):
                        last = graph.graph.placeholder(f"captured_{len(lifted)}")
                    last.meta["val"] = value if isinstance(value, FakeTensor) else self.mode.from_tensor(value)
                    lifted[id(value)] = (value, last)
                node.replace_all_uses_with(lifted[id(value)][1])
            graph.graph.erase_node(node)
        for name in [
            name for name, value in (*vars(graph).items(), *graph.named_buffers()) if isinstance(value, Tensor)
        ]:
            delattr(graph, name)  # otherwise an outer graph refers to it by this name
        return [value for value, _ in lifted.values()]


def _in_place_of_numbers(graph: GraphModule, node: Node, value: Tensor) -> bool:
    """Replace a tensor made of one number in Python by the operation that makes it; return False where it is another tensor."""
    if value.numel() != 1 or not all(user.target in FRESH for user in node.users):
        return False
    for user in list(node.users):
        with graph.graph.inserting_before(user):
            options: Any = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
            made = graph.graph.call_function(aten.full.default, (list(value.shape), _number(value)), options)
        made.meta = dict(user.meta)
        user.replace_all_uses_with(made)
        graph.graph.erase_node(user)
    return True


def _number(value: Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        return value.item()


def _without_dead_code(graph: GraphModule) -> None:
    """Erase operations whose results nothing reads; a write is kept if its memory is an input's or is read later."""
    memory = _memory(graph)
    read = _inputs(memory)
    for node in reversed(list(graph.graph.nodes)):
        written = {one for target in _written(node) for one in memory[target]}
        if node.users or (not read.isdisjoint(written) if written else node.is_impure()):
            read.update(one for argument in node.all_input_nodes for one in memory[argument])
        else:
            graph.graph.erase_node(node)


def _without_writes(graph: GraphModule, graph_of: Callable[..., GraphModule]) -> GraphModule:
    """Return the graph with writes into tensors that it made itself replaced by operations out of place.

    Raises: Untraced for a write into an input, which the caller would see.
    """
    memory = _memory(graph)
    inputs = _inputs(memory)
    writes = [node for node in memory if _written(node)]
    for node in writes:
        if any(not inputs.isdisjoint(memory[target]) for target in _written(node)):
            raise Untraced(f"the operation {node.target}, which is in place")
    writes = [node for node in writes if not _replaced_by_its_source(node, memory)]
    if not writes:
        return graph
    graph.recompile()
    values = [_value(node) for node in memory if node.op == "placeholder"]
    return graph_of(torch.func.functionalize(graph, remove="mutations"), *values)


def _replaced_by_its_source(node: Node, memory: dict[Node, set[Node]]) -> bool:
    """Erase a copy, as some derivatives make, into a like tensor of its own that nothing reads later; return if it is one."""
    if node.target is not aten.copy_.default:
        return False
    old, new = node.all_input_nodes[:2]
    shared = [one for one, sources in memory.items() if old in sources]
    later = list(memory)[list(memory).index(node) + 1 :]
    if shared != [old, node] or _kind(_value(old)) != _kind(_value(new)) or not old.users.keys().isdisjoint(later):
        return False
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return True


def _memory(graph: GraphModule) -> dict[Node, set[Node]]:
    """Return for each node those that made the memory of its result: itself, or the sources of which it is a view."""
    made: dict[Node, set[Node]] = {}
    for node in graph.graph.nodes:
        sources = (
            node.all_input_nodes if node.target is operator.getitem else _arguments(node, lambda one: one.alias_info)
        )
        made[node] = {one for source in sources for one in made[source]} or {node}
    return made


def _inputs(nodes: Iterable[Node]) -> set[Node]:
    return {node for node in nodes if node.op in ("placeholder", "get_attr")}


def _written(node: Node) -> list[Node]:
    """Return the arguments that an operation writes to."""
    return _arguments(node, lambda one: one.is_write)


def _arguments(node: Node, chosen: Callable[[Any], Any]) -> list[Node]:
    """Return the nodes among an operation's arguments whose declarations are chosen."""
    declared = getattr(getattr(node.target, "_schema", None), "arguments", ())
    given: dict[str, Any] = {**dict(zip((one.name for one in declared), node.args, strict=False)), **node.kwargs}
    leaves = pytree.tree_leaves([given.get(one.name) for one in declared if chosen(one)])
    return [leaf for leaf in leaves if isinstance(leaf, Node)]


def _require_pure(graph: GraphModule) -> None:
    """Raise Untraced for an operation that is in place, draws from torch's generator or has a result of unknown shape."""
    for part in graph.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target is not scan_op:
                raise Untraced(f"the operator {node.target}")
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise Untraced(f"the operation {node.target}, which draws from torch's generator")
            if not all(_is_sized(value) for value in pytree.tree_leaves(_value(node))):
                raise Untraced(f"the operation {node.target}, whose result has a size that is not known")
            if _written(node):
                raise Untraced(f"the operation {node.target}, which is in place")


def _is_sized(value: Any) -> bool:
    sizes = value.shape if isinstance(value, Tensor) else (value,)
    return not any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes)


def _batched(leaf: Tensor, axis: int | None, size: int) -> Tensor:
    """Return a leaf whose first axis is the batch, in memory of its own."""
    return _contiguous(leaf.unsqueeze(0).expand(size, *leaf.shape) if axis is None else leaf.movedim(axis, 0))


def _contiguous(leaf: Tensor) -> Tensor:
    return leaf.clone(memory_format=torch.contiguous_format)


def _kind(leaf: Tensor) -> tuple[Any, ...]:
    return tuple(leaf.shape), leaf.dtype


def _value(node: Any) -> Any:
    return node.meta.get("val")


def _output(graph: GraphModule) -> Any:
    return next(iter(graph.graph.find_nodes(op="output")))


def _results(graph: GraphModule) -> list[Any]:
    results: Any = _output(graph).args[0]
    return list(results)


def _unshared(graph: GraphModule) -> None:
    """Copy the outputs of a body that are its inputs, views of them, or each other."""
    output = _output(graph)
    shared = {_storage(_value(node)) for node in graph.graph.nodes if node.op == "placeholder"}
    outputs = []
    for node in _results(graph):
        result, value = node, _value(node)
        if _storage(value) in shared:
            in_one_piece: Any = {"memory_format": torch.contiguous_format}
            with graph.graph.inserting_before(output):
                result = graph.graph.call_function(aten.clone.default, (node,), in_one_piece)
            value = result.meta["val"] = value.clone(**in_one_piece)
        shared.add(_storage(value))
        outputs.append(result)
    output.args = (tuple(outputs),)
