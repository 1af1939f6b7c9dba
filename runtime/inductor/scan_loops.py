"""Scans as loops: the compiler's pass for it traces the body of each again, and those of scans inside it; ours copies it."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental import proxy_tensor

from .in_place import LOOP, write_in_place
from .replace_attributes import replace_attributes

SCAN = torch.ops.higher_order.scan


def copying(stock: Callable[[GraphModule], None]) -> Callable[[GraphModule], None]:
    """Return the pass that makes loops of a graph's scans: `stock`, with a stand-in for each body while it traces."""

    def decompose(graph: GraphModule) -> None:
        bodies: dict[Callable[..., Any], GraphModule] = {}
        stand_ins = dict[str, GraphModule]()
        single: list[Node] = []
        for node in graph.graph.find_nodes(op="call_function", target=SCAN):
            single += list(node.users) if len(node.meta["val"]) == 1 else []
            name = str(node.args[0].target)
            body = getattr(graph, name)
            function = _standing_for(body)
            stand_ins[name], bodies[function] = _calling(function, body), body
        known = set(graph.graph.find_nodes(op="call_function", target=LOOP))
        with replace_attributes(graph, stand_ins):
            stock(graph)
        for user in single:  # the pass puts a scan's only result in the place of the list that it is in
            user.replace_all_uses_with(user.args[0])  # type: ignore[arg-type]
            graph.graph.erase_node(user)
        made = [node for node in graph.graph.find_nodes(op="call_function", target=LOOP) if node not in known]
        for node in made:
            whole = getattr(graph, str(node.args[1].target))
            for call in [one for one in whole.graph.nodes if one.target in bodies]:
                _inline(whole, call, bodies[call.target])
        write_in_place(graph, made)

    return decompose


def _standing_for(body: GraphModule) -> Callable[..., Any]:
    """Return a function that is traced as one node, whose results have the shapes of the body's."""
    values = [node.meta["val"] for node in _results(body)]

    def body_of_scan(*inputs: Any) -> Any:
        with proxy_tensor.disable_proxy_modes_tracing():
            outputs = [
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                for value in values
            ]
        mode: Any = proxy_tensor.get_proxy_mode()
        if mode is None:
            return outputs
        proxies = pytree.tree_map(mode.tracer.unwrap_proxy, inputs)
        proxy = mode.tracer.create_proxy("call_function", body_of_scan, proxies, {})
        return proxy_tensor.track_tensor_tree(outputs, proxy, constant=None, tracer=mode.tracer)

    return body_of_scan


def _calling(function: Callable[..., Any], body: GraphModule) -> GraphModule:
    """Return a graph with the inputs of the body that calls the function."""
    graph = Graph()
    inputs = [graph.placeholder(node.name) for node in body.graph.find_nodes(op="placeholder")]
    graph.output(graph.call_function(function, tuple(inputs)))
    return GraphModule({}, graph)


def _results(graph: GraphModule) -> list[Any]:
    output: Any = next(iter(graph.graph.find_nodes(op="output")))
    return list(output.args[0])


def _inline(whole: GraphModule, call: Node, body: GraphModule) -> None:
    """Put the nodes of a body in the place of the node that stands for it."""
    given = iter(call.args)
    known: dict[Node, Any] = {}
    with whole.graph.inserting_before(call):
        for node in body.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "get_attr":
                name = f"{node.target}_{sum(1 for _ in whole.named_modules())}"
                setattr(whole, name, getattr(body, str(node.target)))
                known[node] = whole.graph.get_attr(name)
                known[node].meta = dict(node.meta)
            elif node.op != "output":
                known[node] = whole.graph.node_copy(node, lambda one: known[one])
                known[node].meta["original_aten"] = node.target  # kernels are named after it
    results = [known[node] for node in _results(body)]
    for user in list(call.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
        whole.graph.erase_node(user)
    whole.graph.erase_node(call)
    whole.recompile()
