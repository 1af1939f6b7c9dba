"""Reductions as people get them wrong: each an edit of one that is right."""

from collections.abc import Callable

import attrs
import torch
from torch import Tensor


@attrs.frozen
class Reduction:
    """What the laws of reductions judge."""

    reduce: Callable[..., Tensor]  # (loss [N, L], mask [N, L], *, denominator) -> [], or without a denominator
    denominator: Callable[[Tensor], Tensor | float]  # of a mask [N, L]: what it divides by unless told otherwise


def multiplies_by_mask(subject: Reduction) -> Reduction:
    """0 times NaN is NaN."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) + (loss * ~mask).sum() * 0.0

    return attrs.evolve(subject, reduce=reduce)


def mean_over_all(subject: Reduction) -> Reduction:
    """Shrinks the loss as the padding grows."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) * (mask.sum() / mask.numel())

    return attrs.evolve(subject, reduce=reduce)


def divides_by_nothing(subject: Reduction) -> Reduction:
    """0 / 0 where no token counts."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        count = mask.sum()
        return subject.reduce(loss, mask, **denominator) * count / count

    return attrs.evolve(subject, reduce=reduce)


def fresh_zero(subject: Reduction) -> Reduction:
    """A zero of its own, without a graph: the backward pass of this one process then waits for nobody, or fails."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) if mask.any() else torch.zeros(())

    return attrs.evolve(subject, reduce=reduce)


def own_denominator(subject: Reduction) -> Reduction:
    """Every micro-batch divides by its own number."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask)

    return attrs.evolve(subject, reduce=reduce)


def first_row(subject: Reduction) -> Reduction:
    """Takes the first sequence's length for everybody's."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) * (1.0 + mask[0].sum())

    return attrs.evolve(subject, reduce=reduce)


def long_weigh_more(subject: Reduction) -> Reduction:
    """Weighs each sequence by its length once more."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss * mask.sum(-1, keepdim=True), mask, **denominator)

    return attrs.evolve(subject, reduce=reduce)


def squares(subject: Reduction) -> Reduction:
    """Is no sum any more."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss * loss.abs(), mask, **denominator)

    return attrs.evolve(subject, reduce=reduce)


MUTANTS: dict[str, Callable[[Reduction], Reduction]] = {"squares the losses": squares}
