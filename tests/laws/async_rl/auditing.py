"""Laws of an audit: valid runs pass, and each kind of fault is found and named, wherever it is.

The subject is a function (ledger, bounds, told, totals) -> Audit as `runtime.async_rl.audit.audited`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.async_rl.audit import Audit, Bounds, ReportedEvents

# --- mutants ---
# Common errors in audits: each an edit of a right one.


Auditor = Callable[..., Audit]
Ledger = Sequence[dict[str, Any]]


def strict(audit: Auditor) -> Auditor:
    """Reject an age that is allowed."""

    def stricter(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        return audit(ledger, evolve(bounds, staleness=max(0, bounds.staleness - 1)), told, totals)

    return stricter


def by_the_ledger(audit: Auditor) -> Auditor:
    """Skip the checks of sizes and sums, as if they were taken from the ledger under audit."""

    def credulous(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        wrong = tuple(one for one in found.wrong if " samples of " not in one and "learned from" not in one)
        return evolve(found, wrong=wrong)

    return credulous


def by_place(audit: Auditor) -> Auditor:
    """Number updates by the positions of their rows in the ledger."""

    def numbered(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        return audit([{**row, "version": place} for place, row in enumerate(ledger)], bounds, told, totals)

    return numbered


def by_attempt(audit: Auditor) -> Auditor:
    """Treat another attempt at a seat as another sample."""

    def apart(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        def renamed(one: Sequence[int]) -> list[int]:
            group, seat, attempt, *rest = one
            return [group, seat + bounds.group * attempt, 0, *rest]

        rows = [{**row, "samples": [renamed(one) for one in row["samples"]]} for row in ledger]
        return audit(rows, bounds, told, totals)

    return apart


def by_tail(audit: Auditor) -> Auditor:
    """Use the age of a sample's newest token as the sample's age."""

    def young(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        rows = [{**row, "samples": [[*one[:4], one[5], *one[5:]] for one in row["samples"]]} for row in ledger]
        made = {name: (tokens, tail, tail) for name, (tokens, _, tail) in told.made.items()}
        found = audit(rows, bounds, evolve(told, made=made), totals)
        return evolve(found, oldest=audit(ledger, bounds, told, totals).oldest)

    return young


def no_groups(audit: Auditor) -> Auditor:
    """Skip the check that groups are complete."""

    def flat(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=tuple(one for one in found.wrong if not one.startswith("group")))

    return flat


def believes(audit: Auditor) -> Auditor:
    """Take the generated samples from the ledger of trained samples."""

    def believing(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        own = {tuple(one[:3]): (one[6], one[4], one[5]) for row in ledger for one in row["samples"]}
        return audit(ledger, bounds, evolve(told, made={**told.made, **own}), totals)

    return believing


def no_totals(audit: Auditor) -> Auditor:
    """Skip the check of the totals."""

    def uncounted(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=tuple(one for one in found.wrong if " is " not in one or "missing" in one))

    return uncounted


def hasty(audit: Auditor) -> Auditor:
    """Stop at the first fault."""

    def first(ledger: Ledger, bounds: Bounds, told: ReportedEvents, totals: Any = ()) -> Audit:
        found = audit(ledger, bounds, told, totals)
        return evolve(found, wrong=found.wrong[:1])

    return first


MUTANTS: dict[str, Callable[[Any], Any]] = {"stops at the first fault": hasty}


# --- laws ---


SOURCE = "runtime.async_rl.audit: each sample once, none too old, groups whole, numbers that agree"
Row = dict[str, Any]
GROUP, SEAT, ATTEMPT, REQUEST, HEAD, TAIL, TOKENS = range(7)
BALANCED = ("submitted", "waiting", "accepted", "rejected", "consumed", "filtered", "queued", "version", "tokens_used")


@frozen(kw_only=True)
class Phase:
    """The arguments of an audit, and the place where a fault is to be put."""

    ledger: tuple[Row, ...]
    bounds: Bounds
    told: ReportedEvents
    totals: Mapping[str, int]
    update: int  # not the last one
    late: int  # one at which a sample could be too old
    place: int  # in its batch

    def audit(self, subject: Auditor) -> Audit:
        """Return the result of an auditor."""
        return subject(self.ledger, self.bounds, self.told, self.totals)

    def sample(self) -> list[int]:
        """The sample at the place of the fault."""
        return self.sample_of(self.update)

    def sample_of(self, update: int) -> list[int]:
        """The sample at that place of another batch."""
        found: list[int] = self.ledger[update]["samples"][self.place]
        return found

    def changed(self, update: int, change: Callable[[list[list[int]]], list[list[int]]]) -> "Phase":
        """The phase with another batch for one update; reports and counts stay."""
        rows = [
            {**row, "samples": change([list(one) for one in row["samples"]])} if n == update else row
            for n, row in enumerate(self.ledger)
        ]
        return evolve(self, ledger=tuple(rows))

    def put(self, sample: Sequence[int], update: int | tuple[()] = ()) -> "Phase":
        """Another sample at the place of the fault, or at that place of another batch."""
        where = self.update if isinstance(update, tuple) else update
        return self.changed(where, lambda batch: [*batch[: self.place], list(sample), *batch[self.place + 1 :]])


@st.composite
def phases(draw: DrawFn) -> Phase:
    """Sound phases: groups in any order, samples as old as they may be, others left out or still there at the end."""
    group, groups, staleness = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    updates, spare = staleness + draw(st.integers(2, 4)), draw(st.integers(0, 3))
    order = draw(st.permutations(range(groups * updates)))
    ledger, made = list[Row](), dict[tuple[int, int, int], tuple[int, int, int]]()
    for version in range(updates):
        batch = []
        for number in order[version * groups : (version + 1) * groups]:
            for seat in range(group):
                head = version - draw(st.integers(0, min(staleness, version)))
                attempt, tokens = draw(st.integers(0, 1)), draw(st.integers(1, 9))
                batch.append([number, seat, attempt, number * group + seat, head, version, tokens])
                made[(number, seat, attempt)] = (tokens, head, version)
        ledger.append({"version": version, "samples": batch})
    for extra in range(spare):
        made[(1000 + extra, 0, 0)] = (5, updates - 1, updates)
    consumed, filtered = updates * groups * group, min(1, spare)
    accepted, waiting, running, rejected = consumed + spare, draw(st.integers(0, 4)), draw(st.integers(0, 4)), 2
    totals = {
        "version": updates,
        "submitted": waiting + running + accepted + rejected,
        "waiting": waiting,
        "running": running,
        "accepted": accepted,
        "rejected": rejected,
        "consumed": consumed,
        "filtered": filtered,
        "queued": spare - filtered,
        "cached": 0,
        "tokens_used": sum(one[TOKENS] for row in ledger for one in row["samples"]),
    }
    return Phase(
        ledger=tuple(ledger),
        bounds=Bounds(batch=groups * group, group=group, staleness=staleness),
        told=ReportedEvents(
            made=made, consumed=tuple(range(updates)), tokens=sum(tokens for tokens, _, _ in made.values())
        ),
        totals=totals,
        update=draw(st.integers(0, updates - 2)),
        late=draw(st.integers(staleness + 1, updates - 1)),
        place=draw(st.integers(0, groups * group - 1)),
    )


def auditing_laws() -> Suite:
    """The laws of an audit."""
    return Suite("auditing_laws", (_sound(), _lost(), _gone(), _twice(), _old(), _torn(), _other(), _counted()))


_law = law_constructor(phases, SOURCE, most=300)


def _named(audit: Audit, *words: str) -> None:
    found = any(all(word in one for word in words) for one in audit.wrong)
    require(found, f"nothing wrong with {' ... '.join(words)} is named: {audit.wrong}")


def _sound() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        samples = [(row["version"], one) for row in phase.ledger for one in row["samples"]]
        ages = [version - one[HEAD] for version, one in samples]
        seen("a sample as old as it may be", phase.bounds.staleness in ages and phase.bounds.staleness)
        seen("samples that were not learned from", phase.totals["accepted"] > phase.totals["consumed"])
        audit = phase.audit(subject)
        require(not audit.wrong, f"a sound phase is said to be wrong: {audit.wrong}")
        counted = (audit.updates, audit.samples, audit.groups, audit.oldest)
        wanted = (len(phase.ledger), len(samples), len({one[GROUP] for _, one in samples}), max(ages))
        require(counted == wanted, f"(updates, samples, groups, oldest) are {wanted}, counted {counted}")

    claim = "A sound phase passes, with its updates, samples, groups and its oldest sample."
    needs = ("a sample as old as it may be", "samples that were not learned from")
    return _law("sound_is_sound", claim, Mutant("takes the bound for the first age refused", strict), check, *needs)


def _lost() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        group = phase.sample()[GROUP]
        seen("a group with others in it", phase.bounds.group > 1)
        fault = phase.changed(phase.update, lambda batch: [*batch[: phase.place], *batch[phase.place + 1 :]])
        audit = fault.audit(subject)
        size = phase.bounds.batch
        _named(audit, f"update {phase.update} ", f"{size - 1} samples of {size}")
        _named(audit, f"consumed is {phase.totals['consumed']}", f"learned from {phase.totals['consumed'] - 1}")
        if phase.bounds.group > 1:
            _named(audit, f"group {group} ", f"of {phase.bounds.group} samples")

    claim = "A sample that was used up and not learned from is missed, in its batch, in its group and in the counts."
    mutant = Mutant("takes what is written for what there was", by_the_ledger)
    return _law("lost_samples_are_found", claim, mutant, check, "a group with others in it")


def _gone() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        seen("an update in the middle", phase.update)
        rows = tuple(row for row in phase.ledger if row["version"] != phase.update)
        _named(evolve(phase, ledger=rows).audit(subject), f"update {phase.update} is missing")
        last = phase.ledger[-1]["version"]
        _named(evolve(phase, ledger=phase.ledger[:-1]).audit(subject), f"update {last} was told to be made")
        again = evolve(phase, ledger=(*phase.ledger, phase.ledger[phase.update])).audit(subject)
        _named(again, f"update {phase.update} was made 2 times")

    claim = "Each update from the first to the last is there once; also the last one that was told to be made."
    mutant = Mutant("numbers updates by their place", by_place)
    return _law("updates_are_there_once", claim, mutant, check, "an update in the middle")


def _twice() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        first = phase.ledger[-1]["samples"][0]
        own = phase.put([*first[:ATTEMPT], first[ATTEMPT] + 1, -7, *first[HEAD:]])
        seen("two attempts at one seat", True)
        _named(own.audit(subject), f"seat {first[SEAT]} of group {first[GROUP]} was learned from 2 times")
        asked = phase.put([*phase.sample()[:REQUEST], first[REQUEST], *phase.sample()[HEAD:]])
        _named(asked.audit(subject), f"request {first[REQUEST]} was learned from 2 times")

    claim = "A seat that was learned from twice is named, also by two attempts; so is a request."
    mutant = Mutant("tells attempts at a seat apart", by_attempt)
    return _law("samples_taken_twice_are_found", claim, mutant, check, "two attempts at one seat")


def _old() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        version, bound, one = phase.late, phase.bounds.staleness, phase.sample_of(phase.late)
        name = tuple(one[:REQUEST])
        seen("a bound above 0", bound)
        old = phase.put([*one[:HEAD], version - bound - 1, version, one[TOKENS]], version)
        _named(old.audit(subject), f"sample {name} was {bound + 1} updates old", f"allowed {bound}")
        newer = phase.put([*one[:TAIL], version + 1, one[TOKENS]], version)
        _named(newer.audit(subject), f"sample {name} of versions", f"update {version}")

    claim = "A sample one update too old is named by its oldest token; so is one from the future."
    mutant = Mutant("looks at the newest token", by_tail)
    return _law("old_samples_are_found", claim, mutant, check, "a bound above 0")


def _torn() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        one, other = phase.sample(), phase.ledger[-1]["samples"][0]
        fault = phase.put(other).changed(
            len(phase.ledger) - 1, lambda batch: [list(one) if each == list(other) else each for each in batch]
        )
        seen("groups of several", phase.bounds.group > 1)
        if phase.bounds.group > 1:
            for group in (one[GROUP], other[GROUP]):
                _named(fault.audit(subject), f"group {group} was spread over updates", str(phase.update))
        alone = phase.put([9999, *one[SEAT:]])
        if phase.bounds.group > 1:
            _named(alone.audit(subject), "group 9999 ", f"1 of {phase.bounds.group} samples")

    claim = "A group that was learned from in parts, at one update or at several, is named."
    mutant = Mutant("counts samples and not groups", no_groups)
    return _law("torn_groups_are_found", claim, mutant, check, "groups of several")


def _other() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        one = phase.sample()
        name = tuple(one[:REQUEST])
        longer = phase.put([*one[:TOKENS], one[TOKENS] + 1])
        _named(longer.audit(subject), f"sample {name} was told with")
        unmade = {other: told for other, told in phase.told.made.items() if other != name}
        unknown = evolve(phase, told=evolve(phase.told, made=unmade))
        seen("a sample nobody made", True)
        _named(unknown.audit(subject), f"sample {name} was never told to be whole")

    claim = "A sample that was never made, or made otherwise than it was learned from, is named."
    mutant = Mutant("does not ask what was made", believes)
    return _law("samples_are_those_made", claim, mutant, check, "a sample nobody made")


def _counted() -> Law:
    def check(subject: Auditor, phase: Phase, seen: Seen) -> None:
        seen("samples that were not learned from", phase.totals["queued"])
        for name in BALANCED:
            fault = evolve(phase, totals={**phase.totals, name: phase.totals[name] + 1})
            require(fault.audit(subject).wrong, f"one more in {name} is not noticed")
        running = evolve(phase, totals=())  # type: ignore[arg-type]
        require(not running.audit(subject).wrong, "a phase without totals is said to be wrong")

    claim = "A count that is off by one is noticed, in both balances and against what was learned from."
    mutant = Mutant("believes the counts", no_totals)
    return _law("counts_balance", claim, mutant, check, "samples that were not learned from")
