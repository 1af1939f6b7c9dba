"""Packing as people get it wrong: each an edit of packing that is right."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.algorithms.packing import Packing
from purestep.core.record import replace
from purestep.core.transcript_scores import token_log_probs


@attrs.frozen
class Packer:
    """What the laws of packing judge."""

    packing: Callable[..., Packing]  # (lengths, capacity, *, width)
    pack: Callable[..., Tensor]  # (packing, column [N, L], blank) -> [R, K]
    unpack: Callable[..., Tensor]  # (packing, column [R, K], blank) -> [N, L]
    segment_mask: Callable[[Tensor], Tensor]  # segment [R, K] -> [R, K, K]
    packed_log_probs: Callable[..., Tensor]  # (packing, logits [R, K, V], tokens [R, K]) -> [R, K]


def _edited(subject: Packer, change: Callable[[Packing], Packing]) -> Packer:
    def packing(lengths: Sequence[int], capacity: int, *, width: int) -> Packing:
        return change(subject.packing(lengths, capacity, width=width))

    return attrs.evolve(subject, packing=packing)


def across(subject: Packer) -> Packer:
    """Lets a token attend to all before it in its row."""

    def segment_mask(segment: Tensor) -> Tensor:
        size = segment.shape[-1]
        return torch.ones((*segment.shape, size), dtype=torch.bool).tril()

    return attrs.evolve(subject, segment_mask=segment_mask)


def running_positions(subject: Packer) -> Packer:
    """Counts positions through the whole row."""
    return _edited(
        subject,
        lambda where: replace(
            where, position=torch.arange(where.position.shape[1]).expand(where.position.shape).clone()
        ),
    )


def scores_firsts(subject: Packer) -> Packer:
    """Scores the first token of a segment with what the segment before it foretold."""

    def packed_log_probs(where: Packing, logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:
        return torch.where(where.segment >= 0, token_log_probs(logits, tokens, **options), 0.0)

    return attrs.evolve(subject, packed_log_probs=packed_log_probs)


def in_packed_order(subject: Packer) -> Packer:
    """Gives sequences back in the order in which they were packed."""

    def change(where: Packing) -> Packing:
        first = where.target[:, 0].where(where.target[:, 0] >= 0, where.source.numel())
        return replace(where, target=where.target[first.argsort(stable=True)])

    return _edited(subject, change)


def one_row_each(subject: Packer) -> Packer:
    """Gives every sequence a row of its own, which is padding with more words."""

    def packing(lengths: Sequence[int], capacity: int, *, width: int) -> Packing:
        found = [subject.packing([length], capacity, width=width) for length in lengths]
        names = ("segment", "position", "source", "target")
        columns = {name: torch.cat([getattr(one, name) for one in found]) for name in names}
        number = torch.arange(len(found))[:, None]
        there = columns["segment"] >= 0
        return Packing(
            segment=torch.where(there, number, -1),
            position=columns["position"],
            source=torch.where(there, columns["source"] + number * width, 0),
            target=torch.where(columns["target"] >= 0, columns["target"] + number * capacity, -1),
        )

    return attrs.evolve(subject, packing=packing)


def leaks_into_padding(subject: Packer) -> Packer:
    """Leaves in the padding whatever the index 0 points to."""

    def pack(where: Packing, column: Tensor, blank: float = 0) -> Tensor:
        return column.flatten(0, 1)[where.source]

    return attrs.evolve(subject, pack=pack)


def drops_ends(subject: Packer) -> Packer:
    """Cuts off what finds no room: a row's last token goes."""

    def change(where: Packing) -> Packing:
        full = where.segment.shape[1] - 1
        target = torch.where(where.target % where.segment.shape[1] == full, -1, where.target)
        return replace(where, target=target)

    return _edited(subject, change)


MUTANTS: dict[str, Callable[[Packer], Packer]] = {"cuts off the last token of a full row": drops_ends}
