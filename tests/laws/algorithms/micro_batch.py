"""Laws of micro-batches: every sequence once, none over budget, and the same gradients however the batch is split."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core.errors import ChoiceError
from purestep.properties.framework.compare import DOUBLE, require, same
from purestep.properties.framework.law import Broken, Law, Seen, Suite, law_constructor

from .segment_model import Sentences, at_once, in_parts, sentences

# --- mutants ---
# Common errors in micro-batches: each an edit of a right function.


Batches = tuple[tuple[int, ...], ...]


@attrs.frozen
class Batching:
    """The subject of the laws of micro-batches."""

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
    """Leave out the last batch if it is not full: drop_last."""
    return _batches(subject, lambda lengths, budget: subject.micro_batches(lengths, budget)[:-1])


def overlaps(subject: Batching) -> Batching:
    """Begin each batch with the last sequence of the one before."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        first, *others = subject.micro_batches(lengths, budget)
        before = (first, *others)
        return (first, *((old[-1], *new) for old, new in zip(before, others, strict=False)))

    return _batches(subject, change)


def forgets_padding(subject: Batching) -> Batching:
    """Compare the sum of the lengths with the budget, without padding."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        order = [place for batch in subject.micro_batches(lengths, budget) for place in batch]
        return _filled(order, lambda batch: sum(lengths[place] for place in batch) <= budget)

    return _batches(subject, change)


def as_they_come(subject: Batching) -> Batching:
    """Keep the sequences in their order, without sorting."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        def fits(batch: list[int]) -> bool:
            return max(lengths[place] for place in batch) * len(batch) <= budget

        subject.micro_batches(lengths, budget)
        return _filled(range(len(lengths)), fits)

    return _batches(subject, change)


def one_each(subject: Batching) -> Batching:
    """Put every sequence into its own batch."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        return tuple((place,) for batch in subject.micro_batches(lengths, budget) for place in batch)

    return _batches(subject, change)


def too_long_alone(subject: Batching) -> Batching:
    """Put a sequence that exceeds the budget into its own batch, which runs out of memory."""

    def change(lengths: Sequence[int], budget: int) -> Batches:
        return subject.micro_batches([min(length, budget) for length in lengths], budget)

    return _batches(subject, change)


def one_short(subject: Batching) -> Batching:
    """Distribute the micro-batches round-robin, so that some processes have one fewer."""

    def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[Batches, ...]:
        batches = subject.micro_batches(lengths, budget)
        return tuple(batches[rank::ranks] for rank in range(ranks))

    return attrs.evolve(subject, shards=shards)


def same_for_all(subject: Batching) -> Batching:
    """Give every process all micro-batches."""

    def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[Batches, ...]:
        return (subject.micro_batches(lengths, budget),) * ranks

    return attrs.evolve(subject, shards=shards)


MUTANTS: dict[str, Callable[[Batching], Batching]] = {"gives every process everything": same_for_all}


# --- laws ---


LUDIC = "ludic's micro-batching: sorted, longest x count within the budget, every item exactly once"
SPLIT = "TRL 3021, NeMo-RL 84, ms-swift 10117: the loss depends on gradient accumulation"


@attrs.frozen
class Load:
    """Sequences, the budget of a micro-batch, and the number of processes."""

    drawn: Sentences
    budget: int
    ranks: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the sequences."""
        return self.drawn.lengths


@st.composite
def _loads(draw: DrawFn) -> Load:
    drawn = draw(sentences())
    budget = max(1, *drawn.lengths) + draw(st.integers(0, 8))
    return Load(drawn, budget, draw(st.integers(1, 3)))


def micro_batch_laws() -> Suite:
    """The laws of `Batching(micro_batches, shards)`."""
    return Suite("micro_batch_laws", (_once(), _within(), _sorted(), _full(), _refused(), _even(), _gradient()))


_law = law_constructor(_loads, LUDIC)


def _places(batches: Sequence[Sequence[int]]) -> list[int]:
    return sorted(place for batch in batches for place in batch)


def _dealt(subject: Batching, load: Load) -> list[tuple[int, ...]]:
    """The micro-batches of all processes."""
    return [batch for rank in subject.shards(load.lengths, load.budget, ranks=load.ranks) for batch in rank]


def _once() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        batches = subject.micro_batches(load.lengths, load.budget)
        seen("several micro-batches", len(batches) > 1)
        same("the sequences in micro-batches", _places(batches), list(range(len(load.lengths))))

    claim = "Every sequence is in exactly one micro-batch."
    return _law("once", claim, ("drops the last one", drops_the_rest), check, "several micro-batches")


def _within() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        for batch in (*subject.micro_batches(load.lengths, load.budget), *_dealt(subject, load)):
            lengths = [load.lengths[place] for place in batch]
            seen("different lengths in one micro-batch", len(set(lengths)) > 1)
            cost = max(lengths, default=0) * len(batch)
            require(cost <= load.budget, f"a micro-batch of lengths {lengths} costs {cost}, more than {load.budget}")

    mutant = ("forgets that padding costs", forgets_padding)
    claim = "No micro-batch costs more than the budget, padding included."
    return _law("within_budget", claim, mutant, check, "different lengths in one micro-batch")


def _sorted() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        batches = subject.micro_batches(load.lengths, load.budget)
        seen("different lengths", len(set(load.lengths)) > 1)
        found = [load.lengths[place] for batch in batches for place in batch]
        same("the lengths in order", found, sorted(load.lengths, reverse=True))

    claim = "Neighbours in length share a micro-batch, the longest first."
    return _law("by_length", claim, ("takes them as they come", as_they_come), check, "different lengths")


def _full() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        batches = subject.micro_batches(load.lengths, load.budget)
        seen("room for two", any(len(batch) > 1 for batch in batches))
        for batch, after in pairwise(batches):
            longest = max(load.lengths[place] for place in (*batch, after[0]))
            cost = longest * (len(batch) + 1)
            require(cost > load.budget, f"{after[0]} would have fitted beside {batch}")
        alone = [length for length in load.lengths if 2 * length <= load.budget]
        require(len(alone) < 2 or any(len(batch) > 1 for batch in batches), "each sequence has a batch of its own")

    mutant = ("gives each sequence a batch of its own", one_each)
    return _law("filled", "No micro-batch has room for the sequence that comes next.", mutant, check, "room for two")


def _refused() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        place = len(load.lengths) // 2
        lengths = [load.budget + 1 if i == place else length for i, length in enumerate(load.lengths)]
        try:
            subject.micro_batches(lengths, load.budget)
        except ChoiceError as error:
            require(f"sequence {place} is {load.budget + 1}" in str(error), f"the error does not name it: {error}")
            return
        raise Broken(f"a sequence of {load.budget + 1} tokens went into a budget of {load.budget}")

    mutant = ("gives it a batch of its own", too_long_alone)
    return _law("too_long", "A sequence longer than the budget is refused by its place.", mutant, check)


def _even() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        dealt = subject.shards(load.lengths, load.budget, ranks=load.ranks)
        count = len(subject.micro_batches(load.lengths, load.budget))
        seen("a number that does not divide", count % load.ranks)
        same("processes", len(dealt), load.ranks)
        require(len({len(batches) for batches in dealt}) == 1, f"processes have {[len(rank) for rank in dealt]}")
        same("the sequences of all", _places(_dealt(subject, load)), list(range(len(load.lengths))))

    mutant = ("leaves some processes one short", one_short)
    source = "derived: processes wait for each other at every micro-batch"
    claim = "All processes have equally many micro-batches, and together every sequence once."
    return _law("even_shards", claim, mutant, check, "a number that does not divide", source=source)


def _gradient() -> Law:
    def check(subject: Batching, load: Load, seen: Seen) -> None:
        batches = subject.micro_batches(load.lengths, load.budget)
        counts = [int(load.drawn.mask[list(batch)].sum()) for batch in batches]
        seen("micro-batches of different token counts", len(set(counts)) > 1 and min(counts))
        wanted = at_once(load.drawn)
        same("(value, gradient) in micro-batches", in_parts(load.drawn, batches), wanted, DOUBLE)
        same("(value, gradient) on all processes", in_parts(load.drawn, _dealt(subject, load)), wanted, DOUBLE)

    mutant = ("begins each one with the last of the one before", overlaps)
    claim = "Under every reduction with the whole's denominator, micro-batches add up to the whole's gradient."
    needs = "micro-batches of different token counts"
    return _law("gradient_of_the_whole", claim, mutant, check, needs, source=SPLIT, share=0.01)
