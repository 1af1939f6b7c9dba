"""Laws of traced programs: the graph gives what the function gives, whatever numbers come later, or there is no graph.

The subject is a `Trace`: (function, inputs) -> a function of inputs, the graph run operation by operation.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.utils._pytree as pytree
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.values import seeds
from purestep.runtime.inductor import direct_trace, philox
from purestep.runtime.inductor.direct_library import Computed
from purestep.runtime.inductor.direct_trace import Traced, Untraced, traced
from purestep.runtime.inductor.replace_attributes import replace_attributes

Function = Callable[[Sequence[Tensor]], Any]
Trace = Callable[[Function, Sequence[Tensor]], Function]
SOURCE = "runtime.inductor.direct_trace: the graph of a pure function"


def interpreted(function: Function, inputs: Sequence[Tensor]) -> Function:
    """Return the graph of a function as a function. Raises: Untraced.

    >>> interpreted(lambda x: x[0] + 1, [torch.zeros(2)])([torch.ones(2)])
    tensor([2., 2.])
    """
    return _run(traced(function, inputs))


def _run(one: Traced) -> Function:
    def run(inputs: Sequence[Tensor]) -> Any:
        computed = one.graph(*inputs, *one.captured)
        leaves = [
            computed[leaf.position] if isinstance(leaf, Computed) else inputs[leaf.position] for leaf in one.outputs
        ]
        return pytree.tree_unflatten(leaves, one.structure)

    return run


# --- mutants ---
# Common errors in tracers: each changes a part of a right one while it traces.


def _with(owner: Any, name: str, wrong: Any) -> Callable[[Trace], Trace]:
    def mutant(trace: Trace) -> Trace:
        def changed(function: Function, inputs: Sequence[Tensor]) -> Function:
            with ExitStack() as stack:
                stack.enter_context(replace_attributes(owner, {name: wrong}))
                made = trace(function, inputs)
            return made

        return changed

    return mutant


def baked(trace: Trace) -> Trace:
    """Copy the tensors that a function closes over."""
    del trace

    def changed(function: Function, inputs: Sequence[Tensor]) -> Function:
        one = traced(function, inputs)
        one.captured[:] = [tensor.clone() for tensor in one.captured]
        return _run(one)

    return changed


def forward_alone(trace: Trace) -> Trace:
    """Forget that a scan goes backwards."""
    scans = direct_trace._Scans
    right = scans.scan

    def scan(self: Any, step: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
        del reverse
        return right(self, step, init, xs, dim=dim)

    return _with(scans, "scan", scan)(trace)


def of_the_example(trace: Trace) -> Trace:
    """Return the result for the inputs that were traced."""

    def changed(function: Function, inputs: Sequence[Tensor]) -> Function:
        trace(function, inputs)
        known = function(inputs)
        return lambda _: known

    return changed


def _first_of_the_batch(leaf: Tensor, axis: int | None, size: int) -> Tensor:
    one = leaf if axis is None else leaf.select(axis, 0)
    return one.unsqueeze(0).repeat(size, *(1 for _ in one.shape))


def _without_high_words(key: Any, counter: Any) -> Any:
    first, second, use, _ = counter
    counts = (one if isinstance(one, Tensor) else key[0].new_full((), one) for one in (first, second))
    return tuple(word & 0xFFFF for word in torch.ops.purestep.philox(*key, *counts, use))


def _forgotten(graph: Any, graph_of: Any) -> Any:
    del graph_of
    for node in list(graph.graph.nodes):
        if direct_trace._written(node):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    return graph


MUTANTS = {
    "forgets writes": _with(direct_trace, "_without_writes", _forgotten),
    "runs every scan forwards": forward_alone,
    "gives every member of a batch the first member's carry": _with(direct_trace, "_batched", _first_of_the_batch),
}

# --- programs ---


def nested(inputs: Sequence[Tensor]) -> Any:
    """Scans in scans, forwards and backwards, whose steps close over tensors of each level."""
    xs, weight = inputs

    def outer(carry: Tensor, x: Tensor) -> Any:
        twice = x * 2 + weight

        def inner(total: Tensor, y: Tensor) -> Any:
            return total * 0.5 + y + twice, total - weight

        total, rows = scan(inner, carry, xs, reverse=True)
        return total, (rows.sum(0), carry)

    return scan(outer, xs[0], xs)


def batched(inputs: Sequence[Tensor]) -> Any:
    """A scan for each member of a batch, some of whose tensors all members share."""
    xs, weight = inputs

    def member(x: Tensor) -> Any:
        start = torch.zeros(())
        return scan(lambda total, y: (total + x.sum() * y.sum(), (total, weight)), start, xs, reverse=True)

    return torch.vmap(member)(xs)


def shared_xs(inputs: Sequence[Tensor]) -> Any:
    """A batch of scans over rows of their own, in a scan."""
    xs, weight = inputs

    def step(carry: Tensor, x: Tensor) -> Any:
        def member(row: Tensor, factor: Tensor) -> Any:
            return scan(lambda total, y: (torch.tanh(total * factor + y), total), row[0], row)

        last, rows = torch.vmap(member)(xs * x, weight + carry.sum() + torch.arange(float(len(xs))))
        return torch.tanh(carry + last.sum()), rows

    return scan(step, torch.zeros(()), xs)


def gradients(inputs: Sequence[Tensor]) -> Any:
    """Steps along a gradient, one of whose derivatives is taken of a norm."""
    xs, weight = inputs

    def loss(w: Tensor, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(w * x)
        return norm + (w - x).square().sum()

    def step(w: Tensor, x: Tensor) -> Any:
        gradient = torch.func.grad(loss)(w, x)
        return w - 0.1 * gradient, gradient

    return scan(step, weight + torch.zeros_like(xs[0]), xs)


def random(inputs: Sequence[Tensor]) -> Any:
    """Keys that are split, folded and drawn from, in a batch and in a scan."""
    xs, weight = inputs
    start = keys.fold_in(keys.key(3), weight.to(torch.int64).abs().max())

    def step(key: Tensor, x: Tensor) -> Any:
        mine, following = keys.split(key)
        many = torch.vmap(lambda k: keys.randint(k, (3,), 0, 1000))(keys.split(mine, len(xs)))
        return following, (many, keys.uniform(mine, (5,)) * x.sum())

    return scan(step, start, xs)


def written(inputs: Sequence[Tensor]) -> Any:
    """Writes into copies: parts, whole rows, through a view, by index and by mask; in a scan and in a batch of scans."""
    xs, weight = inputs

    def step(board: Tensor, x: Tensor) -> Any:
        board = board.clone()
        before = board[1] * 2
        board[0] = x.sum()
        board[1:].mul_(weight)
        board[2] = 5.0
        board.index_put_((x.argmax()[None],), board[:1] + 1, accumulate=True)
        return board, (before, board.masked_fill_(board > 2, 2.0))

    def member(x: Tensor) -> Any:
        return scan(step, x, xs)

    table = torch.zeros(4, 3)
    table[:, 1] = weight
    table[2] += xs[0]
    table[3] = 7.0
    return table, scan(step, xs[0], xs), torch.vmap(member)(xs)


PROGRAMS: dict[str, Function] = {one.__name__: one for one in (nested, batched, shared_xs, gradients, random, written)}


def _drawn(seed: int) -> list[Tensor]:
    key = keys.key(seed)
    return [keys.normal(key, (4, 3)), keys.normal(keys.fold_in(key, 1), ()) * 3]


# --- laws ---


def direct_trace_laws() -> Suite:
    """The laws of traced programs."""
    return Suite("direct_trace_laws", (_same_numbers(), _captured(), _refused(), _words()))


def _same_numbers() -> Law:
    def check(trace: Trace, name: str, seen: Seen) -> None:
        seen(name, True)
        run = trace(PROGRAMS[name], _drawn(0))
        for seed in (1, 2, 3):
            torch.testing.assert_close(run(_drawn(seed)), PROGRAMS[name](_drawn(seed)), rtol=1e-5, atol=1e-5)

    return Law(
        name="a_graph_gives_what_the_function_gives",
        claim="Traced on some numbers, the graph gives the function's result for others of the same shapes.",
        source=SOURCE,
        inputs=always(st.sampled_from(sorted(PROGRAMS))),
        check=check,
        mutant=Mutant("keeps the result of the traced numbers", of_the_example),
        needs=tuple(sorted(PROGRAMS)),
        most=30,
    )


def _captured() -> Law:
    def check(trace: Trace, seed: int, seen: Seen) -> None:
        seen("a tensor in the body of a scan", True)
        held = keys.normal(keys.key(seed), (3,))

        def function(inputs: Sequence[Tensor]) -> Any:
            return scan(lambda total, x: (total + held * x, total), torch.zeros(3), inputs[0])

        inputs = _drawn(seed)[:1]
        run = trace(function, inputs)
        held.add_(1.0)
        torch.testing.assert_close(run(inputs), function(inputs), rtol=1e-5, atol=1e-5)

    return Law(
        name="captured_tensors_are_read_in_each_call",
        claim="A tensor that the function closes over counts with the numbers it has at the call.",
        source=SOURCE,
        inputs=always(seeds()),
        check=check,
        mutant=Mutant("copies captured tensors while tracing", baked),
        needs=("a tensor in the body of a scan",),
        most=10,
    )


HELD = torch.tensor([2.0, 3.0])


def _in_place(inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].add_(1.0)


def _in_a_view(inputs: Sequence[Tensor]) -> Tensor:
    inputs[0][:2].reshape(-1)[0] = 5.0
    return inputs[0] + 1


def _captured_changed(inputs: Sequence[Tensor]) -> Tensor:
    HELD[1:].mul_(1.0)
    return inputs[0] * HELD[0]


def _branch(inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0] + 1 if inputs[0].sum() > 0 else inputs[0]


REFUSED: dict[str, Function] = {
    "a branch on a number": _branch,
    "a number of a captured tensor": lambda inputs: inputs[0] * HELD[1].item(),
    "an argument that is changed": _in_place,
    "a captured tensor that is changed": _captured_changed,
    "a part of an argument that is changed": _in_a_view,
    "torch's generator": lambda inputs: inputs[0] + torch.rand(()),
    "an unknown size": lambda inputs: inputs[0].nonzero(),
}


def _refused() -> Law:
    def check(trace: Trace, name: str, seen: Seen) -> None:
        seen(name, True)
        inputs = [torch.ones(3)]
        try:
            trace(REFUSED[name], inputs)
        except Untraced as reason:
            require(bool(str(reason)), "no reason is given")
            require(inputs[0].tolist() == [1.0, 1.0, 1.0], "the arguments have changed")
            return
        require(False, f"{name}: a graph all the same")

    def unguarded(trace: Trace) -> Trace:
        nothing = _with(direct_trace, "READS", frozenset())
        return nothing(_with(direct_trace, "_require_pure", lambda _: None)(trace))

    return Law(
        name="no_graph_where_it_could_differ",
        claim="A function that reads a tensor's numbers or writes in place has no graph.",
        source=SOURCE,
        inputs=always(st.sampled_from(sorted(REFUSED))),
        check=check,
        mutant=Mutant("does not look for impure operations", unguarded),
        needs=tuple(sorted(REFUSED)),
        most=40,
    )


def _words() -> Law:
    def check(trace: Trace, drawn: tuple[int, tuple[int, ...]], seen: Seen) -> None:
        seed, shape = drawn
        seen("a batch of keys", len(shape) > 0)

        def function(inputs: Sequence[Tensor]) -> Any:
            key = keys.split(inputs[0], shape[0]) if shape else inputs[0]
            return keys.bits(key, (5,)), keys.split(key), keys.fold_in(key, 1 << 33)

        inputs = [keys.key(seed)]
        got, wanted = trace(function, inputs)(inputs), function(inputs)
        require(all(torch.equal(one, two) for one, two in zip(got, wanted, strict=True)), "other random words")

    return Law(
        name="random_words_are_those_of_core",
        claim="A block of random words as one operation has the bits of `core.keys.philox`.",
        source="Salmon et al. 2011, Philox4x32-10",
        inputs=always(st.tuples(seeds(), st.lists(st.integers(1, 5), max_size=1).map(tuple))),
        check=check,
        mutant=Mutant("cuts the words in half", _with(philox, "_operation", _without_high_words)),
        needs=("a batch of keys",),
        most=20,
    )
