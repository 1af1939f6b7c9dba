"""Conversion of attempts to transcripts, the tensor columns that a learner reads."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..record import select
from ..transcript.calls import begin_call, end_call, mark_end, next_turn
from ..transcript.record import (
    ABORT,
    ENV,
    FAILED,
    LENGTH,
    MAX_SEQ_LEN,
    MAX_STEPS,
    NONE,
    STOP,
    TOOL_CALL,
    USER,
    append_context,
    append_sampled,
    empty,
)
from . import events, text_env
from .types import ContextTurn, ModelOutput, ModelTurn, Piece, Rollout, Transcript

FINISH = {events.STOP: STOP, events.LENGTH: LENGTH, events.TOOL_CALL: TOOL_CALL, events.ABORT: ABORT}
REASONS = {text_env.ENV: ENV, text_env.MAX_STEPS: MAX_STEPS, text_env.MAX_SEQ_LEN: MAX_SEQ_LEN}
NOTHING = ModelTurn(said=ModelOutput(ids=(), log_probs=(), versions=()), turn=0, parse_error=False, reward=0.0)


@frozen
class Round:
    """The context before a model call, and the call: () if there was none."""

    told: tuple[ContextTurn, ...]
    heard: ModelTurn | tuple[()]


def transcripts(attempts: Sequence[Rollout[Any]], *, capacity: int, calls: int) -> Transcript:
    """Return the transcripts [N] of attempts, with room for `capacity` tokens and `calls` model calls in each.

    `id` and `group` are those of the attempt's request. Tokens that do not fit are reported in `overflow`. Each row is
    independent of the other attempts.

    >>> transcripts((), capacity=4, calls=1).token.shape
    torch.Size([0, 4])
    """
    who = [attempt.rollout.request for attempt in attempts]
    written = empty(capacity, calls, id=_whole([r.id for r in who]), group=_whole([r.group for r in who]))
    turns = [0] * len(attempts)
    for several in zip_longest(*map(rounds, attempts), fillvalue=Round((), ())):
        written = _told(written, several, turns)
        written = _heard(written, [one.heard for one in several])
        turns = [_turn(one, turn) for one, turn in zip(several, turns, strict=True)]
    written = _turned(written, [attempt.episode.turn - turn for attempt, turn in zip(attempts, turns, strict=True)])
    last = [attempt.episode.steps[-1:] for attempt in attempts]
    raised = [isinstance(attempt.end, text_env.Raised) for attempt in attempts]
    reasons = [attempt.end.reason if isinstance(attempt.end, text_env.Truncated) else "" for attempt in attempts]
    cut = [
        fell or bool(reason) or any(step.truncated for step in steps)
        for fell, reason, steps in zip(raised, reasons, last, strict=True)
    ]
    why = zip(raised, reasons, cut, strict=True)
    return mark_end(
        written,
        torch.tensor([isinstance(attempt.end, text_env.Terminated) for attempt in attempts], dtype=torch.bool),
        torch.tensor(cut, dtype=torch.bool),
        _whole([FAILED if fell else REASONS.get(reason, ENV if was else NONE) for fell, reason, was in why]),
    )


def rounds(attempt: Rollout[Any]) -> tuple[Round, ...]:
    """Return the pieces of an attempt, as one round for each call and one for the context after the last.

    >>> from types import SimpleNamespace
    >>> told = ContextTurn((5,), USER, 0)
    >>> [len(one.told) for one in rounds(SimpleNamespace(pieces=(told, told, NOTHING, told)))]
    [2, 1]
    """
    made: list[Round] = []
    told: tuple[ContextTurn, ...] = ()
    for piece in attempt.pieces:
        if isinstance(piece, ContextTurn):
            told = (*told, piece)
        else:
            made.append(Round(told, piece))
            told = ()
    return (*made, Round(told, ())) if told else tuple(made)


def _told(written: Transcript, several: Sequence[Round], turns: Sequence[int]) -> Transcript:
    """Append the context of a round in each row; `turns` is the number of env steps of each row so far."""
    written = _turned(written, [_turn(one, turn) - turn for one, turn in zip(several, turns, strict=True)])
    ids = [tuple(chain.from_iterable(piece.ids for piece in one.told)) for one in several]
    sources = [tuple(chain.from_iterable((piece.source,) * len(piece.ids) for piece in one.told)) for one in several]
    return append_context(written, _padded(ids, 0), _whole([len(one) for one in ids]), _padded(sources, USER))


def _turned(written: Transcript, ahead: Sequence[int]) -> Transcript:
    """Advance each row by `ahead` env steps."""
    for number in range(max(ahead, default=0)):
        written = select(_whole(ahead) > number, next_turn(written), written)
    return written


def _turn(one: Round, before: int) -> int:
    """Return the number of env steps so far in this round."""
    pieces: tuple[Piece, ...] = (*one.told, one.heard) if isinstance(one.heard, ModelTurn) else one.told
    return max([before, *(piece.turn for piece in pieces)])


def _heard(written: Transcript, several: Sequence[ModelTurn | tuple[()]]) -> Transcript:
    """Append the model outputs, in the rows that have one."""
    known = [NOTHING if isinstance(one, tuple) else one for one in several]
    said = [one.said for one in known]
    begun = begin_call(written, _real([one.temperature for one in said]), _real([one.top_p for one in said]))
    sampled = append_sampled(
        begun,
        _padded([one.ids for one in said], 0),
        _whole([len(one.ids) for one in said]),
        _padded([one.log_probs for one in said], 0.0),
        _padded([one.versions for one in said], 0),
    )
    closed = end_call(
        sampled,
        _whole([FINISH[one.finish_reason] for one in said]),
        torch.tensor([one.parse_error for one in known], dtype=torch.bool),
        _real([one.reward for one in known]),
    )
    return select(torch.tensor([isinstance(one, ModelTurn) for one in several], dtype=torch.bool), closed, written)


def _padded(rows: Sequence[Sequence[float]], blank: float) -> Tensor:
    width = max([1, *map(len, rows)])
    kind = torch.float32 if isinstance(blank, float) else torch.int64
    full = [[*row, *[blank] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=kind).reshape(len(rows), width)


def _whole(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _real(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
