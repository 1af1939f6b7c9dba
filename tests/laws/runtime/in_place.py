"""Laws of writes in place: a graph whose loops write into their carries gives what the function gives, bit for bit.

The subject is a `Rewrite`: (function, inputs) -> a function of inputs, the graph as code is generated for it, run operation by
operation. Programs are drawn: statements on three buffers, in a scan, in scans within it, in a population.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch._inductor.config as inductor
import torch.utils._pytree as pytree
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Interpreter

from purestep.core.scan import scan
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.inductor import in_place
from purestep.runtime.inductor.compile_speed import _shortcuts
from purestep.runtime.inductor.direct_library import Computed
from purestep.runtime.inductor.direct_trace import Traced, traced
from purestep.runtime.inductor.in_place import DONATED, LOOP, WRITTEN
from purestep.runtime.inductor.replace_attributes import replace_attributes

Function = Callable[..., Any]
SOURCE = "runtime.inductor.in_place: writes into the carries of loops"
ROWS, TURNS, INNER, MEMBERS = 12, 3, 2, 2


class _Run(Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not LOOP:
            return super().call_function(target, args, kwargs)
        condition, body, carry, fixed = args
        while bool(_Run(condition).run(*carry, *fixed)):
            carry = _Run(body).run(*carry, *fixed)
        return carry


@frozen
class Rewritten:
    """A graph as code is generated for it."""

    one: Traced
    graph: GraphModule
    donated: tuple[int, ...]

    def __call__(self, *inputs: Tensor) -> Any:
        given = [tensor.clone() if place in self.donated else tensor for place, tensor in enumerate(inputs)]
        computed = _Run(self.graph).run(*given, *self.one.captured)
        leaves = [
            computed[leaf.position] if isinstance(leaf, Computed) else given[leaf.position] for leaf in self.one.outputs
        ]
        return pytree.tree_unflatten(leaves, self.one.structure)

    @property
    def in_place(self) -> int:
        """The number of carries and arguments whose memory is written to."""
        bodies = [body.meta.get(WRITTEN, ()) for body in self.graph.modules() if isinstance(body, GraphModule)]
        outputs = in_place._results(self.graph)
        return sum(map(len, bodies)) + sum(node in outputs for node in in_place._inputs(self.graph))


Rewrite = Callable[..., Rewritten]


def rewritten(function: Function, inputs: Sequence[Tensor], donated: tuple[int, ...] = ()) -> Rewritten:
    """Return the graph of a function after all passes.

    >>> def written(buffer):
    ...     return scan(lambda b, t: (b.index_copy(0, t[None], t[None]), b[1]), buffer, torch.arange(4))
    >>> made = rewritten(written, [torch.zeros(4, dtype=torch.int64)])
    >>> made.in_place, made(torch.zeros(4, dtype=torch.int64))
    (1, (tensor([0, 1, 2, 3]), tensor([0, 0, 1, 1])))
    """
    one = traced(lambda leaves: function(*leaves), inputs)
    with ExitStack() as stack:
        for owner, values in _shortcuts():
            stack.enter_context(replace_attributes(owner, values))
        stack.enter_context(tracing(TracingContext(one.mode)))
        stack.enter_context(V.set_fake_mode(one.mode))
        stack.enter_context(inductor.patch(compile_fx.get_cpp_wrapper_config()))
        graph = compile_fx._recursive_joint_graph_passes(one.graph)
        for place, node in enumerate(in_place._inputs(graph)):
            if place in donated:
                node.meta[DONATED] = True
        compile_fx._recursive_post_grad_passes(graph, True)
    return Rewritten(one, graph, donated)


# --- drawn programs ---


@frozen
class Statement:
    """One line of a step: `kind`, buffers, a number, and the statements of a scan within it."""

    kind: str
    to: int = 0
    of: int = 0
    offset: int = 0
    body: tuple["Statement", ...] = ()


@frozen
class Program:
    """Statements for each turn of a scan over three buffers of a dtype, each alone or for a population."""

    statements: tuple[Statement, ...]
    dtype: torch.dtype = torch.float32
    population: bool = False
    same: bool = False  # whether two buffers begin as the same tensor
    donated: tuple[int, ...] = ()

    def buffers(self) -> list[Tensor]:
        """The arguments: multiples of 1/4, so that sums are exact."""
        shape = (MEMBERS, ROWS) if self.population else (ROWS,)
        count = MEMBERS if self.population else 1
        numbers = [torch.arange(float(count * ROWS)).reshape(shape) * (k + 1) / 4 for k in range(3)]
        return [(one > 2) if self.dtype == torch.bool else one.to(self.dtype) for one in numbers]

    def __call__(self, *buffers: Tensor) -> Any:
        return torch.vmap(self.alone)(*buffers) if self.population else self.alone(*buffers)

    def alone(self, *buffers: Tensor) -> Any:
        """Run the scan."""
        first, second, third = buffers

        def step(carry: Any, t: Tensor) -> Any:
            return run(self.statements, list(carry), t)

        carry, ys = scan(step, (first, first if self.same else second, third), torch.arange(TURNS))
        return carry, ys, [one[:2] for one in buffers if 0 not in self.donated]


def run(statements: Sequence[Statement], now: list[Tensor], t: Tensor) -> tuple[Any, Any]:
    """Run statements on buffers in one turn: the buffers after them, and what they read."""
    old, read = list(now), [now[0][0]]
    for one in statements:
        to, of = now[one.to], now[one.of]
        at = (t * 5 + one.offset + torch.arange(3)) % ROWS
        if one.kind == "swap":
            now[one.to], now[one.of] = of, to
        elif one.kind == "same":
            now[one.to] = of
        elif one.kind == "keep":
            old = list(now)
        elif one.kind in READS:
            read.append(READS[one.kind](old[one.to], at))
        elif one.kind == "scan":
            captured = now[one.of]

            def inner(carry: Any, k: Tensor, body: Any = one.body, captured: Tensor = captured) -> Any:
                after, ys = run(body, list(carry), t + k)
                return after, (ys, captured[(k + 1)[None]])

            after, ys = scan(inner, tuple(now), torch.arange(INNER))
            now = list(after)
            read.append(ys)
        else:
            now[one.to] = WRITES[one.kind](to, at, _rows(of, at, one.offset))
    return tuple(now), read


def _rows(buffer: Tensor, at: Tensor, kind: int) -> Tensor:
    """Return what is written: numbers of a turn, rows near to those that are written, the same, or a part of the buffer."""
    numbers = (at * 2 - 3).to(buffer.dtype)
    near = buffer[(at + 1) % ROWS]
    return (numbers, near if buffer.dtype == torch.bool else near + 1, buffer[at.flip(0)], buffer[2:5])[kind % 4]


def _set(buffer: Tensor, at: Tensor, rows: Tensor) -> Tensor:
    buffer = buffer.clone()
    buffer[at] = rows
    return buffer


WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "copy": lambda buffer, at, rows: buffer.index_copy(0, at, rows),
    "put": lambda buffer, at, rows: torch.index_put(buffer, (at,), rows),
    "add": lambda buffer, at, rows: torch.index_put(buffer, (at // 2,), rows, accumulate=buffer.dtype != torch.bool),
    "index_add": lambda buffer, at, rows: buffer if buffer.dtype == torch.bool else buffer.index_add(0, at, rows),
    "scatter": lambda buffer, at, rows: buffer.scatter(0, at, rows),
    "set": _set,
    "masked": lambda buffer, at, rows: buffer.index_copy(0, at, torch.where(at % 2 == 0, rows, buffer[at])),
    "chosen": lambda buffer, at, rows: torch.where(at[0] % 2 == 0, buffer.index_copy(0, at, rows), buffer),
    "by itself": lambda buffer, at, rows: buffer.index_copy(0, buffer[at].to(torch.int64).abs() % 3 * 4 + at % 4, rows),
    "first": lambda buffer, at, rows: torch.cat([rows[:1], buffer[1:]]),
}
READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda buffer, at: buffer[at],
    "sum": lambda buffer, at: buffer.sum(),
    "view": lambda buffer, at: buffer[2:5],
    "whole": lambda buffer, at: buffer,
    "turned": lambda buffer, at: buffer.view(3, 4).T,
}


@st.composite
def statements(draw: DrawFn, depth: int = 2) -> tuple[Statement, ...]:
    """Draw one to five statements, with scans in them to this depth."""
    others = ["swap", "same", "keep", *(["scan"] * 3 if depth else [])]
    kinds = st.one_of(st.sampled_from(sorted(WRITES)), st.sampled_from(sorted(READS)), st.sampled_from(others))
    places, lines = st.integers(0, 2), []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(kinds)
        body = draw(statements(depth - 1)) if kind == "scan" else ()
        lines.append(Statement(kind, draw(places), draw(places), draw(st.integers(0, 7)), body))
    return tuple(lines)


@st.composite
def programs(draw: DrawFn) -> Program:
    """Draw a program."""
    return Program(
        draw(statements()),
        draw(st.sampled_from([torch.float32, torch.float32, torch.int64, torch.bool])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([(), (0, 1, 2)])),
    )


def equal(got: Any, wanted: Any) -> bool:
    """Whether two results have the same bits."""
    pairs = zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True)
    return all(one.dtype == two.dtype and torch.equal(one, two) for one, two in pairs)


# --- mutants ---


def _with(name: str, wrong: Any) -> Callable[[Rewrite], Rewrite]:
    def mutant(rewrite: Rewrite) -> Rewrite:
        def changed(*arguments: Any) -> Rewritten:
            with replace_attributes(in_place, {name: wrong}):
                return rewrite(*arguments)

        return changed

    return mutant


_RIGHT_SOURCES = in_place._sources


def _without_views(node: Any) -> Any:
    return _RIGHT_SOURCES(node) if node.target in in_place.IN_PLACE else []


MUTANTS = {
    "forgets readers that come after the write": _with("_precedes", lambda *_: True),
    "does not follow views": _with("_sources", _without_views),
    "copies nothing before a loop": _with("_copied", lambda source: source),
}

# --- laws ---


def in_place_laws() -> Suite:
    """The laws of writes in place."""
    return Suite("in_place_laws", (_same_bits(),))


def _same_bits() -> Law:
    def check(rewrite: Rewrite, program: Program, seen: Seen) -> None:
        inputs = program.buffers()
        kept = [one.clone() for one in inputs]
        made = rewrite(program, inputs, program.donated)
        seen("a carry in place", made.in_place > 0)
        seen("a population", program.population)
        seen("a scan in a scan", any(one.kind == "scan" for one in program.statements))
        got = made(*inputs)
        require(equal(inputs, kept), "the arguments have changed")
        require(equal(got, program(*inputs)), "other numbers")

    return Law(
        name="in_place_it_has_the_same_bits",
        claim="A graph with writes in place gives the function's bits, and changes no argument that was not given up.",
        source=SOURCE,
        inputs=always(programs()),
        check=check,
        mutant=Mutant(
            "forgets readers that come after the write", MUTANTS["forgets readers that come after the write"]
        ),
        needs=("a carry in place", "a population", "a scan in a scan"),
        most=100,
    )
