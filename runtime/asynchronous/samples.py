"""Samples as they travel from generators to the trainer: what a learner reads of an attempt, and what people do."""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import field, frozen

from ...core.errors import ChoiceError, message
from ...core.language.attempt import Attempt, Heard
from ...core.language.diagnosis import SUCCESS, failure_mode
from ...core.language.episode import total_reward
from ...core.language.transcribe import transcripts
from ...core.transcript import Transcript
from ...core.tree import tree_map

FIGURES = ("reward", "accuracy", "format", "turns", "tool_calls", "tokens")


@frozen
class Sample:
    """An attempt that has ended."""

    row: Transcript = field(repr=False)  # [1]
    figures: dict[str, float]  # `FIGURES`; accuracy and format are 0 or 1
    mode: str  # how it ended, of `core.language.diagnosis`
    head: int  # the oldest version among its tokens
    tail: int  # the newest
    tokens: int  # that were sampled


def sample_of(attempt: Attempt[Any], *, capacity: int, calls: int) -> Sample:
    """The sample that an ended attempt at a zorplex task makes. Raises: ChoiceError for one without a sampled token."""
    said = [piece.said for piece in attempt.pieces if isinstance(piece, Heard)]
    versions = [version for one in said for version in one.versions]
    if not versions:
        remedy = "let the model speak before the attempt ends"
        raise ChoiceError(message("sample_of: attempt", got="without a sampled token", wanted="one", remedy=remedy))
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
        row=transcripts((attempt,), capacity=capacity, calls=calls),
        figures=dict(zip(FIGURES, figures, strict=True)),
        mode=mode,
        head=min(versions),
        tail=max(versions),
        tokens=len(versions),
    )


def stacked(samples: Sequence[Sample]) -> Transcript:
    """The rows of samples, one below the other: Transcript [N]. Raises: ChoiceError for none."""
    if not samples:
        remedy = "wait for a sample"
        raise ChoiceError(message("stacked: samples", got="none", wanted="at least 1", remedy=remedy))
    made: Transcript = tree_map(lambda *leaves: torch.cat(leaves), *[one.row for one in samples])
    return made


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """The mean of each figure.

    >>> one, other = (Sample((), {"reward": reward}, "success", 0, 0, 1) for reward in (1.0, 0.0))
    >>> figures_of([one, other])
    {'reward': 0.5}
    """
    return {name: sum(one.figures[name] for one in samples) / len(samples) for name in samples[0].figures}


def fault(sample: Any, *, capacity: int, calls: int, vocabulary: int) -> str:
    """What of a sample cannot be true, by itself; "" for nothing.

    >>> fault("hello", capacity=4, calls=1, vocabulary=9)
    'str, which is no sample'
    """
    if not isinstance(sample, Sample) or not isinstance(sample.row, Transcript):
        return f"{type(sample).__name__}, which is no sample"
    row = sample.row
    if row.token.shape != (1, capacity) or row.reward.shape != (1, calls):
        return f"a row of {list(row.token.shape)} tokens and {list(row.reward.shape)} calls"
    spoken, version, log_prob = row.is_action[0], row.version[0], row.behaviour_log_prob[0]
    made = version[spoken].tolist()
    if not made or [min(made), max(made), len(made)] != [sample.head, sample.tail, sample.tokens] or min(made) < 0:
        return "versions that are not those of its tokens"
    if not bool(log_prob[spoken].isfinite().all()) or bool((log_prob[spoken] > 1e-4).any()):
        return "log-probs that no token has"
    if bool(((row.token < 0) | (row.token >= vocabulary)).any()):
        return "tokens outside the vocabulary"
    if not bool(row.reward.isfinite().all()) or set(sample.figures) != set(FIGURES):
        return "rewards or figures that are not numbers"
    return ""
