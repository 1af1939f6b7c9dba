"""Laws of a scheduler's batches: complete groups, each used once, the handling of the rest, and progress."""

from purestep.core.machine import Stop
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.state import IDLE, PACE, RECOMPUTE, REQUEUE
from purestep.runtime.machine.persistent_map import entries, queue_items

from . import scheduler_mutants
from .scheduler_moves import fair, lose, play
from .scheduler_scripts import Played, Watch, live, scheduler_law, scripts, trains
from .scheduler_world import Name, Scheduling, Script, Told, World


def batch_laws() -> tuple[Law, ...]:
    """The laws of `scheduler_laws` about batches."""
    return (_whole(), _once(), _starves(), _pace(), _requeue(), _proximal())


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
    mutant = ("takes a failure for an empty sample", scheduler_mutants.failure_is_empty)
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
    mutant = ("gives the trainer the last batch again", scheduler_mutants.last_batch_again)
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
            if any(isinstance(one, Stop) for one in here.told[-1].commands):  # it had the last prompt
                return
        require(fair(here, 3), f"no further update; phase {here.state.phase}, under way {list(here.flights)}")

    claim = "Whatever has happened: once what is under way ends well and prompts and a generator are there, updates are made."
    mutant = ("forgets what a lost generator had under way", scheduler_mutants.forgets_lost)
    needs = ("samples under way with a generator that is lost",)
    source = "objectives, 4.7: SkyRL 1173, verl 7155, AReaL PR 1396"
    return scheduler_law("nobody_starves", claim, mutant, check, *needs, source=source, share=0.01)


def _pace() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            now = told.after
            seen("an update that waits", now.phase == IDLE and now.queued >= script.rules.batch and not now.stopped)
            stale = [one.number for one in told.commands if isinstance(one, say.Report) and one.reason == "stale"]
            require(not stale or script.rules.stale != PACE, f"left behind: {stale}")

        return watch

    claim = 'Under "pace" no sample becomes too old: an update waits for those that it would leave behind.'
    mutant = ("updates as soon as there is a batch", scheduler_mutants.never_waits)
    inputs = scripts(stale="pace", concurrency=6, room=())
    source = "runtime.async_rl.scheduler.updates: earliest deadline first"
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
                        prompt in again or prompt in queue_items(told.after.again),
                        f"prompt {prompt} is not begun again",
                    )

        return watch

    claim = 'Under "requeue" the prompt of a group that is too old is begun anew, before prompts that were never begun.'
    mutant = ("drops what it should requeue", scheduler_mutants.never_requeues)
    source = "objectives, 2.8: tinker-cookbook requeues stale groups"
    inputs = scripts(stale="requeue", concurrency=6, room=())
    needs = ("a group that was too old",)
    return scheduler_law(
        "requeued_begin_anew", claim, mutant, Played(watching), *needs, source=source, inputs=inputs, share=0.01
    )


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
    mutant = ("recomputes the batch alone", scheduler_mutants.batch_alone)
    source = "arXiv:2505.24298, section 5; worlds, E.2"
    inputs = scripts(proximal="recompute", staleness=2, concurrency=6, room=())
    needs = ("such tokens outside the batch",)
    return scheduler_law(
        "proximal_before_the_update", claim, mutant, Played(watching), *needs, source=source, inputs=inputs
    )
