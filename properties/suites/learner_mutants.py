"""Learners as people get them wrong: each an edit of one that is right, `factory(model, optimizer) -> LanguageAlgorithm`."""

from collections.abc import Callable
from typing import Any

import attrs
import torch

from ...algorithms.language import LanguageAlgorithm, LanguageState
from ...algorithms.packing import Packing
from ...algorithms.token_batch import Counts, TokenBatch
from ...algorithms.token_policy import Layout
from ...core.causal import CausalModel
from ...core.optim import Optimizer
from ...core.record import replace, take
from ...core.tree import tree_map

Factory = Callable[[CausalModel, Optimizer], LanguageAlgorithm]
Made = Callable[[LanguageAlgorithm], LanguageAlgorithm]
Gradient = Callable[..., Any]


def _edited(change: Made) -> Callable[[Factory], Factory]:
    return lambda subject: lambda model, optimizer: change(subject(model, optimizer))


def _gradient(change: Callable[[LanguageAlgorithm, Gradient], Gradient]) -> Callable[[Factory], Factory]:
    return _edited(lambda one: attrs.evolve(one, gradient=change(one, one.gradient)))


def _batch(change: Callable[[TokenBatch], TokenBatch]) -> Callable[[Factory], Factory]:
    """An edit of what `prepare` makes."""

    def edit(one: LanguageAlgorithm) -> LanguageAlgorithm:
        def prepare(*given: Any) -> Any:
            batch, state, figures = one.prepare(*given)
            return change(batch), state, figures

        return attrs.evolve(one, prepare=prepare)

    return _edited(edit)


def _multiplies(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        left = (batch.behaviour_log_prob * (~batch.mask).double() * 0.0).sum()
        return tree_map(lambda leaf: leaf + left, slopes), sums

    return edited


def _own_counts(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, counts: Counts, *rest: Any) -> Any:
        return gradient(params, batch, one.counts(batch), *rest)

    return edited


def _across(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, counts: Counts, layout: Any = ()) -> Any:
        if isinstance(layout, Layout) and isinstance(layout.packing, Packing):
            where = layout.packing
            one_segment = replace(where, segment=where.segment.clamp(max=0))
            layout = replace(layout, packing=one_segment)
        return gradient(params, batch, counts, layout)

    return edited


def _first_twice(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return tree_map(torch.add, slopes, gradient(params, take(batch, slice(0, 1)), rest[0])[0]), sums

    return edited


def _by_count(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        number = batch.mask.sum().double()
        return tree_map(lambda leaf: leaf * (number / number), slopes), sums

    return edited


def _by_columns(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return tree_map(lambda leaf: leaf / batch.mask.shape[1], slopes), sums

    return edited


def _cold(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        return gradient(params, replace(batch, temperature=torch.ones_like(batch.temperature)), *rest)

    return edited


def _over_padding(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return slopes, replace(sums, tokens=torch.full_like(sums.tokens, batch.mask.numel()))

    return edited


def _decayed(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        after, figures = one.update(state, transcripts)
        return replace(after, params=tree_map(lambda leaf: 0.99 * leaf, after.params)), figures

    return attrs.evolve(one, update=update)


def _twice(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        return one.update(one.update(state, transcripts)[0], transcripts)

    return attrs.evolve(one, update=update)


def _always(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        after, figures = one.update(state, transcripts)
        return replace(after, step=state.step + 1), figures

    return attrs.evolve(one, update=update)


def _centred(batch: TokenBatch) -> TokenBatch:
    mean = batch.advantage.sum() / batch.mask.sum().clamp(min=1)
    return replace(batch, advantage=torch.where(batch.mask, batch.advantage - mean, 0.0))


def _hears(batch: TokenBatch) -> TokenBatch:
    place = torch.arange(batch.mask.shape[1])
    return replace(batch, mask=(place > 0) & (place < batch.length[:, None]))


multiplies_by_mask = _gradient(_multiplies)
own_denominators = _gradient(_own_counts)
across_segments = _gradient(_across)
first_row_twice = _gradient(_first_twice)
divides_by_count = _gradient(_by_count)
divides_by_columns = _gradient(_by_columns)
forgets_temperature = _gradient(_cold)
averages_over_padding = _gradient(_over_padding)
decays = _edited(_decayed)
updates_twice = _edited(_twice)
counts_always = _edited(_always)
centres_over_batch = _batch(_centred)
learns_from_context = _batch(_hears)
turns_advantages = _batch(lambda batch: replace(batch, advantage=-batch.advantage))

MUTANTS: dict[str, Callable[[Factory], Factory]] = {"learns from what tools and users say": learns_from_context}
