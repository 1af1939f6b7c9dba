"""Samples from generators: a row of a transcript, with the figures that reports need."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...core.check import check
from ...core.errors import ChoiceError, PurestepError, StructureError, message
from ...core.language.episode import total_reward
from ...core.language.equal_rewards import AttemptSummary
from ...core.language.task import TextTask
from ...core.language.text_env import Raised
from ...core.language.to_transcript import transcripts
from ...core.language.types import ModelTurn, Parts, Rollout, Sample, Transcript
from ...core.record import take
from ...core.transcript.record import FAILED, LENGTH
from ...core.tree import tree_map
from ..machine.json_codec import fits
from ..text.columns import figure_of, label_of
from ..text.conversations import named_rewards
from ..text.evaluation import ACCURACY

OWN = ("reward", "turns", "tokens")  # figures of any task's samples


def figure_names(task: TextTask) -> tuple[str, ...]:
    """Return the names of a sample's figures: those of any task, and the task's own."""
    return (*OWN, *task.figures)


def samples_of(task: TextTask, attempts: Sequence[Rollout[Any]], *, capacity: int, calls: int) -> tuple[Sample, ...]:
    """Return the samples of finished attempts at a task, each in a row with room for this many tokens and calls.

    head = min_t version_t,   tail = max_t version_t,   over the tokens that the model sampled; turns are calls of the model.
    Raises: StructureError for an attempt that is under way, or for which there is no room.
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
    return tuple(_sample(task, attempt, take(rows, [place])) for place, attempt in enumerate(attempts))


def _sample(task: TextTask, attempt: Rollout[Any], row: Transcript) -> Sample:
    said = [piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)]
    versions = [version for one in said for version in one.versions]
    if not versions:
        remedy = "let the model speak before the attempt ends"
        raise ChoiceError(message("samples_of: attempt", got="without a sampled token", wanted="one", remedy=remedy))
    figures = dict(zip(OWN, (total_reward(attempt.episode), float(len(said)), float(len(versions))), strict=True))
    return Sample(
        row=row,
        figures={**figures, **{name: figure_of(task, name, figure, attempt) for name, figure in task.figures.items()}},
        mode=label_of(task, attempt),
        head=min(versions),
        tail=max(versions),
        tokens=len(versions),
        raised=attempt.end.error if isinstance(attempt.end, Raised) else "",
        parts=named_rewards(attempt),
    )


def summary_of_sample(sample: Sample) -> AttemptSummary:
    """Return the summary of a finished attempt, as `text.equal_rewards.summary_of` the attempt's own."""
    row, calls = sample.row, int(sample.row.calls[0])
    return AttemptSummary(
        group=int(row.group[0]),
        reward=sample.figures["reward"],
        solved=sample.figures.get(ACCURACY) == 1.0,
        cut_off=calls > 0 and int(row.finish_reason[0, calls - 1]) == LENGTH,
        error=sample.raised,
    )


def stacked(samples: Sequence[Sample]) -> Transcript:
    """Return the rows of N samples of one capacity, in order: [N]. Raises: ChoiceError for no samples."""
    _some("stacked", samples)
    made: Transcript = tree_map(lambda *columns: torch.cat(columns), *[sample.row for sample in samples])
    return made


def mean_figures(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the mean of each figure. Raises: ChoiceError where there are no samples.

    >>> made = [Sample((), {"accuracy": value}, "success", 0, 0, 1) for value in (1.0, 0.0)]
    >>> mean_figures(made)["accuracy"]
    0.5
    """
    _some("figures_of", samples)
    return {name: sum(sample.figures[name] for sample in samples) / len(samples) for name in samples[0].figures}


def _some(where: str, samples: Sequence[Sample]) -> None:
    if not samples:
        raise ChoiceError(message(f"{where}: samples", got="empty", wanted="at least one", remedy="wait for some"))


def sample_fault(task: TextTask, sample: Any, *, capacity: int, calls: int, vocabulary: int) -> str:
    """Return the first fault of a received sample that can be seen from the sample alone; "" if there is none.

    >>> sample_fault((), "hello", capacity=4, calls=1, vocabulary=9)
    'str, which is no sample'
    """
    if not isinstance(sample, Sample) or not isinstance(sample.row, Transcript):
        return f"{type(sample).__name__}, which is no sample"
    try:
        row = check(sample.row, (1,))
    except PurestepError as wrong:  # a malformed sample is reported, and must not stop the receiver
        return str(wrong)
    if row.token.shape != (1, capacity) or row.reward.shape != (1, calls):
        return f"a row of {list(row.token.shape)} tokens and {list(row.reward.shape)} calls"
    return _fault_of_row(row, vocabulary) or _fault_of_summary(task, sample)


def _fault_of_row(row: Transcript, vocabulary: int) -> str:
    spoken, log_prob = row.is_action[0], row.behaviour_log_prob[0]
    length, room = int(row.length[0]), len(spoken)
    found = (
        (not 0 < length <= room or int(row.overflow[0]), "a length that its room does not have"),
        (not spoken.any() or spoken[max(0, length) :].any(), "sampled tokens behind its end, or none"),
        ((row.version[0][spoken] < 0).any(), "versions that are not those of its tokens"),
        (not log_prob.isfinite().all() or (log_prob > 1e-4).any(), "log-probs that no token has"),
        (((row.token < 0) | (row.token >= vocabulary)).any(), "tokens outside the vocabulary"),
        (not row.reward.isfinite().all(), "rewards or figures that are not numbers"),
        (not (row.terminated | row.truncated).all(), "no end"),
    )
    return next((sample_fault for wrong, sample_fault in found if bool(wrong)), "")


def _fault_of_summary(task: TextTask, sample: Sample) -> str:
    made = sample.row.version[sample.row.is_action].tolist()
    if (min(made), max(made), len(made)) != (sample.head, sample.tail, sample.tokens):
        return "versions that are not those of its tokens"
    figures = sample.figures
    named = isinstance(figures, dict) and set(figures) == set(figure_names(task))
    if not named or not all(isinstance(value, float) and math.isfinite(value) for value in figures.values()):
        return "rewards or figures that are not numbers"
    if sample.final:
        return "proximal log-probs, which the trainer sets"
    if not fits(sample.parts, Parts):
        return "parts of a reward that are not names and numbers"
    if not isinstance(sample.raised, str) or bool(sample.raised) != (int(sample.row.reason[0]) == FAILED):
        return "an error that its end does not have"
    return "" if sample.mode in task.labels else "an end that no attempt has"
