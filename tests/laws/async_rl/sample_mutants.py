"""Samples as people get them wrong: edits of what is made of attempts, and of what is found in it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve

from purestep.core.record import replace
from purestep.core.transcript import Transcript
from purestep.core.tree import tree_map
from purestep.runtime.asynchronous.samples import Sample

from .conversations import AnyAttempt, Writing, versions_of


def _making(change: Callable[[AnyAttempt, Sample], Sample]) -> Callable[[Writing], Writing]:
    """The edit that changes each sample: `change(attempt, sample)`."""

    def make(writing: Writing) -> Writing:
        def samples_of(attempts: Sequence[AnyAttempt], **room: int) -> tuple[Sample, ...]:
            made = writing.samples_of(attempts, **room)
            return tuple(change(attempt, sample) for attempt, sample in zip(attempts, made, strict=True))

        return evolve(writing, samples_of=samples_of)

    return make


def row_before(writing: Writing) -> Writing:
    """Is off by one among the rows that were written together."""

    def samples_of(attempts: Sequence[AnyAttempt], **room: int) -> tuple[Sample, ...]:
        made = writing.samples_of(attempts, **room)
        return tuple(evolve(sample, row=made[place - 1].row) for place, sample in enumerate(made))

    return evolve(writing, samples_of=samples_of)


def _figured(sample: Sample, **values: float) -> Sample:
    return evolve(sample, figures={**sample.figures, **values})


def _first_is_head(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, head=versions_of(attempt)[0])


def _last_is_tail(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, tail=versions_of(attempt)[-1])


def _all_tokens(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, tokens=len(attempt.ids))


def stacked_by_id(writing: Writing) -> Writing:
    """Sorts rows by their requests on the way."""

    def stacked(samples: Sequence[Sample]) -> Transcript:
        return writing.stacked(sorted(samples, key=lambda sample: int(sample.row.id[0])))

    return evolve(writing, stacked=stacked)


def sends_halves(writing: Writing) -> Writing:
    """Saves bytes: floats go through bfloat16, as weights may."""

    def halved(column: torch.Tensor) -> torch.Tensor:
        return column.to(torch.bfloat16).to(column.dtype) if column.is_floating_point() else column

    def sent(sample: Sample) -> Sample:
        row: Transcript = tree_map(halved, writing.sent(sample).row)
        return evolve(sample, row=row)

    return evolve(writing, sent=sent)


def _blind(name: str, value: float) -> Callable[[Writing], Writing]:
    """The edit that does not look at a column."""

    def make(writing: Writing) -> Writing:
        def fault(sample: Any, **room: int) -> str:
            if isinstance(sample, Sample) and isinstance(sample.row, Transcript):
                column = torch.full_like(getattr(sample.row, name), value)
                sample = evolve(sample, row=replace(sample.row, **{name: column}))
            return writing.fault(sample, **room)

        return evolve(writing, fault=fault)

    return make


def _takes_any_summary(writing: Writing) -> Writing:
    """Believes what is said beside a row."""

    def fault(sample: Any, **room: int) -> str:
        if isinstance(sample, Sample) and isinstance(sample.row, Transcript):
            made = sample.row.version[sample.row.is_action].tolist() or [0]
            sample = evolve(sample, head=min(made), tail=max(made), tokens=len(made))
        return writing.fault(sample, **room)

    return evolve(writing, fault=fault)


def _wants_version_one(writing: Writing) -> Writing:
    """Takes version 0 for none."""

    def fault(sample: Any, **room: int) -> str:
        zero = isinstance(sample, Sample) and sample.head == 0
        return "a version that is none" if zero else writing.fault(sample, **room)

    return evolve(writing, fault=fault)


first_is_head = _making(_first_is_head)
strict_format = _making(lambda attempt, sample: _figured(sample, format=sample.figures["accuracy"]))
any_log_prob = _blind("behaviour_log_prob", 0.0)
MUTANTS: dict[str, Callable[[Writing], Writing]] = {
    "takes the last token's version for the newest": _making(_last_is_tail),
    "counts what the model was told": _making(_all_tokens),
    "counts turns of the world that lie behind": _making(
        lambda attempt, sample: _figured(sample, turns=float(attempt.episode.turn))
    ),
    "pays the last call alone": _making(
        lambda attempt, sample: _figured(sample, reward=attempt.episode.steps[-1].reward)
    ),
    "does not look at rewards": _blind("reward", 0.0),
    "does not look at what found no room": _blind("overflow", 0),
    "believes what is said beside a row": _takes_any_summary,
    "takes version 0 for none": _wants_version_one,
}
