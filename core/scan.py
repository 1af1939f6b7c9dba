"""One `scan` with several lowerings: fold a step over time and stack its outputs.

    carry_{t+1}, y_t = step(carry_t, x_t),   t = 0..length-1  (or backwards)

Carry, xs and ys are any trees of tensors. The lowerings give the same values; they differ in the compiled graph.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .errors import ChoiceError, ShapeError, choose, message
from .probes import collect, probed, probing
from .tree import same_structure

C = TypeVar("C")
X = Any
Y = Any
ScanStep = Callable[[C, X], tuple[C, Y]]
Loop = tuple[int, bool, Y]  # unroll, remat, output

LOWERINGS = {"auto": 0, "python": 1, "higher_order": 2}


def scan(
    step: ScanStep[C],
    init: C,
    xs: X = (),
    length: int | None = None,
    *,
    reverse: bool = False,
    lowering: str = "auto",
    unroll: int = 1,
    remat: bool = False,
    output: Y = None,
) -> tuple[C, Y]:
    """Fold `step` over the leading axis of `xs`; return the last carry and the outputs stacked in the order of `xs`.

    `length` is needed if `xs` has no leaves. With `reverse` the last x comes first, and y_t still has the index of x_t.
    `lowering`: "python" is a loop (unrolled when compiled), "higher_order" one loop in the compiled graph whose body holds
    `unroll` steps, "auto" the second while compiling and the first otherwise. The gradient of a loop in a compiled graph is a
    loop in reverse; with `remat` it stores the carries alone and computes each step again, which takes less memory and longer.
    `output`, if given, is any tree with the structure of one y; it saves a second trace of the step, whose cost doubles with
    each level of nested scans.

    Raises: ShapeError (lengths), StructureError (a carry whose structure changes), ChoiceError.

    >>> scan(lambda total, x: (total + x, total), torch.tensor(0), torch.tensor([1, 2, 3]))
    (tensor(6), tensor([0, 1, 3]))
    """
    choose("scan: lowering", lowering, LOWERINGS)
    if unroll < 1:
        raise ChoiceError(message("scan: unroll", got=unroll, wanted="at least 1", remedy="pass 1 for a plain loop"))
    if not probing():
        return _scan(step, init, xs, length, reverse, lowering, (unroll, remat, output))

    def and_values(carry: C, x: X) -> tuple[C, tuple[Y, Any]]:
        (carry, y), values = probed(step)(carry, x)
        return carry, (y, values)

    carry, (ys, values) = _scan(and_values, init, xs, length, reverse, lowering, (unroll, remat, None))
    collect(values)
    return carry, ys


def _scan(
    step: ScanStep[C], init: C, xs: X, length: int | None, reverse: bool, lowering: str, loop: Loop
) -> tuple[C, Y]:
    inputs, structure = pytree.tree_flatten(xs)
    count = _length(inputs, length)
    if not inputs:
        first = next(iter(pytree.tree_leaves(init)), None)
        ticks = torch.zeros(count, device=first.device if isinstance(first, Tensor) else None)
        return _scan(lambda carry, _: step(carry, xs), init, ticks, None, reverse, lowering, loop)
    if lowering == "python" or (lowering == "auto" and not torch.compiler.is_compiling()) or count <= loop[0]:
        return _python(step, init, inputs, structure, count, reverse)
    return _higher_order(step, init, inputs, structure, count, reverse, loop)


def _length(inputs: list[Tensor], length: int | None) -> int:
    lengths = {leaf.shape[0] if leaf.ndim else -1 for leaf in inputs} | ({length} if length is not None else set())
    if len(lengths) != 1 or min(lengths) < 0:
        got = sorted(lengths) or "unknown"
        remedy = "give xs one leading axis, or pass `length` when there are none"
        raise ShapeError(message("scan: length", got=got, wanted="one number", remedy=remedy))
    return lengths.pop()


def _python(step: ScanStep[C], init: C, inputs: list[Tensor], structure: Any, count: int, reverse: bool) -> tuple[C, Y]:
    carry, outputs = init, []
    for t in reversed(range(count)) if reverse else range(count):
        carry, y = step(carry, pytree.tree_unflatten([leaf[t] for leaf in inputs], structure))
        outputs.append(y)
    if not outputs:
        return init, _empty(step, init, inputs, structure)
    same_structure("scan: carry", carry, init)
    if reverse:
        outputs.reverse()
    return carry, pytree.tree_map(lambda *leaves: torch.stack(leaves), *outputs)


def _empty(step: ScanStep[C], init: C, inputs: list[Tensor], structure: Any) -> Y:
    """Return the outputs of zero steps: the shapes of one step on zeros, with a leading axis of 0."""
    x = pytree.tree_unflatten([leaf.new_zeros(leaf.shape[1:]) for leaf in inputs], structure)
    _, y = step(init, x)
    return pytree.tree_map(lambda leaf: leaf.new_zeros((0, *leaf.shape)), y)


def _higher_order(
    step: ScanStep[C], init: C, inputs: list[Tensor], structure: Any, count: int, reverse: bool, loop: Loop
) -> tuple[C, Y]:
    """Scan whole chunks with the operator, and unroll the remainder at the end of the axis."""
    whole = count - count % loop[0]
    main, tail = [leaf[:whole] for leaf in inputs], [leaf[whole:] for leaf in inputs]
    if whole == count:
        return _operator(step, init, main, structure, reverse, loop)
    if reverse:
        carry, after = _python(step, init, tail, structure, count - whole, reverse)
        carry, before = _operator(step, carry, main, structure, reverse, loop)
    else:
        carry, before = _operator(step, init, main, structure, reverse, loop)
        carry, after = _python(step, carry, tail, structure, count - whole, reverse)
    return carry, pytree.tree_map(lambda a, b: torch.cat([a, b]), before, after)


def _operator(
    step: ScanStep[C], init: C, inputs: list[Tensor], structure: Any, reverse: bool, loop: Loop
) -> tuple[C, Y]:
    """Call the compiler's scan, which takes flat tensors without shared storage; records are rebuilt inside its body."""
    from torch._higher_order_ops.scan import scan as operator

    state, carry_structure = pytree.tree_flatten(init)
    unroll, remat, output = loop
    padded = state or [inputs[0].new_zeros(())]  # the operator needs at least one tensor to carry
    if output is None and not probing():  # one run on the first element gives the structure; its values are dead code
        _, output = step(init, pytree.tree_unflatten([leaf[0] for leaf in inputs], structure))
    structures = [pytree.tree_structure(output)]

    def body(carry: list[Tensor], x: list[Tensor], remat: bool = False) -> tuple[list[Tensor], list[Tensor]]:
        current, ys = pytree.tree_unflatten(carry[: len(state)], carry_structure), []
        for k in reversed(range(unroll)) if reverse else range(unroll):
            current, y = step(current, pytree.tree_unflatten([leaf[k] for leaf in x], structure))
            ys.append(pytree.tree_leaves(y))
            if probing():
                structures[0] = pytree.tree_structure(y)
        same_structure("scan: carry", current, init)
        if reverse:
            ys.reverse()
        outputs = [torch.stack(group) for group in zip(*ys, strict=True)]
        return [_contiguous(leaf) for leaf in pytree.tree_leaves(current) or carry], outputs

    # A strided input would be copied completely in every iteration (measured: 37 against 14 us per CartPole step).
    chunks = [_contiguous(leaf.reshape(-1, unroll, *leaf.shape[1:])) for leaf in inputs]
    stepped = partial(body, remat=True) if remat else body  # the lowering of a derivative reads the keyword
    final, stacked = operator(stepped, [_contiguous(leaf) for leaf in padded], chunks, reverse=reverse)
    ys = pytree.tree_unflatten([leaf.flatten(0, 1) for leaf in stacked], structures[0])
    return pytree.tree_unflatten(final[: len(state)], carry_structure), ys


def _contiguous(leaf: Tensor) -> Tensor:
    return leaf.clone(memory_format=torch.contiguous_format)


# --- linear recurrences ---

BLOCK = 8


def backwards(a: Tensor, b: Tensor) -> Tensor:
    """Solve x_t = b_t + a_t x_{t+1} with x_T = 0.

    Shapes: a, b [T, *] -> [T, *]; the streams of the other axes are independent. A scan would need a loop iteration, hence
    several kernels, for each of T tiny rows. Instead the rows are split into blocks of BLOCK: all blocks together are
    reduced to their heads, x -> B + A x, in BLOCK elementwise steps; the heads satisfy the same recurrence, BLOCK times
    shorter; then every block is solved row by row from the value after it. This takes about log T / log BLOCK rounds of
    fused kernels, 2 T multiplications more than the loop, and elementwise operations only, so it is also fast under vmap
    and in eager mode.

    Products are grouped by blocks, so the result equals the loop's bit for bit only if nothing is rounded: always up to
    BLOCK rows, and beyond for dyadic inputs with a of 0 or 1, or as long as all bits fit. (With |b| < 16 a multiple of 1/4
    and a = 1/4, T rows need 2 T + 5 bits: float32 holds them up to T = 9, float64 up to T = 24.)

    Source: Blelloch 1990, "Prefix sums and their applications" (recurrences as scans of composed maps).

    >>> backwards(torch.tensor([0.5, 0.0, 0.5]), torch.tensor([1.0, 2.0, 4.0]))
    tensor([2., 2., 4.])
    """
    count = a.shape[0]
    if count == 0:
        return b.clone()
    if count <= BLOCK:
        return torch.stack(_run(list(a), list(b), torch.zeros_like(b[0])))
    blocks = -(-count // BLOCK)
    a_rows, b_rows = _rows(a, blocks), _rows(b, blocks)
    slope, offset = a_rows[-1], b_rows[-1]
    for row in reversed(range(BLOCK - 1)):
        offset = b_rows[row] + a_rows[row] * offset
        slope = a_rows[row] * slope
    heads = backwards(slope, offset)
    after = torch.cat([heads[1:], torch.zeros_like(heads[:1])])
    return torch.stack(_run(a_rows, b_rows, after), 1).flatten(0, 1)[:count]


def _rows(x: Tensor, blocks: int) -> list[Tensor]:
    """Return row k of every block, as BLOCK tensors [blocks, *]; zeros pad the last block and affect no earlier row."""
    missing = blocks * BLOCK - x.shape[0]
    padded = torch.cat([x, x.new_zeros((missing, *x.shape[1:]))]) if missing else x
    return list(padded.reshape(blocks, BLOCK, *x.shape[1:]).unbind(1))


def _run(a: list[Tensor], b: list[Tensor], x: Tensor) -> list[Tensor]:
    outputs = []
    for slope, offset in zip(reversed(a), reversed(b), strict=True):
        x = offset + slope * x
        outputs.append(x)
    return outputs[::-1]
