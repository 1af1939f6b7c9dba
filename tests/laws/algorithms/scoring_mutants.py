"""Scores of tokens as people get them wrong: each an edit of scores that are right."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from purestep.algorithms.packing import Packing
from purestep.algorithms.token_policy import Layout, Scores
from purestep.core.record import replace

Scored = Callable[..., Scores]  # (model, params, token, length, temperature, *, layout)


def _result(change: Callable[[Scores], Scores]) -> Callable[[Scored], Scored]:
    return lambda subject: lambda *given, **named: change(subject(*given, **named))


def _given(change: Callable[..., tuple[Any, ...]]) -> Callable[[Scored], Scored]:
    return lambda subject: lambda *given, **named: subject(*change(*given), **named)


def _layout(change: Callable[[Layout], Layout]) -> Callable[[Scored], Scored]:
    def make(subject: Scored) -> Scored:
        def edited(*given: Any, layout: Any = ()) -> Scores:
            return subject(*given, layout=change(layout) if isinstance(layout, Layout) else layout)

        return edited

    return make


def _values_moved(scores: Scores) -> Scores:
    values: Tensor = scores.values
    return replace(scores, values=torch.cat([values[:, 1:], scores.beyond[:, None]], 1))


def _one_segment(layout: Layout) -> Layout:
    where = layout.packing
    if not isinstance(where, Packing):
        return layout
    return replace(layout, packing=replace(where, segment=where.segment.clamp(max=0)))


shifted = _result(lambda scores: replace(scores, log_prob=scores.log_prob.roll(-1, 1)))
at_one = _given(lambda model, params, token, length, heat: (model, params, token, length, torch.ones_like(heat)))
of_full_rows = _given(
    lambda model, params, token, length, heat: (model, params, token, torch.full_like(length, token.shape[1]), heat)
)
values_at_the_token = _result(_values_moved)
negative_entropy = _result(lambda scores: replace(scores, entropy=-scores.entropy))
across_segments = _layout(_one_segment)
loses_the_last_place = _layout(
    lambda layout: layout if isinstance(layout.places, tuple) else replace(layout, places=layout.places[:-1])
)

MUTANTS: dict[str, Callable[[Scored], Scored]] = {"counts entropy from below": negative_entropy}
