"""Columns of transcripts as people get them wrong: each an edit of what is right."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.algorithms.token_batch import Counts, TokenBatch
from purestep.core.record import replace
from purestep.core.transcript import Transcript
from purestep.core.transcript_calls import per_token


@attrs.frozen
class Columns:
    """What the laws of columns judge."""

    token_batch: Callable[[Transcript], TokenBatch]
    token_rewards: Callable[[Transcript], Tensor]
    numbered: Callable[[Tensor], Tensor]
    counts: Callable[..., Counts]  # (batch, *, of)


def _rewarding(change: Callable[[Columns, Transcript], Tensor]) -> Callable[[Columns], Columns]:
    return lambda subject: attrs.evolve(subject, token_rewards=lambda said: change(subject, said))


def _batch(change: Callable[[TokenBatch, Transcript], TokenBatch]) -> Callable[[Columns], Columns]:
    return lambda subject: attrs.evolve(subject, token_batch=lambda said: change(subject.token_batch(said), said))


def counts_rows(subject: Columns) -> Columns:
    """Counts sequences in which nothing counts as well."""

    def counts(batch: TokenBatch, **named: Any) -> Counts:
        told = subject.counts(batch, **named)
        return replace(told, sequences=torch.full_like(told.sequences, len(batch.length)))

    return attrs.evolve(subject, counts=counts)


def ids_as_numbers(subject: Columns) -> Columns:
    """Takes ids for numbers, the largest for all that are too large."""
    return attrs.evolve(subject, numbered=lambda group: group.clamp(-1, len(group) - 1))


pays_every_token = _rewarding(lambda right, said: torch.where(said.is_action, per_token(said, said.reward), 0.0))
forgets_silent_calls = _rewarding(
    lambda right, said: torch.where(right.token_rewards(said) != 0, per_token(said, said.reward), 0.0)
)
learns_twice = _batch(lambda batch, said: replace(batch, mask=said.is_action.clone(), sampled=said.is_action.clone()))
divides_by_0 = _batch(lambda batch, said: replace(batch, temperature=per_token(said, said.temperature, 1.0)))

MUTANTS: dict[str, Callable[[Columns], Columns]] = {"forgets what a silent call earned": forgets_silent_calls}
