"""Laws of capacity and staleness: the number of rollouts that may start, the age of a sample, and the bound on it."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from purestep.algorithms import staleness
from purestep.core.transcript.record import ABSENT
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import flags, integers

# --- mutants ---
# Common errors in ages and capacities, each an edit of right functions.


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
    """Use the newest version of a sample for its oldest."""
    return evolve(aging, head_staleness=aging.tail_staleness)


def version_zero_is_none(aging: Aging) -> Aging:
    """Treat version 0 as absent."""

    def edited(ages: Ages) -> Ages:
        return lambda version, mask, *rest: ages(torch.where(version == 0, ABSENT, version), mask, *rest)

    return evolve(aging, head_staleness=edited(aging.head_staleness), tail_staleness=edited(aging.tail_staleness))


def looks_at_padding(aging: Aging) -> Aging:
    """Use the versions of all columns, padding included."""

    def edited(ages: Ages) -> Ages:
        return lambda version, mask, *rest: ages(version, torch.ones_like(mask), *rest)

    return evolve(aging, head_staleness=edited(aging.head_staleness), tail_staleness=edited(aging.tail_staleness))


def recomputed_zero_is_none(aging: Aging) -> Aging:
    """Treat a recomputation at version 0 as absent: `recomputed or -1`."""

    def segment_wise(version: Tensor, mask: Tensor, recomputed: Tensor, current: Any, *, bound: int) -> Tensor:
        return aging.segment_wise(version, mask, torch.where(recomputed == 0, ABSENT, recomputed), current, bound=bound)

    return evolve(aging, segment_wise=segment_wise)


def filters_all_the_same(aging: Aging) -> Aging:
    """Use the segment-wise strategy under both names."""
    return evolve(aging, standard=aging.segment_wise)


def recomputes_everything(aging: Aging) -> Aging:
    """Recompute the log-probs of all segments of older versions."""
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


# --- laws ---


SOURCE = "arXiv:2505.24298 (AReaL), sections 4 and 5; worlds, E"


@frozen
class Book:
    """Counts of samples and the bounds on them."""

    running: int
    consumed: int
    filtered: int
    waiting: int  # accepted, neither consumed nor filtered
    version: int
    batch: int
    concurrency: int
    staleness: int

    def given(self) -> dict[str, int]:
        """The arguments of a capacity."""
        accepted = self.consumed + self.filtered + self.waiting
        names = ("running", "filtered", "version", "batch", "concurrency", "staleness")
        return {"accepted": accepted, **{name: getattr(self, name) for name in names}}


@frozen
class Versions:
    """Versions of tokens, their mask, versions of recomputed proximal log-probs, the current version and the bound."""

    version: Tensor
    mask: Tensor
    recomputed: Tensor
    current: int
    bound: int


def books() -> SearchStrategy[Book]:
    """Draw small counts and bounds."""
    small = st.integers(0, 6)
    sizes = {"batch": st.integers(1, 4), "concurrency": st.integers(1, 8), "staleness": st.integers(0, 3)}
    counts = dict.fromkeys(("running", "consumed", "filtered", "waiting", "version"), small)
    return st.builds(Book, **counts, **sizes)


@st.composite
def versions(draw: DrawFn) -> Versions:
    """Two samples of four tokens; some without a version, some that do not count."""
    current = draw(st.integers(0, 6))
    return Versions(
        draw(integers((2, 4), ABSENT, current + 1)),
        draw(flags((2, 4))),
        draw(integers((2,), ABSENT, current + 1)),
        current,
        draw(st.integers(0, 3)),
    )


def own_aging() -> Aging:
    """Return the library's own functions."""
    names = ("capacity", "head_staleness", "tail_staleness", "standard", "segment_wise", "proximal_version")
    return Aging(**{name: getattr(staleness, name) for name in (*names, "recompute_due")})


def staleness_laws() -> Suite:
    """The laws of an `Aging`."""
    counts = (_concurrency(), _repaid(), _modifier())
    return Suite("staleness_laws", (*counts, _definition(), _nothing_else(), _strategies(), _recomputed(), _segments()))


_law = law_constructor(versions, SOURCE)


def _concurrency() -> Law:
    def check(aging: Aging, book: Book, seen: Seen) -> None:
        free = book.concurrency - book.running
        seen("machines that bind, and a filtered sample", aging.capacity(**book.given()) == free and book.filtered)
        require(aging.capacity(**book.given()) <= free, f"more than the {free} places that are free")

    claim = "However many samples were filtered, no more may be begun than there is room for under way."
    mutant = ("adds filtered samples after the minimum", after_the_minimum)
    needs = ("machines that bind, and a filtered sample",)
    return _law("never_beyond_the_machines", claim, mutant, check, *needs, inputs=books())


def _repaid() -> Law:
    def check(aging: Aging, book: Book, seen: Seen) -> None:
        without = evolve(book, filtered=0)
        seen("filtered and running samples", book.filtered and book.running)
        same("the capacity", aging.capacity(**book.given()), aging.capacity(**without.given()))
        more = evolve(book, consumed=book.consumed + book.batch, version=book.version + 1)
        same("the capacity after an update", aging.capacity(**more.given()), aging.capacity(**book.given()))

    claim = "A sample that was accepted and filtered costs nothing, now or later; an update makes room for its batch."
    mutant = ("forgets a repayment once it is used", until_used)
    return _law("filtered_costs_nothing", claim, mutant, check, "filtered and running samples", inputs=books())


def _modifier() -> Law:
    def check(aging: Aging, book: Book, seen: Seen) -> None:
        given = book.given()
        base = aging.capacity(**{**given, "filtered": 0})
        clamped = min(base + book.filtered, book.concurrency - book.running)
        budget = (book.staleness + book.version + 1) * book.batch - given["accepted"] + book.filtered
        seen("a filtered sample", book.filtered)
        seen("the first version", book.version == 0)
        same("the capacity", aging.capacity(**given), clamped)
        same("of machines without end", aging.capacity(**{**given, "concurrency": 99}), min(99, budget) - book.running)

    claim = "Repaying in the staleness term is adding to the minimum and clamping to the machines' term."
    mutant = ("counts nothing that was filtered as repaid", _never_repays)
    return _law(
        "repaid_within_or_clamped", claim, mutant, check, "a filtered sample", "the first version", inputs=books()
    )


def _never_repays(aging: Aging) -> Aging:
    return evolve(aging, capacity=lambda **given: aging.capacity(**{**given, "filtered": 0}))


def _rows(drawn: Versions) -> list[list[int]]:
    """The versions that count, sample by sample."""
    pairs = zip(drawn.version.tolist(), drawn.mask.tolist(), strict=True)
    return [[v for v, counts in zip(row, mask, strict=True) if counts and v >= 0] for row, mask in pairs]


def _definition() -> Law:
    def check(aging: Aging, drawn: Versions, seen: Seen) -> None:
        rows, now = _rows(drawn), drawn.current
        seen("a sample of several versions", any(len(set(row)) > 1 for row in rows))
        seen("a sample without a version", any(not row for row in rows))
        head, tail = (f(drawn.version, drawn.mask, now) for f in (aging.head_staleness, aging.tail_staleness))
        same("the head's age", head.tolist(), [now - min(row, default=now) for row in rows])
        same("the tail's age", tail.tolist(), [now - max(row, default=now) for row in rows])
        same(
            "ages at 0 for each sample", aging.head_staleness(drawn.version, drawn.mask, torch.tensor([now, now])), head
        )

    claim = "A sample's head is its oldest token that counts and has a version, 0 included, its tail the newest."
    mutant = ("knows one version of a sample, the last", tail_for_head)
    needs = ("a sample of several versions", "a sample without a version")
    return _law("age_is_of_tokens_that_count", claim, mutant, check, *needs)


def _nothing_else() -> Law:
    def check(aging: Aging, drawn: Versions, seen: Seen) -> None:
        all_zero = torch.zeros_like(drawn.version)
        one = torch.ones_like(drawn.mask)
        seen("a later version", drawn.current)
        same("the age of version 0", aging.head_staleness(all_zero, one, drawn.current).tolist(), [drawn.current] * 2)
        same("the tail of version 0", aging.tail_staleness(all_zero, one, drawn.current).tolist(), [drawn.current] * 2)

    claim = "Version 0 is a version."
    mutant = ("takes version 0 for none", version_zero_is_none)
    return _law("zero_is_a_version", claim, mutant, check, "a later version")


def _strategies() -> Law:
    def check(aging: Aging, drawn: Versions, seen: Seen) -> None:
        given = (drawn.version, drawn.mask, drawn.recomputed, drawn.current)
        kept = aging.standard(*given, bound=drawn.bound)
        dropped = aging.segment_wise(*given, bound=drawn.bound)
        seen("a sample that is too old", dropped.any())
        require(~kept, "the standard strategy filters")
        for row, recomputed, stale in zip(_rows(drawn), drawn.recomputed.tolist(), dropped.tolist(), strict=True):
            limit = max(1, drawn.bound)
            wanted = drawn.current - (min(row) if recomputed >= 0 else max(row)) if row else 0
            same("too old", stale, wanted > (limit if recomputed >= 0 else 1))

    claim = (
        "Standard keeps all; segment-wise drops tails older than 1, or, once recomputed, heads older than the bound."
    )
    mutant = ("filters under both names", filters_all_the_same)
    return _law("strategies_by_name", claim, mutant, check, "a sample that is too old")


def _recomputed() -> Law:
    def check(aging: Aging, drawn: Versions, seen: Seen) -> None:
        now = drawn.current + 2
        old, one = torch.full_like(drawn.version, drawn.current), torch.ones_like(drawn.mask)
        zero = torch.zeros_like(drawn.recomputed)
        never = aging.segment_wise(old, one, zero + ABSENT, now, bound=2)
        first = aging.segment_wise(old, one, zero, now, bound=2)
        seen("two samples", len(never) == 2)
        same("never recomputed", never.tolist(), [True, True])
        same("recomputed under version 0", first.tolist(), [False, False])

    claim = "Being recomputed under version 0 is being recomputed."
    mutant = ("takes recomputed under version 0 for never", recomputed_zero_is_none)
    return _law("recomputed_at_zero_counts", claim, mutant, check, "two samples")


def _segments() -> Law:
    def check(aging: Aging, drawn: Versions, seen: Seen) -> None:
        made = drawn.version
        has = drawn.mask & (made >= 0)
        held = torch.where(has, made, ABSENT)  # the version whose log-prob stands there: at first the maker's own
        for now in range(drawn.current + 1):
            there = has & (made <= now)
            due = there & aging.recompute_due(made, drawn.mask, now)
            seen("a token that is recomputed", due.any())
            held = torch.where(due, now, held)
            wanted = aging.proximal_version(made, now)
            same(f"proximal versions at {now}", torch.where(there, held, ABSENT), torch.where(there, wanted, ABSENT))
            same("by hand", wanted[there].tolist(), [min(v + 1, now) for v in made[there].tolist()])

    claim = "Recomputing what is due before every update keeps each token one version after the one that made it."
    mutant = ("recomputes every segment each time", recomputes_everything)
    return _law("proximal_is_one_later", claim, mutant, check, "a token that is recomputed")
