"""Laws of a scheduler: counts, bounds and versions.

The subject is a `Scheduling`. It runs against a simulation with its own records; see `scheduler_world`.
"""

from collections import Counter

from purestep.core.machine import Started
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.state import NOBODY, RUNNING, THERE
from purestep.runtime.machine.persistent_map import entries

from . import scheduler_mutants
from .scheduler_batch import batch_laws
from .scheduler_scripts import CAPACITY, Played, Watch, budget, live, scheduler_law, scripts, trains
from .scheduler_world import Scheduling, Script, Told, World


def scheduler_laws() -> Suite:
    """The laws of a `Scheduling(scheduler, begin)` in which nothing is lost for good."""
    bounds = (_counted(), _under_way(), _spread(), _let_in(), _room(), _age(), _versions(), _recovered())
    return Suite("scheduler_laws", (*bounds, *batch_laws()))


def _counted() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        size = script.rules.group

        def watch(here: World, told: Told) -> None:
            now, groups = told.after, [group for _, group in entries(told.after.groups)]
            there = [sum(seat.status == THERE for seat in group.seats) for group in groups]
            missing = sum(size - len(group.seats) for group in groups)
            seen("a filtered sample", now.filtered)
            seen("a rejected sample", now.rejected)
            seen("a cached sample", now.cached)
            same("submitted", now.submitted, now.waiting + now.running + now.accepted + now.rejected)
            same("accepted", now.accepted, now.consumed + now.filtered + now.queued + now.cached)
            same("waiting", now.waiting, size * (now.fresh + len(now.again)) + missing)
            same("running", now.running, sum(len(group.seats) for group in groups) - sum(there))
            same("queued", now.queued, sum(count for count in there if count == size))
            same("cached", now.cached, sum(count for count in there if count < size))
            same("consumed", now.consumed, here.updates * script.rules.batch)

        return watch

    claim = (
        "submitted = waiting + running + accepted + rejected, accepted = consumed + filtered + queued + cached, always."
    )
    mutant = ("does not report what it leaves out", scheduler_mutants.forgets_filtered)
    needs = ("a filtered sample", "a rejected sample", "a cached sample")
    return scheduler_law("every_sample_is_counted", claim, mutant, Played(watching), *needs, source=CAPACITY)


def _under_way() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            workers = [flight.worker for flight in here.flights.values()]
            seen("as many as allowed", len(workers) == script.rules.concurrency)
            require(len(workers) <= script.rules.concurrency, f"{len(workers)} samples are under way")
            crowded = [worker for worker, slots in here.workers.items() if workers.count(worker) > slots]
            require(not crowded, f"generators with more than they have room for: {crowded}")

        return watch

    claim = (
        "Never are more samples under way than the concurrency allows, nor more with a generator than it has room for."
    )
    mutant = ("pays filtered samples back after the minimum is taken", scheduler_mutants.adds_afterwards)
    return scheduler_law("never_more_under_way", claim, mutant, Played(watching), "as many as allowed", source=CAPACITY)


def _spread() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            begun = [one for one in told.commands if isinstance(one, say.Dispatch)]
            names = [(one.group, one.seat, one.attempt) for one in begun]
            load = Counter(flight.worker for name, flight in here.flights.items() if name not in names)
            for one in begun:
                open_ones = [load[worker] for worker, slots in here.workers.items() if load[worker] < slots]
                seen("generators with more and with fewer", len(set(open_ones)) > 1)
                same(f"samples under way with generator {one.worker}", load[one.worker], min(open_ones))
                load[one.worker] += 1

        return watch

    claim = "A sample goes to a generator that has the fewest under way, among those that have room for one."
    mutant = ("fills one generator after the other", scheduler_mutants.one_by_one)
    needs = ("generators with more and with fewer",)
    inputs = scripts(concurrency=6)
    return scheduler_law("generators_share_alike", claim, mutant, Played(watching), *needs, inputs=inputs)


def _let_in() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            seen("nothing more may be let in", budget(here) == 0)
            seen("a filtered sample", told.after.filtered)
            require(budget(here) >= 0, f"{-budget(here)} samples too many were let in")

        return watch

    claim = "What was let in and not left out is at most (staleness + version + 1) batches, what is not used up at most `room`."
    mutant = ("pays a filtered sample back twice", scheduler_mutants.pays_twice)
    needs = ("nothing more may be let in", "a filtered sample")
    return scheduler_law("never_more_let_in", claim, mutant, Played(watching), *needs, source=CAPACITY)


def _room() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            slots = sum(here.workers.values()) - len(here.flights)
            idle = slots > 0 and told.after.waiting > 0 and not told.after.stopped
            seen("a generator with nothing to do", idle)
            require(not idle or budget(here) < 1, f"{budget(here)} more samples might be let in")

        return watch

    claim = "No generator is idle while a sample may be let in: what was filtered or rejected holds no place."
    mutant = ("does not pay back what was filtered", scheduler_mutants.pays_nothing)
    return scheduler_law(
        "no_room_is_lost", claim, mutant, Played(watching), "a generator with nothing to do", source=CAPACITY
    )


def _age() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        bound = script.rules.staleness

        def watch(here: World, told: Told) -> None:
            for batch in trains(told):
                heads = [min(here.samples[name].versions) for name in batch.samples if name in here.samples]
                seen("a sample as old as allowed", bound and batch.version - min(heads) == bound)
                require(batch.version - min(heads) <= bound, f"a batch at {batch.version} of versions {heads}")
                same("the oldest version said", batch.head, min(heads))

        return watch

    claim = "No sample is learned from whose oldest token is older than the bound, whatever its length."
    mutant = ("takes a sample to be as old as its newest token", scheduler_mutants.tail_for_age)
    inputs = scripts(concurrency=6, incomplete="repair")
    source = "objectives, section 5: a bound of each sample, where the capacity formula bounds an average"
    return scheduler_law(
        "never_too_old", claim, mutant, Played(watching), "a sample as old as allowed", source=source, inputs=inputs
    )


def _versions() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            seen("a publication that failed", told.move == "trainer_fails" and told.before.phase == "publish")
            seen("a version told twice", told.move == "twice" and isinstance(told.event, say.Published))
            rose = told.after.version - told.before.version
            same("the rise of the version", rose, int(told.move == "published"))
            asked = [one.version for one in told.commands if isinstance(one, say.Publish)]
            same("what is to be published", asked, [told.after.version + 1] * len(asked))

        return watch

    claim = "The version rises by one, when the next one is published and not before; it never falls."
    mutant = ("believes whatever version it is told", scheduler_mutants.believes_version)
    source = "properties, W3 and W4: ray 63699, TRL 5932"
    needs = ("a publication that failed", "a version told twice")
    return scheduler_law("versions_rise_one_by_one", claim, mutant, Played(watching), *needs, source=source)


def _recovered() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        rules, version = script.rules, len(script.moves) % 5
        state = subject.begin(rules, prompts=99, workers=50, slots=2, version=version)
        after, commands = subject.scheduler(rules).step(state, Started())
        begun = [one for one in commands if isinstance(one, say.Dispatch)]
        seen("a later version", version)
        same("samples let in", len(begun), min(rules.concurrency, (rules.staleness + 1) * rules.batch))
        same("those under way", sum(seat.status == RUNNING for _, seat in live(after)), len(begun))
        same("the first prompt", begun[0].prompt if begun else NOBODY, version * rules.batch // rules.group)

    claim = "A run that goes on from later weights lets in as many samples as one from the first weights."
    mutant = ("goes on with counters at 0", scheduler_mutants.from_nothing)
    source = "objectives, 2.8: on_version_recovered; otherwise a burst of (staleness + version + 1) batches"
    inputs = scripts(concurrency=90, room=())
    return scheduler_law(
        "recovery_makes_no_burst", claim, mutant, check, "a later version", source=source, inputs=inputs
    )
