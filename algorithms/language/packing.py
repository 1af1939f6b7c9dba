"""Sequence packing: several sequences in one row of fixed capacity, with almost no padding.

`packing` computes the layout, in plain Python on lengths; the other functions move tensors by it. Columns [N, L] of
sequences become columns [R, K] of rows and back. A model on packed rows must use `position` as the position of a token and
`segment_mask` as the attention mask. Then each token has the log-prob, and each parameter the gradient, that it has without
packing. Reduce after `unpack`: reductions per sequence do not handle segments.

    rows = packing(lengths, capacity=4096, width=tokens.shape[-1])
    packed = pack(rows, tokens)
    logits = model(packed, rows.position, segment_mask(rows.segment))
    log_probs = unpack(rows, packed_log_probs(rows, logits, packed))

Source: Krell et al. 2021, arXiv:2107.02027.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ...core.errors import ChoiceError, ShapeError, message
from ...core.record import record, tensor
from ...core.shapes import same_shape
from ...core.transcript.log_probs import token_log_probs
from ...core.transcript.record import ABSENT
from .micro_batches import Batch, check_lengths, longest_first


@record
class Packing:
    """The layout of the tokens of N sequences of at most L in R rows of K."""

    segment: Tensor = tensor("* R K", "int")  # index of the sequence of a row's token, ABSENT in the padding
    position: Tensor = tensor("* R K", "int")  # its position in that sequence; 0 in the padding
    source: Tensor = tensor("* R K", "int")  # its index among the N x L tokens of sequences; 0 in the padding
    target: Tensor = tensor("* N L", "int")  # index of a sequence's token among the R x K; ABSENT in the padding


def packed_rows(lengths: Sequence[int], capacity: int) -> tuple[Batch, ...]:
    """Return the sequences of each row: longest first, each in the first row with enough space (first-fit decreasing).

    No two rows fit into one, so that with two rows or more, more than half of the capacity is used. Every sequence occurs
    exactly once, unsplit. Raises: ChoiceError, for a sequence longer than a row, with its index.

    >>> packed_rows([2, 5, 3, 1, 2], capacity=6)
    ((1, 3), (2, 0), (4,))
    """
    if capacity < 1:
        where, remedy = "packed_rows: capacity", "pass a number of tokens"
        raise ChoiceError(message(where, got=capacity, wanted="at least 1", remedy=remedy))
    check_lengths("packed_rows", lengths, capacity, "raise the capacity, or cut the sequence first")
    rows: list[list[int]] = []
    room: list[int] = []
    for place in longest_first(lengths):
        row = next((i for i, left in enumerate(room) if lengths[place] <= left), len(rows))
        if row == len(rows):
            rows, room = [*rows, []], [*room, capacity]
        rows[row].append(place)
        room = [*room[:row], room[row] - lengths[place], *room[row + 1 :]]
    return tuple(map(tuple, rows))


def packing(lengths: Sequence[int], capacity: int, *, width: int, rows: int | tuple[()] = ()) -> Packing:
    """Return the layout for packing sequences in columns [N, width] into rows of `capacity`.

    `rows` fixes the number of rows, with empty ones at the end, so that one compiled graph serves every batch; by default
    there are as many as needed. Raises: ChoiceError (also if `rows` are too few).

    >>> where = packing([1, 2], 3, width=2)
    >>> where.segment, where.position, where.target
    (tensor([[1, 1, 0]]), tensor([[0, 1, 0]]), tensor([[ 2, -1],
            [ 0,  1]]))
    """
    plan = packed_rows(lengths, capacity)
    check_lengths("packing", lengths, width, "pass the width of the columns")
    number = len(plan) if isinstance(rows, tuple) else rows
    if number < len(plan):
        raise ChoiceError(message("packing: rows", got=number, wanted=f"at least {len(plan)}", remedy="pass more rows"))
    full = [*plan, *[()] * (number - len(plan))]
    segment = _rows([_filled(row, lengths, capacity, _number) for row in full], capacity)
    position = _rows([_filled(row, lengths, capacity, _count) for row in full], capacity)
    starts = {
        place: row * capacity + before
        for row, found in enumerate(plan)
        for place, before in zip(found, accumulate((lengths[place] for place in found), initial=0), strict=False)
    }
    first = torch.tensor([starts[place] for place in range(len(lengths))], dtype=torch.int64)[:, None]
    t = torch.arange(width)
    return Packing(
        segment=segment,
        position=position,
        source=torch.where(segment >= 0, segment * width + position, 0),
        target=torch.where(t < torch.tensor(lengths, dtype=torch.int64)[:, None], first + t, ABSENT),
    )


def _number(place: int, length: int) -> Tensor:
    return torch.full((length,), place)


def _count(place: int, length: int) -> Tensor:
    return torch.zeros(length, dtype=torch.int64) if place == ABSENT else torch.arange(length)


def _filled(row: Batch, lengths: Sequence[int], capacity: int, entries: Callable[[int, int], Tensor]) -> Tensor:
    """Return the entries of a row; the padding is that of the sequence ABSENT."""
    left = capacity - sum(lengths[place] for place in row)
    return torch.cat([*(entries(place, lengths[place]) for place in row), entries(ABSENT, left)])


def _rows(rows: list[Tensor], capacity: int) -> Tensor:
    return torch.stack(rows) if rows else torch.zeros((0, capacity), dtype=torch.int64)


def pack(where: Packing, column: Tensor, blank: float = 0) -> Tensor:
    """Return a column of sequences as a column of rows, `blank` in the padding: [N, L, ...] -> [R, K, ...].

    Entries beyond a sequence's length are ignored. Raises: ShapeError.

    >>> pack(packing([1, 2], 4, width=2), torch.tensor([[5, 9], [6, 7]]), blank=-1)
    tensor([[ 6,  7,  5, -1]])
    """
    return _moved("pack", column, where.target, where.source, where.segment, blank)


def unpack(where: Packing, column: Tensor, blank: float = 0) -> Tensor:
    """Return a column of rows as a column of sequences, `blank` beyond their lengths: [R, K, ...] -> [N, L, ...].

    The inverse of `pack`, gradients included. Raises: ShapeError.

    >>> unpack(packing([1, 2], 4, width=2), torch.tensor([[6, 7, 5, 8]]))
    tensor([[5, 0],
            [6, 7]])
    """
    return _moved("unpack", column, where.segment, where.target, where.target, blank)


def _moved(name: str, column: Tensor, like: Tensor, index: Tensor, there: Tensor, blank: float) -> Tensor:
    """Return column[index] where `there` is not ABSENT, else `blank`; the column's first two axes are those of `like`."""
    if column.shape[:2] != like.shape:
        got, wanted = list(column.shape), f"[{like.shape[0]}, {like.shape[1]}, ...]"
        raise ShapeError(message(f"{name}: column", got=got, wanted=wanted, remedy="pass one that it was made for"))
    inside = there >= 0
    if not like.numel():
        return column.new_full((*index.shape, *column.shape[2:]), blank)
    found = column.flatten(0, 1)[index.clamp_min(0)]
    return found.masked_fill(~inside.reshape(inside.shape + (1,) * (column.ndim - 2)), blank)


def segment_mask(segment: Tensor) -> Tensor:
    """Return the attention mask: int [*, K] -> bool [*, K, K], query by key; causal within each segment.

    Padding attends to padding, so that no softmax is over an empty set.

    >>> segment_mask(torch.tensor([4, 4, 7])).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    place = torch.arange(segment.shape[-1], device=segment.device)
    return (segment[..., :, None] == segment[..., None, :]) & (place[:, None] >= place)


def packed_log_probs(where: Packing, logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
    """Return `token_log_probs` of rows, 0 at the first token of each segment, which the previous token does not predict.

    Shapes: logits float [R, K, V], tokens int [R, K], temperature a number, [R] or [R, K] -> [R, K]; 0 in the padding.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> where, tokens = packing([1, 2], 3, width=2), torch.tensor([[0, 1, 1]])
    >>> packed_log_probs(where, torch.zeros(1, 3, 2), tokens)
    tensor([[ 0.0000, -0.6931,  0.0000]])
    """
    same_shape("packed_log_probs", segment=where.segment, tokens=tokens)
    found = token_log_probs(logits, tokens, temperature=temperature)
    return torch.where(where.position > 0, found, 0.0)
