"""The recursion behind all returns and advantages: a linear recurrence backwards in time."""

import torch
from torch import Tensor

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
