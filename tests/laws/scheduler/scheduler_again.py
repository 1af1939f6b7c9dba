"""Laws of a scheduler's retries: failed trainer commands are sent again, and failed aborts cost nothing."""

from collections.abc import Mapping

from attrs import evolve

from purestep.core.machine import Command, Failed
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.state import THERE, TRAIN

from . import scheduler_mutants
from .scheduler_moves import MOVES, Move, chunk, fair, finish, play, resume, trained, trainer_fails, upset, wake
from .scheduler_scripts import Played, Watch, live, scheduler_law, scripts, trains
from .scheduler_world import Scheduling, Script, Told, World, work_of

FAILING: Mapping[Move, int] = {finish: 8, trained: 24, chunk: 20, wake: 4, trainer_fails: 10, upset: 40}
GOING_ON: Mapping[Move, int] = {**MOVES, trainer_fails: 16, resume: 4}
TRAINER = (say.Recompute, say.Train, say.Publish)


def again_laws() -> tuple[Law, ...]:
    """The laws of `scheduler_fault_laws` about retries."""
    return (_asked(), _tries(), _tightened(), _aborts())


def _moved(told: Told, command: Command) -> bool:
    """Return whether a sample of the command has another attempt by now, or was removed."""
    return isinstance(command, say.Recompute) and not {*command.samples} <= {name for name, _ in live(told.before)}


def _asked() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            if told.move == "trainer_fails":
                seen("a failure after samples had moved", _moved(told, told.event.command))
                again = [work_of(one.command) for one in told.commands if isinstance(one, say.RetryAfter)]
                same("what is to be done again", again, [work_of(told.event.command)])
            elif told.move == "due" and isinstance(told.event.command, TRAINER):
                seen("a pause in which samples moved", _moved(told, told.event.command))
                asked = [work_of(one) for one in told.commands if isinstance(one, TRAINER)]
                same("what is asked for", asked, [work_of(told.event.command)])
                samples = {name for one in told.commands if isinstance(one, say.Recompute) for name in one.samples}
                require(samples <= {name for name, _ in live(told.after)}, "it is asked for samples that are over")

        return watch

    claim = "What the trainer failed at is asked for again after a pause, of the samples that are there then."
    mutant = ("knows what the trainer does by its samples", scheduler_mutants.by_samples)
    source = "runtime.async_rl.scheduler.updates: a task is a phase and a version; otherwise the trainer is never asked again"
    inputs = scripts(proximal="recompute", group=1, batch=1, staleness=4, concurrency=6, room=(), retries=3)
    inputs = inputs.map(lambda script: evolve(script, workers=3, slots=2, prompts=60))
    needs = ("a failure after samples had moved", "a pause in which samples moved")
    return scheduler_law(
        "what_failed_is_asked_again", claim, mutant, Played(watching, FAILING), *needs, source=source, inputs=inputs
    )


def _tries() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        rules, failed_before = script.rules, set[tuple[type, int]]()

        def watch(here: World, told: Told) -> None:
            if told.move in ("resume", "restart") and told.before.failures:
                failed_before.update(map(work_of, here.trainer))
            elif told.move == "trainer_fails":
                task = work_of(told.event.command)
                seen("a failure before the run went on and another after it", task in failed_before)
                pauses = [one.seconds for one in told.commands if isinstance(one, say.RetryAfter)]
                same("the pause", pauses, [min(rules.longest, rules.backoff * 2.0 ** (here.fails - 1))])

        return watch

    claim = "A run that goes on has all the tries of what its trainer does, and the first pause again."
    mutant = ("goes on with the failures it had", scheduler_mutants.old_failures)
    source = "a run that was resumed after its trainer had failed for good would fail for good again"
    needs = ("a failure before the run went on and another after it",)
    inputs = scripts(retries=3)
    return scheduler_law(
        "going_on_begins_all_tries", claim, mutant, Played(watching, GOING_ON), *needs, source=source, inputs=inputs
    )


def _tightened() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        bound = script.rules.staleness

        def watch(here: World, told: Told) -> None:
            if here.rules.staleness == bound:
                for batch in trains(told):
                    oldest = min(min(here.samples[name].versions) for name in batch.samples)
                    require(batch.version - oldest <= bound, f"a batch at {batch.version} of version {oldest}")

        here = play(subject, evolve(script, rules=evolve(script.rules, staleness=scheduler_mutants.LOOSE)), watch)
        if here.stop:
            return
        old = [
            seat.head for _, seat in live(here.state) if seat.status == THERE and seat.head < here.state.version - bound
        ]
        seen("samples too old for the tighter bound", old and here.state.phase != TRAIN)
        here.rules, here.machine = script.rules, subject.scheduler(script.rules)
        resume(here, 4)
        require(fair(here, 3), "no update is made any more")

    claim = (
        "Under a tighter bound a run leaves out what is too old by it, and goes on; an update under way is made again."
    )
    mutant = ("goes on with the bound that the run had", scheduler_mutants.keeps_the_old_bound)
    inputs = scripts(staleness=0, concurrency=6, room=(), proximal="keep", updates=200)
    inputs = inputs.map(lambda script: evolve(script, workers=3, slots=2, prompts=200))
    needs = ("samples too old for the tighter bound",)
    return scheduler_law("a_tighter_bound_holds", claim, mutant, check, *needs, inputs=inputs)


def _aborts() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            if not (isinstance(told.event, Failed) and isinstance(told.event.command, say.Abort)):
                return
            seen("an abort that failed")
            require(told.after == told.before, "the state is another one")
            kinds = {type(one) for one in told.commands}
            same("the answer", kinds, {say.Report})  # with none a driver would raise

        return watch

    claim = "An abort that fails (its generator is gone) changes nothing, and is answered by a report."
    mutant = ("has no answer to an abort that failed", scheduler_mutants.no_abort_may_fail)
    source = "runtime.machine.drive: a failure that is answered by nothing is raised"
    return scheduler_law("an_abort_may_fail", claim, mutant, Played(watching), "an abort that failed", source=source)
