"""What a generator gives for a request: a row of a transcript, and what reports say of it."""

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ChoiceError, StructureError, message
from ...core.language.attempt import Attempt, Heard
from ...core.language.diagnosis import SUCCESS, failure_mode
from ...core.language.episode import total_reward
from ...core.language.transcribe import transcripts
from ...core.record import take
from ...core.transcript import Transcript
from ...core.tree import tree_map

FIGURES = ("reward", "accuracy", "format", "turns", "tool_calls", "tokens")
Packed = tuple[str, tuple[int, ...], bytes]  # a tensor: the name of its dtype, its shape, its bytes


@frozen
class Sample:
    """An attempt that has ended, as a learner reads it."""

    row: Transcript  # [1]
    figures: dict[str, float]  # by the names in FIGURES
    mode: str  # how it went, one of `diagnosis.FAILURE_MODES`
    head: int  # the oldest version of the weights that made its tokens
    tail: int  # the newest
    tokens: int  # how many of them the model sampled

    def __reduce__(self) -> tuple[Any, ...]:
        """Is sent as runs of bytes: tensors sent one by one take a hundred times as long."""
        columns = {name: _packed(value) for name, value in attrs.asdict(self.row, recurse=False).items()}
        return _sent, (columns, self.figures, self.mode, self.head, self.tail, self.tokens)


def _packed(value: Tensor) -> Packed:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), value.detach().cpu().numpy().tobytes()


def _sent(columns: dict[str, Packed], *rest: Any) -> Sample:
    unpacked = {
        name: torch.frombuffer(bytearray(content), dtype=getattr(torch, kind)).reshape(shape)
        for name, (kind, shape, content) in columns.items()
    }
    return Sample(Transcript(**unpacked), *rest)


def samples_of(attempts: Sequence[Attempt[Any]], *, capacity: int, calls: int) -> tuple[Sample, ...]:
    """The samples of attempts at zorplex tasks that have ended, each in a row with room for so many tokens and calls.

    head = min_t version_t,   tail = max_t version_t,   over the tokens that the model sampled
    accuracy is 1 where the task is solved, format where there is an answer; turns are calls of the model.
    Raises: StructureError for an attempt that goes on, or for which there is no room.

    >>> samples_of((), capacity=4, calls=1)
    ()
    """
    if not attempts:
        return ()
    rows = transcripts(attempts, capacity=capacity, calls=calls)
    for attempt, missing in zip(attempts, rows.overflow.tolist(), strict=True):
        if isinstance(attempt.end, tuple):
            remedy = "take it to its end first"
            raise StructureError(message("samples_of: attempt", got="under way", wanted="ended", remedy=remedy))
        if missing:
            where, got = "samples_of: (capacity, calls)", (capacity, calls)
            remedy = "take those that the attempts were made with"
            raise StructureError(message(where, got=got, wanted="room for the attempt", remedy=remedy))
    return tuple(_sample(attempt, take(rows, [place])) for place, attempt in enumerate(attempts))


def samples_of(attempts: Sequence[Attempt[Any]], *, capacity: int, calls: int) -> tuple[Sample, ...]:
    """The samples that ended attempts at zorplex tasks make, whose rows are written together: that is several times faster.

    Raises: ChoiceError for one without a sampled token.

    >>> samples_of((), capacity=4, calls=1)
    ()
    """
    rows = transcripts(attempts, capacity=capacity, calls=calls)
    return tuple(_sample(one, place, rows) for place, one in enumerate(attempts))


def sample_of(attempt: Attempt[Any], *, capacity: int, calls: int) -> Sample:
    """The sample that an ended attempt makes; see `samples_of`. Raises: ChoiceError."""
    return samples_of((attempt,), capacity=capacity, calls=calls)[0]


def _sample(attempt: Attempt[Any], place: int, rows: Transcript) -> Sample:
    said = [piece.said for piece in attempt.pieces if isinstance(piece, Heard)]
    versions = [version for one in said for version in one.versions]
    if not versions:
        remedy = "let the model speak before the attempt ends"
        raise ChoiceError(message("samples_of: attempt", got="without a sampled token", wanted="one", remedy=remedy))
    play = attempt.episode.world
    mode = failure_mode(play)
    figures = (
        total_reward(attempt.episode),
        float(mode == SUCCESS),
        float(play.answer != ()),
        float(len(said)),
        float(play.calls),
        float(len(versions)),
    )
    return Sample(
        row=tree_map(lambda leaf: leaf[place : place + 1].clone(), rows),  # a view would be sent with all rows
        figures=dict(zip(FIGURES, figures, strict=True)),
        mode=mode,
        head=min(versions),
        tail=max(versions),
        tokens=len(versions),
    )


def stacked(samples: Sequence[Sample]) -> Transcript:
    """The rows of N samples of one capacity, in order: [N]. Raises: ChoiceError where there are none."""
    _some("stacked", samples)
    return tree_map(lambda *columns: torch.cat(columns), *[sample.row for sample in samples])


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """The mean of each figure. Raises: ChoiceError where there are no samples.

    >>> made = [Sample((), dict.fromkeys(FIGURES, value), "success", 0, 0, 1) for value in (1.0, 0.0)]
    >>> figures_of(made)["accuracy"]
    0.5
    """
    _some("figures_of", samples)
    return {name: sum(sample.figures[name] for sample in samples) / len(samples) for name in FIGURES}


def _some(where: str, samples: Sequence[Sample]) -> None:
    if not samples:
        raise ChoiceError(message(f"{where}: samples", got="empty", wanted="at least one", remedy="wait for some"))
