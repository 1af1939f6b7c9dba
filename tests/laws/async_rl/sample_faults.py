"""Samples with impossible values, one fault each, by the name of the fault."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.language.types import Sample
from purestep.core.record import replace

Spoil = Callable[[Sample], Any]
NOTHING: Any = ()
PARTS: Any = (0.5,)


def _row(**change: Callable[[Tensor], Tensor]) -> Spoil:
    """The fault that changes columns of the row."""

    def spoil(sample: Sample) -> Sample:
        new = {name: edit(getattr(sample.row, name)) for name, edit in change.items()}
        return evolve(sample, row=replace(sample.row, **new))

    return spoil


def _sampled(name: str, value: float) -> Spoil:
    """The fault that gives the first sampled token this value in a column."""

    def spoil(sample: Sample) -> Sample:
        first = sample.row.is_action & (sample.row.is_action.cumsum(-1) == 1)
        column = getattr(sample.row, name)
        new = torch.where(first, torch.tensor(value, dtype=column.dtype), column)
        return evolve(sample, row=replace(sample.row, **{name: new}))

    return spoil


def _more(name: str, by: int) -> Spoil:
    return lambda sample: evolve(sample, **{name: getattr(sample, name) + by})


def _figure(value: Any) -> Spoil:
    return lambda sample: evolve(sample, figures={**sample.figures, "reward": value})


def _wider(sample: Sample) -> Sample:
    columns = {name: getattr(sample.row, name) for name in vars(sample.row)}
    size = sample.row.token.shape[-1]
    new = {
        name: torch.cat([column, column[:, -1:]], -1)
        for name, column in columns.items()
        if column.ndim == 2 and column.shape[-1] == size
    }
    return evolve(sample, row=replace(sample.row, **new))


SPOILED: dict[str, Spoil] = {
    "no sample in it": lambda sample: "hello",
    "no row": lambda sample: evolve(sample, row=NOTHING),
    "a column of numbers that are no tensor": lambda sample: evolve(sample, row=replace(sample.row, version=[0])),
    "a row of another capacity": _wider,
    "a column of another length": _row(version=lambda column: column[:, 1:]),
    "tokens that are no whole numbers": _row(token=lambda column: column.to(torch.float32)),
    "a token below the vocabulary": _sampled("token", -1),
    "a token beyond the vocabulary": _sampled("token", 262),
    "a log-prob that is no number": _sampled("behaviour_log_prob", float("nan")),
    "a log-prob of nothing": _sampled("behaviour_log_prob", float("-inf")),
    "a log-prob above 0": _sampled("behaviour_log_prob", 0.5),
    "a token of no version": _sampled("version", -1),
    "a token of another version": _sampled("version", 9),
    "a sampled token behind its end": _row(is_action=lambda column: torch.ones_like(column)),
    "no sampled token": _row(is_action=lambda column: torch.zeros_like(column)),
    "a length beyond its room": _row(length=lambda column: column + 10**6),
    "no length": _row(length=lambda column: torch.zeros_like(column)),
    "something that found no room": _row(overflow=lambda column: column + 1),
    "a reward that is no number": _row(reward=lambda column: column * float("nan")),
    "no end": _row(terminated=lambda column: column & False, truncated=lambda column: column & False),
    "another head": _more("head", -1),
    "another tail": _more("tail", 1),
    "another number of tokens": _more("tokens", 1),
    "a figure that is no number": _figure(float("inf")),
    "a figure that is a text": _figure("high"),
    "a figure of another name": lambda sample: evolve(sample, figures={**sample.figures, "luck": 1.0}),
    "no figures": lambda sample: evolve(sample, figures=NOTHING),
    "parts of a reward without names": lambda sample: evolve(sample, parts=PARTS),
    "an end of no known kind": lambda sample: evolve(sample, mode="luck"),
}
