"""Audits as people get them wrong: each an edit around a right one."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from purestep.runtime.asynchronous.auditing import Audit, Bounds, Heard

Auditor = Callable[..., Audit]
Ledger = Sequence[dict[str, Any]]


def strict(audit: Auditor) -> Auditor:
    """Refuses an age that is allowed."""

    def stricter(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        return audit(ledger, evolve(bounds, staleness=max(0, bounds.staleness - 1)), told, totals)

    return stricter


def by_the_ledger(audit: Auditor) -> Auditor:
    """Takes sizes and sums from what it is to examine."""

    def credulous(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        wrong = tuple(one for one in found.wrong if " samples of " not in one and "learned from" not in one)
        return evolve(found, wrong=wrong)

    return credulous


def by_place(audit: Auditor) -> Auditor:
    """Says which update a row is of by where it stands."""

    def numbered(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        return audit([{**row, "version": place} for place, row in enumerate(ledger)], bounds, told, totals)

    return numbered


def by_attempt(audit: Auditor) -> Auditor:
    """Takes another attempt at a seat for another sample."""

    def apart(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        def renamed(one: Sequence[int]) -> list[int]:
            group, seat, attempt, *rest = one
            return [group, seat + bounds.group * attempt, 0, *rest]

        rows = [{**row, "samples": [renamed(one) for one in row["samples"]]} for row in ledger]
        return audit(rows, bounds, told, totals)

    return apart


def by_tail(audit: Auditor) -> Auditor:
    """Takes a sample for as old as its newest token."""

    def young(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        rows = [{**row, "samples": [[*one[:4], one[5], *one[5:]] for one in row["samples"]]} for row in ledger]
        made = {name: (tokens, tail, tail) for name, (tokens, _, tail) in told.made.items()}
        found = audit(rows, bounds, evolve(told, made=made), totals)
        return evolve(found, oldest=audit(ledger, bounds, told, totals).oldest)

    return young


def no_groups(audit: Auditor) -> Auditor:
    """Does not look whether groups are whole."""

    def flat(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=tuple(one for one in found.wrong if not one.startswith("group")))

    return flat


def believes(audit: Auditor) -> Auditor:
    """Takes what was learned from for what was made."""

    def believing(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        own = {tuple(one[:3]): (one[6], one[4], one[5]) for row in ledger for one in row["samples"]}
        return audit(ledger, bounds, evolve(told, made={**told.made, **own}), totals)

    return believing


def no_totals(audit: Auditor) -> Auditor:
    """Does not look at the counts."""

    def uncounted(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=tuple(one for one in found.wrong if " is " not in one or "missing" in one))

    return uncounted


def hasty(audit: Auditor) -> Auditor:
    """Stops at the first fault."""

    def first(ledger: Ledger, bounds: Bounds, told: Heard, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=found.wrong[:1])

    return first


MUTANTS: dict[str, Callable[[Any], Any]] = {"stops at the first fault": hasty}
