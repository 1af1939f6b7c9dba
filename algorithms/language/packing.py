"""Layout of sequences for the model: micro-batches within a budget of tokens, each padded or packed into rows.

Layouts are computed in plain Python on lengths. A padded micro-batch costs longest x count. Losses of micro-batches add up to
that of the whole when all are divided by the whole's denominator: see `aggregate`.

Packing puts several sequences into one row of fixed capacity, with almost no padding. Columns [N, L] of sequences become
columns [R, K] of rows and back. A model on packed rows must use `position` as the position of a token and `segment_mask` as
the attention mask. Then each token has the log-prob, and each parameter the gradient, that it has without packing. Reduce
after `unpack`: reductions per sequence do not handle segments.

    rows = packing(lengths, capacity=4096, width=tokens.shape[-1])
    packed = pack(rows, tokens)
    logits = model(packed, rows.position, segment_mask(rows.segment))
    log_probs = unpack(rows, packed_log_probs(rows, logits, packed))

Source: Krell et al. 2021, arXiv:2107.02027.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ChoiceError, ShapeError, message
from ...core.language.types import Transcript
from ...core.record import record, replace, tensor
from ...core.shapes import same_shape
from ...core.transcript.log_probs import token_log_probs
from ...core.transcript.record import ABSENT, TOKEN_BLANKS
from ...core.tree import tree_map

Batch = tuple[int, ...]  # indices of sequences


def micro_batches(lengths: Sequence[int], budget: int) -> tuple[Batch, ...]:
    """Return the indices of the sequences of each micro-batch, longest first, filled while longest x count <= budget.

    Every index occurs exactly once; sequences of equal length keep their order. The most expensive micro-batch comes first,
    so that it fails at once if it does not fit into memory.
    Raises: ChoiceError, for a sequence that is longer than the budget, with its index.

    >>> micro_batches([2, 5, 3, 1, 2], budget=6)
    ((1,), (2, 0), (4, 3))
    """
    _check("micro_batches", lengths, budget)
    found: list[list[int]] = []
    for place in longest_first(lengths):
        if found and lengths[found[-1][0]] * (len(found[-1]) + 1) <= budget:
            found[-1].append(place)
        else:
            found.append([place])
    return tuple(map(tuple, found))


def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[tuple[Batch, ...], ...]:
    """Return the micro-batches of each rank: the same number for every rank, since ranks wait for each other.

    If the number of micro-batches is not a multiple of `ranks`, those with most sequences are halved; if none can be halved,
    some are empty: such a rank computes on a fully masked batch. The k-th micro-batches of all ranks are adjacent in the
    order of cost, and the rank with the most expensive one gets the cheapest one in the next round. Raises: ChoiceError.

    >>> shards([2, 5, 3, 1, 2], 6, ranks=2)
    (((1,), (0,)), ((4, 3), (2,)))
    """
    if ranks < 1:
        raise ChoiceError(message("shards: ranks", got=ranks, wanted="at least 1", remedy="pass the world's size"))
    batches = list(micro_batches(lengths, budget))
    while len(batches) % ranks:
        widest = max(range(len(batches)), key=lambda i: (len(batches[i]), -i))
        batch = batches[widest]
        half = (len(batch) + 1) // 2
        batches = [*batches[:widest], batch[:half], batch[half:], *batches[widest + 1 :]]
    rounds = sorted(batches, key=lambda batch: -padded_tokens(lengths, [batch]))
    dealt = [rounds[start : start + ranks] for start in range(0, len(rounds), ranks)]
    turned = [row if number % 2 == 0 else row[::-1] for number, row in enumerate(dealt)]
    return tuple(tuple(row[rank] for row in turned) for rank in range(ranks))


def padded_tokens(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens in the batches, including padding: the sum of longest x count.

    >>> padded_tokens([2, 5, 3], [(1,), (2, 0)])
    11
    """
    return sum(len(batch) * max((lengths[place] for place in batch), default=0) for batch in batches)


def padding_waste(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Return the share of padding in the batches: 1 - tokens / padded tokens, and 0 for no tokens.

    >>> padding_waste([2, 5, 1], [(0, 1), (2,)]), padding_waste([2, 5, 1], [(1,), (0,), (2,)])
    (0.2727272727272727, 0.0)
    """
    cost = padded_tokens(lengths, batches)
    tokens = sum(lengths[place] for batch in batches for place in batch)
    return 1 - tokens / cost if cost else 0.0


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the indices in order of decreasing length; sequences of equal length keep their order.

    >>> longest_first([1, 3, 2, 3])
    [1, 3, 2, 0]
    """
    return sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))


def check_lengths(where: str, lengths: Sequence[int], limit: int, remedy: str) -> None:
    """Raise ChoiceError unless every length is from 0 to the limit.

    >>> check_lengths("f", [3, 9], 8, "raise the budget")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: f: length of sequence 1 is 9, wanted from 0 to 8; raise the budget
    """
    for place, length in enumerate(lengths):
        if not 0 <= length <= limit:
            at = f"{where}: length of sequence {place}"
            raise ChoiceError(message(at, got=length, wanted=f"from 0 to {limit}", remedy=remedy))


def _check(where: str, lengths: Sequence[int], budget: int) -> None:
    if budget < 1:
        raise ChoiceError(
            message(f"{where}: budget", got=budget, wanted="at least 1", remedy="pass a number of tokens")
        )
    check_lengths(where, lengths, budget, "raise the budget, or cut the sequence first")


@record
class Packing:
    """The layout of the tokens of N sequences of at most L in R rows of K."""

    segment: Tensor = tensor("* R K", "int")  # index of the sequence of a row's token, ABSENT in the padding
    position: Tensor = tensor("* R K", "int")  # its position in that sequence; 0 in the padding
    source: Tensor = tensor("* R K", "int")  # its index among the N x L tokens of sequences; 0 in the padding
    target: Tensor = tensor("* N L", "int")  # index of a sequence's token among the R x K; ABSENT in the padding


@record
class SequenceLayout:
    """Layout of sequences in the model's input. By default one row per sequence, with every token scored."""

    places: Any = ()  # int [P] indices of the tokens to score, among all N x L; the first of a sequence scores 0
    packing: Any = ()  # a Packing, or ()


Layout = SequenceLayout | tuple[()]


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


@frozen
class SequenceBatch:
    """Sequences that go through the model together."""

    rows: Batch
    width: int  # of their columns
    cost: int  # tokens that the model reads, padding included
    packing: Any = ()

    def layout(self, mask: Tensor) -> SequenceLayout:
        """Return the layout of the sequences and of the tokens to score, where the mask [n, width] is true."""
        device = mask.device
        return SequenceLayout(
            places=mask.flatten().nonzero()[:, 0], packing=tree_map(lambda leaf: leaf.to(device), self.packing)
        )


def padded_batches(lengths: Sequence[int], rows: Sequence[int], budget: int) -> list[SequenceBatch]:
    """Return the `rows` in parts of similar lengths, one sequence per row; `lengths` has all sequences.

    Raises: ChoiceError for one that is longer than the budget.

    >>> [part.rows for part in padded_batches([2, 9, 5], [0, 1, 2], budget=10)]
    [(1,), (2, 0)]
    """
    own = [max(1, lengths[row]) for row in rows]
    batches = micro_batches(own, budget)
    return [SequenceBatch(tuple(rows[i] for i in one), own[one[0]], padded_tokens(own, [one])) for one in batches]


def packed_batches(lengths: Sequence[int], rows: Sequence[int], budget: int, capacity: int) -> list[SequenceBatch]:
    """Return parts with several sequences in a row of `capacity`, or of the longest one's length where that is more.

    Raises: ChoiceError for one that is longer than the budget.

    >>> [(part.rows, part.cost) for part in packed_batches([2, 9, 5], [0, 1, 2], budget=20, capacity=8)]
    [((1, 2, 0), 18)]
    """
    own = [max(1, lengths[row]) for row in rows]
    check_lengths("packed_batches", own, budget, "raise the budget, or cut the sequence first")
    capacity = max(capacity, *own)
    full = packed_rows(own, capacity)
    each = max(1, budget // capacity)
    found = []
    for start in range(0, len(full), each):
        some = [i for row in full[start : start + each] for i in row]
        width = max(own[i] for i in some)
        where = packing([own[i] for i in some], capacity, width=width)
        found.append(SequenceBatch(tuple(rows[i] for i in some), width, where.segment.numel(), where))
    return found


def trimmed(transcripts: Transcript, width: int) -> Transcript:
    """Return transcripts without the columns after the first `width`, which must hold no token.

    >>> from ...core.transcript.record import empty
    >>> trimmed(empty(9, 1, id=torch.arange(2)), 4).token.shape
    torch.Size([2, 4])
    """
    return replace(transcripts, **{name: getattr(transcripts, name)[..., :width] for name in TOKEN_BLANKS})


def with_width(column: Tensor, width: int) -> Tensor:
    """Return a column [n, w] with `width` of them: cut, or filled with 0; [n] stays.

    >>> with_width(torch.tensor([[5, 6]]), 3), with_width(torch.tensor([[5, 6]]), 1)
    (tensor([[5, 6, 0]]), tensor([[5]]))
    """
    if column.ndim < 2 or column.shape[1] >= width:
        return column[:, :width] if column.ndim > 1 else column
    return torch.cat([column, column.new_zeros(len(column), width - column.shape[1])], 1)
