"""Laws of partitions of a batch: every sequence on one rank, equal numbers of parts, and no token of an empty part counts."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.algorithms.language.batch import token_batch
from purestep.algorithms.language.packing import SequenceBatch
from purestep.core.errors import ChoiceError
from purestep.core.language.types import TokenBatch
from purestep.core.record import replace
from purestep.core.transcript.record import empty
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Broken, Law, Seen, Suite, law_constructor
from purestep.runtime.distributed import partition
from purestep.runtime.distributed.partition import Deal

# --- mutants ---
# Common errors in partitions of a batch over ranks; each an edit of a right function.


@attrs.frozen
class Dealing:
    """The subject of the laws of partitions."""

    by_tokens: Callable[..., Deal]
    by_parts: Callable[..., Deal]
    placed: Callable[[Sequence[int], Sequence[Sequence[Sequence[int]]]], tuple[tuple[SequenceBatch, ...], ...]]
    piece: Callable[[TokenBatch, SequenceBatch], tuple[TokenBatch, Any]]


def _deals(
    change: Callable[[tuple[tuple[SequenceBatch, ...], ...]], tuple[tuple[SequenceBatch, ...], ...]],
) -> Callable[[Dealing], Dealing]:
    def edit(subject: Dealing) -> Dealing:
        def by_tokens(*given: Any, **named: Any) -> Deal:
            deal = subject.by_tokens(*given, **named)
            return lambda lengths: change(deal(lengths))

        return attrs.evolve(subject, by_tokens=by_tokens)

    return edit


drops_the_last_round = _deals(lambda dealt: tuple(own[:-1] for own in dealt))
leaves_idle_ranks_out = _deals(lambda dealt: tuple(tuple(part for part in own if part.rows) for own in dealt))
same_for_all = _deals(lambda dealt: (dealt[0],) * len(dealt))


def forgets_padding(subject: Dealing) -> Dealing:
    """Fill parts up to twice their budget."""

    def by_tokens(budget: int, **named: Any) -> Deal:
        return subject.by_tokens(2 * budget, **named)

    return attrs.evolve(subject, by_tokens=by_tokens)


def parts_for_ranks(subject: Dealing) -> Dealing:
    """Distribute parts that depend on the number of ranks, not those of a single process."""

    def by_parts(budget: int, *, ranks: int) -> Deal:
        return subject.by_tokens(budget, ranks=ranks)

    return attrs.evolve(subject, by_parts=by_parts)


def takes_any_places(subject: Dealing) -> Dealing:
    """Skip the check that every sequence occurs once."""

    def placed(lengths: Sequence[int], places: Any) -> Any:
        try:
            return subject.placed(lengths, places)
        except ValueError:
            return ((),) * len(places)

    return attrs.evolve(subject, placed=placed)


def idle_ranks_count(subject: Dealing) -> Dealing:
    """Count the padding token of a part without sequences."""

    def piece(batch: TokenBatch, part: SequenceBatch) -> tuple[TokenBatch, Any]:
        some, layout = subject.piece(batch, part)
        return (some if part.rows else replace(some, mask=torch.ones_like(some.mask))), layout

    return attrs.evolve(subject, piece=piece)


DEALS: dict[str, Callable[[Dealing], Dealing]] = {"gives every rank everything": same_for_all}


# --- laws ---


LONGEST = 9
WAITS = (
    "derived: processes gather weights and add gradients together, so that one that has a part less hangs the others"
)


def own_dealing() -> Dealing:
    """Return the library's partitions."""
    return Dealing(partition.by_tokens, partition.by_batches, partition.deal_sequences, partition.piece)


@attrs.frozen
class Load:
    """Lengths of sequences, the budget of a part, the capacity of packed rows, and the number of ranks."""

    lengths: tuple[int, ...]
    budget: int
    packed: int | tuple[()]
    ranks: int


@st.composite
def _loads(draw: DrawFn) -> Load:
    lengths = tuple(draw(st.lists(st.integers(0, LONGEST), min_size=1, max_size=6)))
    budget = LONGEST + draw(st.integers(0, 12))
    return Load(lengths, budget, draw(st.one_of(st.just(()), st.just(LONGEST))), draw(st.integers(1, 4)))


def dealing_laws() -> Suite:
    """The laws of `Dealing(by_tokens, by_parts, placed, piece)`."""
    return Suite("dealing_laws", (_once(), _even(), _within(), _same_parts(), _refused(), _idle()))


_of_loads = law_constructor(_loads, WAITS)


def _dealt(subject: Dealing, load: Load) -> tuple[tuple[SequenceBatch, ...], ...]:
    return subject.by_tokens(load.budget, ranks=load.ranks, packed=load.packed)(load.lengths)


def _once() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        dealt = _dealt(subject, load)
        seen("several parts of a rank", any(len(own) > 1 for own in dealt))
        seen(
            "rows of several sequences",
            isinstance(load.packed, int) and any(len(own[0].rows) > 1 for own in dealt if own),
        )
        same("ranks", len(dealt), load.ranks)
        found = sorted(row for own in dealt for part in own for row in part.rows)
        same("the sequences of all ranks", found, list(range(len(load.lengths))))

    mutant = ("leaves out the last round, which is not full", drops_the_last_round)
    needs = ("several parts of a rank", "rows of several sequences")
    return _of_loads("once", "Every sequence is in one part of one rank.", mutant, check, *needs)


def _even() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        dealt = _dealt(subject, load)
        seen("a rank with less than others", any(not part.rows for own in dealt for part in own))
        numbers = [len(own) for own in dealt]
        require(len(set(numbers)) == 1, f"ranks have {numbers} parts")

    mutant = ("leaves out parts without sequences", leaves_idle_ranks_out)
    return _of_loads("even", "All ranks have equally many parts.", mutant, check, "a rank with less than others")


def _within() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        for part in (part for own in _dealt(subject, load) for part in own):
            lengths = [load.lengths[row] for row in part.rows]
            seen("different lengths in one part", len(set(lengths)) > 1)
            require(part.cost <= load.budget, f"a part of lengths {lengths} costs {part.cost}, more than {load.budget}")
            require(max(lengths, default=0) <= part.width, f"a part of lengths {lengths} has the width {part.width}")

    mutant = ("fills parts up to twice the budget", forgets_padding)
    claim = "No part costs more than the budget, padding included, and each is as wide as its longest sequence."
    return _of_loads("within_budget", claim, mutant, check, "different lengths in one part")


def _same_parts() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        (alone,) = subject.by_parts(load.budget, ranks=1)(load.lengths)
        dealt = subject.by_parts(load.budget, ranks=load.ranks)(load.lengths)
        seen("several parts on several ranks", len(alone) > 1 and load.ranks > 1)
        same("ranks", len(dealt), load.ranks)
        require(len({len(own) for own in dealt}) == 1, f"ranks have {[len(own) for own in dealt]} parts")
        found = sorted((part for own in dealt for part in own if part.rows), key=lambda part: part.rows)
        same("the parts", found, sorted(alone, key=lambda part: part.rows))

    mutant = ("makes as many parts as there are ranks", parts_for_ranks)
    claim = "`by_parts` deals the same parts out whatever the number of ranks, as many to each."
    return _of_loads("same_parts", claim, mutant, check, "several parts on several ranks")


def _refused() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        number = len(load.lengths)
        once: list[tuple[int, ...]] = [tuple(range(number))]
        idle: list[list[tuple[int, ...]]] = [[()] for _ in range(load.ranks - 1)]
        same(
            "a deal by hand",
            [[tuple(sorted(part.rows)) for part in own] for own in subject.placed(load.lengths, [once, *idle])],
            [once, *idle],
        )
        wrong: list[Sequence[Sequence[Sequence[int]]]] = [
            [[once[0][1:]], *idle],
            [[(*once[0], 0)], *idle],
            [[(*once[0][1:], number)], *idle],
            [once, *idle, []],
        ]
        for places in wrong:
            _refuses(subject, load, places)

    mutant = ("takes any places", takes_any_places)
    claim = "A deal by hand that misses a sequence, doubles one, names none or gives ranks unequal numbers is refused."
    return _of_loads("wrong_places", claim, mutant, check)


def _refuses(subject: Dealing, load: Load, places: Sequence[Sequence[Sequence[int]]]) -> None:
    try:
        subject.placed(load.lengths, places)
    except ChoiceError:
        return
    raise Broken(f"the places {places} of {len(load.lengths)} sequences were taken")


def _idle() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        batch = token_batch(empty(LONGEST, 1, id=torch.arange(len(load.lengths))))
        full = replace(batch, mask=batch.mask | True, sampled=batch.sampled | True)
        for part in (part for own in _dealt(subject, load) for part in own):
            some, _ = subject.piece(full, part)
            seen("a part without sequences", not part.rows)
            wanted = (len(part.rows) or 1, part.width)
            same("the shape of a piece", tuple(some.mask.shape), wanted)
            same("tokens that count", int(some.mask.sum()), len(part.rows) * part.width)
            require(some.length > 0 if not part.rows else some.length >= 0, "a piece of nothing has no token")

    mutant = ("lets the token of an empty part count", idle_ranks_count)
    claim = "A part without sequences has one token, and nothing counts in it."
    return _of_loads("idle", claim, mutant, check, "a part without sequences")
