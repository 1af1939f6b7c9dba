"""Ages and capacities as people get them wrong, each an edit around right functions."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core.transcript import ABSENT

Count = Callable[..., int]
Ages = Callable[..., Tensor]


@frozen
class Aging:
    """The functions of `algorithms.staleness`."""

    capacity: Count
    head_staleness: Ages
    tail_staleness: Ages
    standard: Ages
    segment_wise: Ages
    proximal_version: Ages
    recompute_due: Ages


Edit = Callable[[Aging], Aging]


def _capacity(change: Callable[[Count, dict[str, Any]], int]) -> Edit:
    """The edit of a capacity: `change(capacity, arguments)`."""

    def make(aging: Aging) -> Aging:
        def capacity(**given: Any) -> int:
            return change(aging.capacity, given)

        return evolve(aging, capacity=capacity)

    return make


def _after_the_minimum(capacity: Count, given: dict[str, Any]) -> int:
    return capacity(**{**given, "filtered": 0}) + int(given["filtered"])


def _until_used(capacity: Count, given: dict[str, Any]) -> int:
    return capacity(**{**given, "filtered": max(0, given["filtered"] - given["running"])})


def _without_version_zero(capacity: Count, given: dict[str, Any]) -> int:
    return capacity(**{**given, "version": given["version"] or 1})


def tail_for_head(aging: Aging) -> Aging:
    """Knows one version of a sample, the last."""
    return evolve(aging, head_staleness=aging.tail_staleness)


def version_zero_is_none(aging: Aging) -> Aging:
    """Takes 0 for no version."""

    def edited(ages: Ages) -> Ages:
        return lambda version, mask, *rest: ages(torch.where(version == 0, ABSENT, version), mask, *rest)

    return evolve(aging, head_staleness=edited(aging.head_staleness), tail_staleness=edited(aging.tail_staleness))


def looks_at_padding(aging: Aging) -> Aging:
    """Takes the versions of all columns."""

    def edited(ages: Ages) -> Ages:
        return lambda version, mask, *rest: ages(version, torch.ones_like(mask), *rest)

    return evolve(aging, head_staleness=edited(aging.head_staleness), tail_staleness=edited(aging.tail_staleness))


def recomputed_zero_is_none(aging: Aging) -> Aging:
    """`recomputed or -1`."""

    def segment_wise(version: Tensor, mask: Tensor, recomputed: Tensor, current: Any, *, bound: int) -> Tensor:
        return aging.segment_wise(version, mask, torch.where(recomputed == 0, ABSENT, recomputed), current, bound=bound)

    return evolve(aging, segment_wise=segment_wise)


def filters_all_the_same(aging: Aging) -> Aging:
    """Has one strategy under two names."""
    return evolve(aging, standard=aging.segment_wise)


def recomputes_everything(aging: Aging) -> Aging:
    """Sets all segments' log-probs again."""
    return evolve(aging, recompute_due=lambda version, mask, current: mask & (version >= 0) & (version < current))


after_the_minimum = _capacity(_after_the_minimum)
until_used = _capacity(_until_used)

MUTANTS: dict[str, Edit] = {
    "counts versions from 1": _capacity(_without_version_zero),
    "takes the versions of padding": looks_at_padding,
    "takes the newest version for the proximal one": lambda aging: evolve(
        aging,
        proximal_version=lambda version, current: torch.where(version >= 0, current, ABSENT),
        recompute_due=lambda version, mask, current: mask & (version >= 0) & (version < current),
    ),
}
