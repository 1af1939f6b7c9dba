"""Layout of a batch's sequences for the model: their micro-batches, column widths, or packing into rows."""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...algorithms.language.micro_batches import Batch, check_lengths, micro_batches, padded_tokens
from ...algorithms.language.packing import packed_rows, packing
from ...algorithms.language.scoring import SequenceLayout
from ...core.record import replace
from ...core.transcript.record import TOKEN_BLANKS, Transcript
from ...core.tree import tree_map


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
    """Return a column [n, w] with `width` of them: cut, or filled with 0; [n] stays."""
    if column.ndim < 2 or column.shape[1] >= width:
        return column[:, :width] if column.ndim > 1 else column
    return torch.cat([column, column.new_zeros(len(column), width - column.shape[1])], 1)
