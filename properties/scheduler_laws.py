"""Laws of a scheduler: what is counted, what is bounded, what is learned from, and that a batch comes.

The subject is a `Scheduling`. It is played against a world on paper, which keeps its own book; see `scheduler_world`.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..core.machine import Started
from ..runtime.scheduling import messages as say
from ..runtime.scheduling.numbered import entries, waiting
from ..runtime.scheduling.state import IDLE, NOBODY, PACE, RECOMPUTE, REQUEUE, RUNNING, THERE, Rules, Schedule
from . import scheduler_mutants as mutants
from .compare import require, same
from .law import Law, Mutant, Seen, Suite
from .scheduler_world import Name, Scheduling, Script, Told, World, fair, lose, play

SOURCE = "runtime.scheduler: three bounds, whole groups, one version after the other"
CAPACITY = "AReaL, staleness_manager.py; SkyRL, fully_async: submitted = accepted + filtered + running"
BITS = 2  # bytes of a move

Check = Callable[[Scheduling, Script, Seen], None]
Watch = Callable[[World, Told], None]


@frozen
class Played:
    """A law that looks at every step of a script; `watching` makes what looks."""

    watching: Callable[[Script, Seen], Watch]

    def __call__(self, subject: Scheduling, script: Script, seen: Seen) -> None:
        """Plays the script under the law's eyes."""
        play(subject, script, self.watching(script, seen))


def scripts(**fixed: Any) -> SearchStrategy[Script]:
    """Few samples, few generators, and 60 to 90 moves; `fixed` rules are not drawn."""
    return _drawn().map(lambda script: evolve(script, rules=evolve(script.rules, **fixed)))


@st.composite
def _drawn(draw: DrawFn) -> Script:
    group = draw(st.sampled_from((1, 1, 2, 3)))
    batch, staleness = group * draw(st.integers(1, 3)), draw(st.sampled_from((0, 1, 1, 2, 4)))
    rooms: tuple[int | tuple[()], ...] = ((), (), batch, max(batch, (staleness + 1) * batch - group))
    rules = Rules(
        batch=batch,
        group=group,
        staleness=staleness,
        concurrency=draw(st.integers(1, 6)),
        updates=60,
        retries=draw(st.sampled_from((0, 1, 3))),
        stale=draw(st.sampled_from(("drop", "requeue", "pace"))),
        incomplete=draw(st.sampled_from(("drop", "repair"))),
        proximal=draw(st.sampled_from(("keep", "recompute"))),
        room=draw(st.sampled_from(rooms)),
    )
    raw = draw(st.binary(min_size=60 * BITS, max_size=90 * BITS))
    moves = tuple(int.from_bytes(raw[i : i + BITS], "big") for i in range(0, len(raw) - 1, BITS))
    workers, slots, prompts = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 30))
    return Script(rules, workers, slots, prompts, moves)


def scheduler_laws() -> Suite:
    """The laws of a `Scheduling(scheduler, begin)` in a world where nothing is lost for good."""
    bounds = (_counted(), _under_way(), _let_in(), _room(), _age(), _versions())
    batches = (_whole(), _once(), _starves(), _pace(), _requeue(), _proximal(), _recovered())
    return Suite("scheduler_laws", (*bounds, *batches))


def scheduler_law(
    name: str,
    claim: str,
    mutant: tuple[str, mutants.Edit],
    check: Check,
    *needs: str,
    source: str = SOURCE,
    inputs: SearchStrategy[Script] | None = None,
) -> Law:
    """A law over scripts."""
    drawn = scripts() if inputs is None else inputs
    return Law(
        name=name,
        claim=claim,
        source=source,
        inputs=lambda subject: drawn,
        check=check,
        mutant=Mutant(*mutant),
        needs=needs,
    )


def live(state: Schedule) -> list[tuple[Name, Any]]:
    """Every sample that was let in and is still here, with its seat."""
    return [((n, i, seat.attempt), seat) for n, group in entries(state.groups) for i, seat in enumerate(group.seats)]


def trains(told: Told) -> list[say.Train]:
    """The batches given to the trainer, those given again aside."""
    return [one for one in told.commands if isinstance(one, say.Train) and told.before.phase in (IDLE, "recompute")]


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
    mutant = ("does not report what it leaves out", mutants.forgets_filtered)
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
    mutant = ("pays filtered samples back after the minimum is taken", mutants.adds_afterwards)
    return scheduler_law("never_more_under_way", claim, mutant, Played(watching), "as many as allowed", source=CAPACITY)


def budget(here: World) -> int:
    """How many samples more may be let in, by the book."""
    rules, now = here.rules, here.state
    held = len(live(now))
    running = sum(seat.status != THERE for _, seat in live(now))
    ahead = (rules.staleness + now.version + 1) * rules.batch - (here.updates * rules.batch + held)
    free: int = min(rules.concurrency - running, ahead)
    return free if isinstance(rules.room, tuple) else min(free, rules.room - held)


def _let_in() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            seen("nothing more may be let in", budget(here) == 0)
            seen("a filtered sample", told.after.filtered)
            require(budget(here) >= 0, f"{-budget(here)} samples too many were let in")

        return watch

    claim = "What was let in and not left out is at most (staleness + version + 1) batches, what is not used up at most `room`."
    mutant = ("pays a filtered sample back twice", mutants.pays_twice)
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
    mutant = ("does not pay back what was filtered", mutants.pays_nothing)
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
    mutant = ("takes a sample to be as old as its newest token", mutants.tail_for_age)
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
    mutant = ("believes whatever version it is told", mutants.believes_version)
    source = "properties, W3 and W4: ray 63699, TRL 5932"
    needs = ("a publication that failed", "a version told twice")
    return scheduler_law("versions_rise_one_by_one", claim, mutant, Played(watching), *needs, source=source)


def _whole() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        rules = script.rules

        def watch(here: World, told: Told) -> None:
            for batch in trains(told):
                groups = sorted({group for group, _, _ in batch.samples})
                wanted = sorted((group, seat) for group in groups for seat in range(rules.group))
                seen("a group of several", rules.group > 1)
                same("the seats", sorted(name[:2] for name in batch.samples), wanted)
                same("the size of the batch", len(batch.samples), rules.batch)
                strange = [name for name in batch.samples if name not in here.samples]
                require(not strange, f"never finished: {strange}")

        return watch

    claim = (
        "A batch is whole groups of samples that were finished, by that very attempt, and as many as an update wants."
    )
    mutant = ("takes a failure for an empty sample", mutants.failure_is_empty)
    source = "objectives, 4.14 and 4.16: a failed rollout becomes reward 0, incomplete groups"
    return scheduler_law(
        "groups_are_learned_from_whole", claim, mutant, Played(watching), "a group of several", source=source
    )


def _once() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        used, gone = set[Name](), set[int]()

        def watch(here: World, told: Told) -> None:
            gone.update(one.number for one in told.commands if isinstance(one, say.Report) and one.about == "group")
            for batch in trains(told):
                seen("several batches", used)
                require(not used & {*batch.samples}, f"learned from twice: {used & {*batch.samples}}")
                left = [name for name in batch.samples if name[0] in gone]
                require(not left, f"left out, and learned from: {left}")
                used.update(batch.samples)

        return watch

    claim = "Every sample leaves once: it is learned from, or left out, and never again."
    mutant = ("gives the trainer the last batch again", mutants.last_batch_again)
    source = "worlds, B.7: buffer samples are not consumed; objectives, 4.13"
    return scheduler_law("each_leaves_once", claim, mutant, Played(watching), "several batches", source=source)


def _starves() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        here = play(subject, script)
        if here.stop:
            return
        seen("samples under way with a generator that is lost", here.flights)
        if here.flights:
            lose(here, list(here.workers).index(next(iter(here.flights.values())).worker))
        require(fair(here, 3), f"no further update; phase {here.state.phase}, under way {list(here.flights)}")

    claim = "Whatever has happened: once what is under way ends well and prompts and a generator are there, updates are made."
    mutant = ("forgets what a lost generator had under way", mutants.forgets_lost)
    needs = ("samples under way with a generator that is lost",)
    source = "objectives, 4.7: SkyRL 1173, verl 7155, AReaL PR 1396"
    return scheduler_law("nobody_starves", claim, mutant, check, *needs, source=source)


def _pace() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            now = told.after
            seen("an update that waits", now.phase == IDLE and now.queued >= script.rules.batch and not now.stopped)
            stale = [one.number for one in told.commands if isinstance(one, say.Report) and one.reason == "stale"]
            require(not stale or script.rules.stale != PACE, f"left behind: {stale}")

        return watch

    claim = 'Under "pace" no sample becomes too old: an update waits for those that it would leave behind.'
    mutant = ("updates as soon as there is a batch", mutants.never_waits)
    inputs = scripts(stale="pace", concurrency=6, room=())
    source = "runtime.scheduling.ages: earliest deadline first"
    return scheduler_law(
        "pace_wastes_nothing", claim, mutant, Played(watching), "an update that waits", source=source, inputs=inputs
    )


def _requeue() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            for one in told.commands:
                if isinstance(one, say.Report) and one.reason == "stale" and script.rules.stale == REQUEUE:
                    seen("a group that was too old")
                    prompt = next(group.prompt for n, group in entries(told.before.groups) if n == one.number)
                    again = [group.prompt for n, group in entries(told.after.groups) if n >= told.before.next_group]
                    require(
                        prompt in again or prompt in waiting(told.after.again), f"prompt {prompt} is not begun again"
                    )

        return watch

    claim = 'Under "requeue" the prompt of a group that is too old is begun anew, before prompts that were never begun.'
    mutant = ("drops what it should requeue", mutants.never_requeues)
    source = "objectives, 2.8: tinker-cookbook requeues stale groups"
    inputs = scripts(stale="requeue", concurrency=6, room=())
    needs = ("a group that was too old",)
    return scheduler_law("requeued_begin_anew", claim, mutant, Played(watching), *needs, source=source, inputs=inputs)


def _proximal() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            asked = [one for one in told.commands if isinstance(one, say.Recompute | say.Train)]
            if not asked or told.before.phase != IDLE or script.rules.proximal != RECOMPUTE:
                return
            known = {**here.samples, **here.flights}
            lags = {
                name for name, _ in live(told.after) if name in known and asked[0].version - 1 in known[name].versions
            }
            seen("such tokens outside the batch", any(name[0] not in told.after.batch for name in lags))
            missing = lags - {*asked[0].samples} if isinstance(asked[0], say.Recompute) else lags
            require(not missing, f"an update at {asked[0].version} without the proximal log-probs of {missing}")

        return watch

    claim = "Before an update at version v, the proximal log-probs of all tokens of v - 1 are asked for, of whatever is live."
    mutant = ("recomputes the batch alone", mutants.batch_alone)
    source = "arXiv:2505.24298, section 5; worlds, E.2"
    inputs = scripts(proximal="recompute", staleness=2, concurrency=6, room=())
    needs = ("such tokens outside the batch",)
    return scheduler_law(
        "proximal_before_the_update", claim, mutant, Played(watching), *needs, source=source, inputs=inputs
    )


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
    mutant = ("goes on with counters at 0", mutants.from_nothing)
    source = "objectives, 2.8: on_version_recovered; otherwise a burst of (staleness + version + 1) batches"
    inputs = scripts(concurrency=90, room=())
    return scheduler_law(
        "recovery_makes_no_burst", claim, mutant, check, "a later version", source=source, inputs=inputs
    )
