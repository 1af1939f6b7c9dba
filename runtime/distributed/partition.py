"""Partition of a batch's sequences over processes: the same number of parts for each, so that collectives match.

    deal = by_tokens(16_384, ranks=8)
    deal([70, 900, 12])[rank]          the parts of a process, one after the other

A process with nothing left gets parts without sequences: it computes one token that counts nowhere, since the others
cannot gather weights or reduce gradients without it. Losses and gradients of parts add up to those of the batch for any
deal, because all are divided by the counts of the whole batch: see `aggregate`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from ...algorithms.language.packing import (
    SequenceBatch,
    SequenceLayout,
    check_lengths,
    packed_batches,
    padded_batches,
    shards,
    trimmed,
    with_width,
)
from ...core.errors import ChoiceError, message
from ...core.language.types import TokenBatch, Transcript
from ...core.record import replace, take
from ...core.transcript.log_probs import loss_mask
from ...core.tree import tree_map

# lengths -> equally many parts for each process
Deal = Callable[[Sequence[int]], tuple[tuple[SequenceBatch, ...], ...]]
NOBODY = SequenceBatch(rows=(), width=1, cost=1)


def by_tokens(budget: int, *, ranks: int, packed: int | tuple[()] = ()) -> Deal:
    """Return a deal of parts of at most `budget` tokens, padding included; the k-th parts of all processes cost about the same.

    `packed` is the capacity of a row into which several sequences are packed. The deal raises ChoiceError for a sequence
    longer than the budget, with its index. Raises: ChoiceError.

    >>> deal = by_tokens(6, ranks=2)
    >>> [[part.rows for part in own] for own in deal([2, 5, 3, 1, 2])]
    [[(1,), (0,)], [(4, 3), (2,)]]
    """
    _positive("by_tokens", budget=budget, ranks=ranks)
    if not isinstance(packed, tuple) and not 1 <= packed <= budget:
        remedy = "pack into rows within the budget"
        raise ChoiceError(message("by_tokens: packed", got=packed, wanted=f"from 1 to {budget}", remedy=remedy))

    def padded(lengths: Sequence[int]) -> tuple[tuple[SequenceBatch, ...], ...]:
        own = [max(1, length) for length in lengths]
        return deal_sequences(own, shards(own, budget, ranks=ranks))

    def in_rows(lengths: Sequence[int], capacity: int) -> tuple[tuple[SequenceBatch, ...], ...]:
        return _in_turn(packed_batches(lengths, range(len(lengths)), budget, capacity) if lengths else [], ranks)

    return padded if isinstance(packed, tuple) else partial(in_rows, capacity=packed)


def by_batches(budget: int, *, ranks: int) -> Deal:
    """Return a deal of the parts that one process makes of a batch, which do not depend on the number of processes.

    So the result of each part has the same bits for any number of ranks, and only the order in which parts are added differs.
    `by_tokens` wastes less: here a process may have a part less, and costs differ. The deal raises ChoiceError for a sequence
    longer than the budget, with its index. Raises: ChoiceError.

    >>> deal = by_batches(6, ranks=2)
    >>> [[part.rows for part in own] for own in deal([2, 5, 3, 1, 2])]
    [[(1,), (4, 3)], [(2, 0), ()]]
    """
    _positive("by_batches", budget=budget, ranks=ranks)

    def deal(lengths: Sequence[int]) -> tuple[tuple[SequenceBatch, ...], ...]:
        return _in_turn(padded_batches(lengths, range(len(lengths)), budget), ranks)

    return deal


def deal_sequences(
    lengths: Sequence[int], places: Sequence[Sequence[Sequence[int]]]
) -> tuple[tuple[SequenceBatch, ...], ...]:
    """Return the parts of a given deal: the sequences of each micro-batch of each process; `()` is one without any.

    Raises: ChoiceError unless every sequence occurs exactly once and all processes have the same number of micro-batches.

    >>> [[(part.rows, part.width) for part in own] for own in deal_sequences([3, 5], [[(1, 0)], [()]])]
    [[((1, 0), 5)], [((), 1)]]
    """
    found = sorted(place for own in places for batch in own for place in batch)
    if found != list(range(len(lengths))) or len({len(own) for own in places}) > 1:
        got = f"{[len(own) for own in places]} micro-batches of the sequences {found[:8]}"
        wanted = f"as many for each rank, and 0 to {len(lengths) - 1} once each"
        remedy = "deal every sequence once, and fill up with ()"
        raise ChoiceError(message("placed: places", got=got, wanted=wanted, remedy=remedy))
    limit = max([1, *lengths])
    check_lengths("placed", lengths, limit, "pass lengths, not differences")
    return tuple(tuple(_part(lengths, batch) for batch in own) for own in places)


def _positive(where: str, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            remedy = "pass a positive number"
            raise ChoiceError(message(f"{where}: {name}", got=value, wanted="at least 1", remedy=remedy))


def _in_turn(found: Sequence[SequenceBatch], ranks: int) -> tuple[tuple[SequenceBatch, ...], ...]:
    """Return parts dealt out in turn; the last round is filled up with parts without sequences."""
    rounds = -(-len(found) // ranks)
    full = [*found, *[NOBODY] * (rounds * ranks - len(found))]
    return tuple(tuple(full[rank::ranks]) for rank in range(ranks))


def _part(lengths: Sequence[int], places: Sequence[int]) -> SequenceBatch:
    if not places:
        return NOBODY
    (part,) = padded_batches(lengths, list(places), max(1, *(lengths[place] for place in places)) * len(places))
    return part


def piece(batch: TokenBatch, part: SequenceBatch) -> tuple[TokenBatch, SequenceLayout]:
    """Return the part of a batch, and its layout for the model. In a part without sequences no token counts.

    >>> from ...algorithms.language.batch import token_batch
    >>> from ...core.transcript.record import empty
    >>> batch = token_batch(empty(4, 1, id=torch.arange(2)))
    >>> some, layout = piece(replace(batch, mask=batch.mask | True), NOBODY)
    >>> some.mask, layout.places
    (tensor([[False]]), tensor([], dtype=torch.int64))
    """
    some = tree_map(lambda leaf: with_width(leaf, part.width), take(batch, _rows(part)))
    if not part.rows:
        none = torch.zeros_like(some.mask)
        some = replace(some, mask=none, sampled=none.clone(), length=torch.ones_like(some.length))
    return some, part.layout(some.mask)


def unread_piece(transcripts: Transcript, part: SequenceBatch) -> tuple[Transcript, SequenceLayout]:
    """Return the part of transcripts, before they are made a batch, and its layout for the model.

    >>> from ...core.transcript.record import empty
    >>> some, layout = unread_piece(empty(4, 1, id=torch.arange(2)), SequenceBatch(rows=(1,), width=2, cost=2))
    >>> some.id, some.token.shape, layout.places
    (tensor([1]), torch.Size([1, 2]), tensor([], dtype=torch.int64))
    """
    some = trimmed(take(transcripts, _rows(part)), part.width)
    if not part.rows:
        some = replace(some, is_action=torch.zeros_like(some.is_action), length=torch.ones_like(some.length))
    return some, part.layout(loss_mask(some))


def _rows(part: SequenceBatch) -> list[int]:
    return list(part.rows) or [0]
