"""Micro-batches as people get them wrong: each an edit of what is right."""

from collections.abc import Callable, Sequence

import attrs

Batches = tuple[tuple[int, ...], ...]


@attrs.frozen
class Batching:
    """What the laws of micro-batches judge."""

    micro_batches: Callable[[Sequence[int], int], Batches]  # (lengths, budget)
    shards: Callable[..., tuple[Batches, ...]]  # (lengths, budget, *, ranks)


def _batches(subject: Batching, change: Callable[[Sequence[int], int], Batches]) -> Batching:
    return attrs.evolve(subject, micro_batches=change)


def _filled(order: Sequence[int], fits: Callable[[list[int]], bool]) -> Batches:
    found: list[list[int]] = []
    for place in order:
        if found and fits([*found[-1], place]):
            found[-1].append(place)
        else:
            found.append([place])
    return tuple(map(tuple, found))


def drops_the_rest(subject: Batching) -> Batching:
    """Leaves out the last batch, which is not full: drop_last."""
    return _batches(subject, lambda lengths, budget: subject.micro_batches(lengths, budget)[:-1])


def overlaps(subject: Batching) -> Batching:
    """Begins each batch with the last sequence of the one before."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        first, *others = subject.micro_batches(lengths, budget)
        before = (first, *others)
        return (first, *((old[-1], *new) for old, new in zip(before, others, strict=False)))

    return _batches(subject, change)


def forgets_padding(subject: Batching) -> Batching:
    """Fills up to the sum of the lengths."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        order = [place for batch in subject.micro_batches(lengths, budget) for place in batch]
        return _filled(order, lambda batch: sum(lengths[place] for place in batch) <= budget)

    return _batches(subject, change)


def as_they_come(subject: Batching) -> Batching:
    """Does not sort."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        def fits(batch: list[int]) -> bool:
            return max(lengths[place] for place in batch) * len(batch) <= budget

        subject.micro_batches(lengths, budget)
        return _filled(range(len(lengths)), fits)

    return _batches(subject, change)


def one_each(subject: Batching) -> Batching:
    """Gives every sequence a batch of its own."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        return tuple((place,) for batch in subject.micro_batches(lengths, budget) for place in batch)

    return _batches(subject, change)


def too_long_alone(subject: Batching) -> Batching:
    """Gives a sequence that is too long a batch of its own, and runs out of memory there."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        return subject.micro_batches([min(length, budget) for length in lengths], budget)

    return _batches(subject, change)


def one_short(subject: Batching) -> Batching:
    """Deals micro-batches out until there are none left, so that some processes have one less."""

    def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[Batches, ...]:
        batches = subject.micro_batches(lengths, budget)
        return tuple(batches[rank::ranks] for rank in range(ranks))

    return attrs.evolve(subject, shards=shards)


def same_for_all(subject: Batching) -> Batching:
    """Gives every process everything."""

    def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[Batches, ...]:
        return (subject.micro_batches(lengths, budget),) * ranks

    return attrs.evolve(subject, shards=shards)


MUTANTS: dict[str, Callable[[Batching], Batching]] = {"gives every process everything": same_for_all}
