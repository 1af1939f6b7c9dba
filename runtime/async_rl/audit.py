"""Audit of the samples that were trained on: each trained on once, none too old, groups complete, and consistent counts.

The audit does not rely on the scheduler: it compares the trainer's record (the ledger), the scheduler's counters (totals)
and the events that the scheduler received (finished samples) with each other.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from ..machine.json_codec import TAG
from .scheduler import events as say

Name = tuple[int, int, int]  # group, seat, attempt
SHOWN = 3  # faults of a kind that are listed; the others are only counted


@frozen(kw_only=True)
class Bounds:
    """Limits that a phase must keep."""

    batch: int  # samples per update
    group: int  # samples per prompt
    staleness: int  # largest allowed age of a sample, in updates, when it is trained on


@frozen(kw_only=True)
class Taken:
    """A sample that was trained on."""

    version: int  # of the weights that it updated
    name: Name
    request: int
    head: int  # the oldest weight version among its tokens
    tail: int  # the newest
    tokens: int


@frozen(kw_only=True)
class ReportedEvents:
    """Events received by the scheduler that can be compared with the samples that were trained on."""

    made: dict[Name, tuple[int, int, int]]  # tokens, head and tail of each sample that was reported as finished
    consumed: tuple[int, ...]  # versions whose updates were reported as done
    tokens: int  # sampled, including those of attempts that did not finish


@frozen(kw_only=True)
class Audit:
    """Counts of the samples that were trained on, and the faults found."""

    updates: int
    samples: int
    groups: int
    oldest: int  # the largest age of a sample, in updates; 0 of none
    whole: bool  # whether the phase had ended, so that its totals could be checked
    wrong: tuple[str, ...]

    def line(self) -> str:
        """Return the audit as one line of text.

        >>> Audit(updates=2, samples=8, groups=4, oldest=1, whole=True, wrong=()).line()
        '2 updates learned from 8 samples in 4 groups, each once, 1 update old at most'
        """
        old = f"{self.oldest} update{'' if self.oldest == 1 else 's'} old at most"
        held = f"{self.updates} updates learned from {self.samples} samples in {self.groups} groups"
        return f"{held}; wrong: {'; '.join(self.wrong)}" if self.wrong else f"{held}, each once, {old}"


def taken_of(ledger: Iterable[Mapping[str, Any]]) -> tuple[Taken, ...]:
    """Return the samples in the rows of a ledger, in their order.

    >>> taken_of([{"version": 3, "samples": [[5, 1, 0, 77, 2, 3, 40]]}])[0].name
    (5, 1, 0)
    """
    return tuple(
        Taken(version=row["version"], name=(group, seat, attempt), request=request, head=head, tail=tail, tokens=tokens)
        for row in ledger
        for group, seat, attempt, request, head, tail, tokens in row["samples"]
    )


def reported_events(events: Iterable[Mapping[str, Any]]) -> ReportedEvents:
    """Return the finished samples, the updates and the token count found in rows of the log of a scheduler's events.

    Each message reports the total number of tokens of an attempt so far; they count once.

    >>> chunk = {"$tag": "token_chunk", "group": 0, "seat": 0, "attempt": 0, "tokens": 3, "version": 0}
    >>> end = {"$tag": "finished", "group": 0, "seat": 0, "attempt": 0, "tokens": 5, "head": 0, "tail": 0}
    >>> reported_events({"command": 0, "kind": "dispatch", "event": event} for event in (chunk, end))
    ReportedEvents(made={(0, 0, 0): (5, 0, 0)}, consumed=(), tokens=5)
    """
    made, consumed, tokens = dict[Name, tuple[int, int, int]](), list[int](), Counter[Name]()
    for row in events:
        event: Mapping[str, Any] = row.get("event", {})
        kind = event.get(TAG, "")
        if kind == say.Consumed.TAG:
            consumed.append(event["version"])
        elif kind in (say.TokenChunk.TAG, say.Finished.TAG):
            name = event["group"], event["seat"], event["attempt"]
            tokens[name] = max(tokens[name], event["tokens"])
            if kind == say.Finished.TAG:
                made.setdefault(name, (event["tokens"], event["head"], event["tail"]))
    return ReportedEvents(made=made, consumed=tuple(consumed), tokens=tokens.total())


def audited(
    ledger: Sequence[Mapping[str, Any]],
    bounds: Bounds,
    reported: ReportedEvents,
    totals: Mapping[str, int] | tuple[()] = (),
) -> Audit:
    """Audit a phase: its ledger, its limits, the events its scheduler received, and its final counters if it has ended.

    Versions 0, 1, ..., v - 1 must be trained on once each, with full batches of full groups; each sample once, as it was
    reported, with 0 <= version - head <= staleness; and at the end

    submitted = waiting + running + accepted + rejected,   accepted = consumed + filtered + queued + cached

    >>> rows = [{"version": 0, "samples": [[0, 0, 0, 7, 0, 0, 5]]}]
    >>> reported = ReportedEvents(made={(0, 0, 0): (5, 0, 0)}, consumed=(0,), tokens=5)
    >>> audited(rows, Bounds(batch=1, group=1, staleness=0), reported).wrong
    ()
    >>> audited(rows, Bounds(batch=2, group=1, staleness=0), reported_events([])).wrong
    ('update 0 learned from 1 samples of 2', 'sample (0, 0, 0) was never told to be whole')
    """
    taken = taken_of(ledger)
    wrong = (
        *_versions([row["version"] for row in ledger]),
        *_batches(ledger, bounds),
        *_twice(taken),
        *_torn(taken, bounds),
        *_ages(taken, bounds),
        *_made(taken, reported.made),
        *_unwritten(ledger, reported.consumed),
        *(_counts(taken, ledger, reported, totals) if isinstance(totals, Mapping) else ()),
    )
    return Audit(
        updates=len(ledger),
        samples=len(taken),
        groups=len({one.name[0] for one in taken}),
        oldest=max((one.version - one.head for one in taken), default=0),
        whole=isinstance(totals, Mapping),
        wrong=wrong,
    )


def _few(faults: Sequence[str]) -> tuple[str, ...]:
    """Return the first `SHOWN` faults, and a line with the number of the others."""
    more = len(faults) - SHOWN
    return (*faults[:SHOWN], f"and {more} more like this") if more > 0 else tuple(faults)


def _versions(versions: Sequence[int]) -> tuple[str, ...]:
    counted = Counter(versions)
    missing = [f"update {one} is missing" for one in range(max(versions, default=-1)) if one not in counted]
    again = [f"update {one} was made {times} times" for one, times in counted.items() if times > 1]
    order = [] if again or list(versions) == sorted(versions) else ["updates were not made in order"]
    return (*_few(missing), *_few(again), *order)


def _batches(ledger: Sequence[Mapping[str, Any]], bounds: Bounds) -> tuple[str, ...]:
    found = [
        f"update {row['version']} learned from {len(row['samples'])} samples of {bounds.batch}"
        for row in ledger
        if len(row["samples"]) != bounds.batch
    ]
    return _few(found)


def _twice(taken: Sequence[Taken]) -> tuple[str, ...]:
    """Return the faults of seats or requests that were trained on more than once; all attempts at a seat count together."""
    seats: dict[str, list[int]] = {}
    requests: dict[str, list[int]] = {}
    for one in taken:
        group, seat, _ = one.name
        seats.setdefault(f"seat {seat} of group {group}", []).append(one.version)
        requests.setdefault(f"request {one.request}", []).append(one.version)
    return _few(_repeated(seats)) or _few(_repeated(requests))


def _repeated(updates: Mapping[str, Sequence[int]]) -> list[str]:
    return [
        f"{name} was learned from {len(versions)} times, by updates {sorted(set(versions))}"
        for name, versions in updates.items()
        if len(versions) > 1
    ]


def _torn(taken: Sequence[Taken], bounds: Bounds) -> tuple[str, ...]:
    seats: dict[int, set[int]] = {}
    updates: dict[int, set[int]] = {}
    for one in taken:
        seats.setdefault(one.name[0], set()).add(one.name[1])
        updates.setdefault(one.name[0], set()).add(one.version)
    torn = [
        f"group {group} was learned from with {len(those)} of {bounds.group} samples"
        for group, those in seats.items()
        if those != set(range(bounds.group))
    ]
    spread = [
        f"group {group} was spread over updates {sorted(those)}" for group, those in updates.items() if len(those) > 1
    ]
    return (*_few(torn), *_few(spread))


def _ages(taken: Sequence[Taken], bounds: Bounds) -> tuple[str, ...]:
    old = [
        f"sample {one.name} was {one.version - one.head} updates old at update {one.version}, allowed {bounds.staleness}"
        for one in taken
        if one.version - one.head > bounds.staleness
    ]
    odd = [
        f"sample {one.name} of versions {one.head} to {one.tail} was learned from by update {one.version}"
        for one in taken
        if not 0 <= one.head <= one.tail <= one.version
    ]
    return (*_few(old), *_few(odd))


def _made(taken: Sequence[Taken], made: Mapping[Name, tuple[int, int, int]]) -> tuple[str, ...]:
    unknown = [f"sample {one.name} was never told to be whole" for one in taken if one.name not in made]
    others = [
        f"sample {one.name} was told with (tokens, head, tail) = {made[one.name]} and learned from with {learned}"
        for one in taken
        if one.name in made and made[one.name] != (learned := (one.tokens, one.head, one.tail))
    ]
    return (*_few(unknown), *_few(others))


def _unwritten(ledger: Sequence[Mapping[str, Any]], consumed: Sequence[int]) -> tuple[str, ...]:
    written = {row["version"] for row in ledger}
    lost = [f"update {one} was told to be made and is not written down" for one in consumed if one not in written]
    return _few(lost)


def _counts(
    taken: Sequence[Taken], ledger: Sequence[Mapping[str, Any]], reported: ReportedEvents, totals: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the faults of counters that should be equal and are not."""
    let_in = ("waiting", "running", "accepted", "rejected")
    whole = ("consumed", "filtered", "queued", "cached")
    pairs = (
        ("submitted", totals["submitted"], " + ".join(let_in), sum(totals[name] for name in let_in)),
        ("accepted", totals["accepted"], " + ".join(whole), sum(totals[name] for name in whole)),
        ("consumed", totals["consumed"], "learned from", len(taken)),
        ("version", totals["version"], "updates made", len(ledger)),
        ("tokens_used", totals["tokens_used"], "tokens learned from", sum(one.tokens for one in taken)),
    )
    found = [f"{name} is {one}, {other} {number}" for name, one, other, number in pairs if one != number]
    if totals["accepted"] > len(reported.made):
        found.append(f"accepted is {totals['accepted']}, told to be whole {len(reported.made)}")
    return tuple(found)
