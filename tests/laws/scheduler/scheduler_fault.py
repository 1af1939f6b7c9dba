"""Laws of a scheduler under faults: lost rollout workers, late, duplicate and invalid messages, Ctrl-C, and resumed runs."""

from typing import Any

from purestep.core.machine import Interrupted, Stop
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.state import REPAIR, RUNNING, with_fields
from purestep.runtime.machine.persistent_map import entries, value_at

from . import scheduler_mutants
from .scheduler_again import again_laws
from .scheduler_moves import play
from .scheduler_scripts import Played, Watch, live, scheduler_law, scripts
from .scheduler_world import Scheduling, Script, Told, World, tell, through_text


def scheduler_fault_laws() -> Suite:
    """The laws of a `Scheduling(scheduler, begin)` about faults, and about its states as values."""
    faults = (_aborted(), _bystanders(), _late(), _garbage(), _pauses(), _repair(), _interrupted())
    return Suite("scheduler_fault_laws", (*faults, *again_laws(), _replay(), _text()))


def _aborted() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            seen("an attempt given up", any(isinstance(one, say.Abort) for one in told.commands))
            if told.after.stopped:
                return
            wanted = {name: seat.worker for name, seat in live(told.after) if seat.status == RUNNING}
            require({name: flight.worker for name, flight in here.flights.items()} == wanted, "they differ")

        return watch

    claim = "What generators have under way is what the state says: whatever is given up is aborted."
    mutant = ("gives up without a word", scheduler_mutants.gives_up_silently)
    return scheduler_law("given_up_is_aborted", claim, mutant, Played(watching), "an attempt given up")


def _bystanders() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            if not isinstance(told.event, say.Lost):
                return
            before, after = live(told.before), dict(live(told.after))
            hit = {name[0] for name, seat in before if seat.worker == told.event.worker}
            others = [(name, seat) for name, seat in before if name[0] not in hit]
            seen("a bystander", any(seat.status == RUNNING for _, seat in others) and hit)
            for name, seat in others:
                require(name in after, f"{name} is gone")
                require(after[name] == seat or seat.status != RUNNING, f"{name} was {seat}, is {after[name]}")
            for name, seat in before:
                group = value_at(told.after.groups, name[0])
                if seat.worker == told.event.worker and group:
                    require(group.seats[name[1]].attempt == name[2] + 1, f"{name} was not begun anew")

        return watch

    claim = "A lost generator costs what it had under way, which is begun anew, and nothing else."
    mutant = ("begins everything anew when one generator is lost", scheduler_mutants.anew)
    source = "objectives, 4.14: one failed rollout kills the run"
    return scheduler_law(
        "a_loss_costs_its_own_work", claim, mutant, Played(watching), "a bystander", source=source, share=0.01
    )


def _late() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            if told.move not in ("late", "twice"):
                return
            seen(f"a message that comes {told.move}")
            answer = isinstance(told.event, say.Recomputed | say.Consumed | say.Published)
            seen("an answer of a trainer that had failed", answer and told.move == "late" and here.resting)
            seen("an answer that comes twice", answer and told.move == "twice")
            seen("tokens told twice of a sample under way", told.move == "twice" and _under_way(told))
            wanted = with_fields(told.before, ignored=told.before.ignored + 1)
            require(told.after == wanted, f"{told.event} changed the state")
            said = [one for one in told.commands if not isinstance(one, say.Report)]
            same("what is asked for", said, [])

        return watch

    claim = "A message about an attempt or a version that is over changes nothing but the count of such messages."
    mutant = ("takes any attempt for the present one", scheduler_mutants.any_attempt)
    answers = ("an answer of a trainer that had failed", "an answer that comes twice")
    twice = ("a message that comes twice", "tokens told twice of a sample under way")
    needs = ("a message that comes late", *twice, *answers)
    source = "worlds, F.3: retries that duplicate history; properties, W5"
    return scheduler_law("late_and_double_change_nothing", claim, mutant, Played(watching), *needs, source=source)


def _under_way(told: Told) -> bool:
    """Return whether the event has tokens of a sample in progress."""
    event = told.event
    if not isinstance(event, say.TokenChunk):
        return False
    seat = dict(live(told.before)).get((event.group, event.seat, event.attempt))
    return seat is not None and seat.status == RUNNING


def _garbage() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            event: Any = told.event
            if told.move != "garbage":
                return
            seen("an impossible message")
            name = (event.group, event.seat, event.attempt)
            aborted = [(one.group, one.seat, one.attempt) for one in told.commands if isinstance(one, say.Abort)]
            require(name in aborted, f"{event} was believed")
            require(name not in dict(live(told.after)), f"{name} goes on")

        return watch

    claim = (
        "Who says what cannot be (a version not yet made, one older than before, fewer tokens) is not believed at all."
    )
    mutant = ("brings impossible versions into the range of possible ones", scheduler_mutants.clips)
    source = "a generator that returns garbage or a wrong version; properties, W1"
    return scheduler_law(
        "the_impossible_is_not_believed", claim, mutant, Played(watching), "an impossible message", source=source
    )


def _pauses() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        rules = script.rules

        def watch(here: World, told: Told) -> None:
            for one in told.commands:
                if not isinstance(one, say.RetryAfter):
                    continue
                failures = told.after.failures
                if isinstance(one.command, say.Dispatch):
                    group = value_at(told.after.groups, one.command.group)
                    failures = group.seats[one.command.seat].failures if group else 0
                seen("a second failure", failures > 1)
                require(failures <= rules.retries, f"tried again after {failures} failures")
                same("the pause", one.seconds, min(rules.longest, rules.backoff * 2 ** (failures - 1)))

        return watch

    claim = (
        "A failure is followed by a pause, twice as long after each further one, and never more retries than allowed."
    )
    mutant = ("tries again at once", scheduler_mutants.at_once)
    source = "worlds, B.7: a retry loop without back-off"
    inputs = scripts(retries=3, backoff=0.5, longest=1.5)
    return scheduler_law(
        "pauses_grow", claim, mutant, Played(watching), "a second failure", source=source, inputs=inputs
    )


def _repair() -> Law:
    def watching(script: Script, seen: Seen) -> Watch:
        def watch(here: World, told: Told) -> None:
            for one in told.commands:
                if isinstance(one, say.Report) and one.about == "sample" and script.rules.incomplete == REPAIR:
                    before, after = value_at(told.before.groups, one.number), value_at(told.after.groups, one.number)
                    may = before and before.repairs < script.rules.group and not isinstance(told.event, say.Lost)
                    seen("a member to replace", may)
                    require(not may or after, f"group {one.number} was left out")

        return watch

    claim = 'Under "repair" another sample takes the seat of one that failed for good, and the group stays.'
    mutant = ("leaves a group out when a member has failed", scheduler_mutants.never_repairs)
    source = "objectives, section 3: the policy for incomplete groups is explicit; labs-molt PR 48"
    inputs = scripts(incomplete="repair", retries=0)
    needs = ("a member to replace",)
    return scheduler_law("members_are_replaced", claim, mutant, Played(watching), *needs, source=source, inputs=inputs)


def _interrupted() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        here = play(subject, script)
        if here.stop:
            return
        flights = dict(here.flights)
        told = tell(here, "interrupt", Interrupted())
        seen("samples under way", flights)
        require(told.after.stopped and any(isinstance(one, Stop) for one in told.commands), "the run goes on")
        aborted = {(one.group, one.seat, one.attempt) for one in told.commands if isinstance(one, say.Abort)}
        same("what is aborted", sorted(aborted), sorted(flights))
        for name, flight in flights.items():
            versions = flight.versions or (flight.version,)
            told = tell(here, "last", say.Finished(*name, flight.tokens, min(versions), max(versions)))
            same("what is asked for after the end", told.commands, ())
            same("what is accepted after the end", told.after.accepted, told.before.accepted + 1)

    claim = "Ctrl-C aborts what is under way and stops; what still comes is kept, and nothing more is asked for."
    mutant = ("does not listen to Ctrl-C", scheduler_mutants.ignores_interrupt)
    return scheduler_law("an_end_is_an_end", claim, mutant, check, "samples under way")


def _replay() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        here = play(subject, script)
        machine = subject.scheduler(script.rules)
        seen("many events", len(here.told) > 20)
        for number, told in enumerate(here.told):
            again = machine.step(told.before, told.event)
            require(again == (told.after, told.commands), f"event {number}, told again, has another answer")

    claim = "The log of events, folded again, gives the same states and commands."
    mutant = ("counts in a list beside the state", scheduler_mutants.counts_beside)
    source = "objectives, section 5.2: deterministic replay of asynchronous runs"
    return scheduler_law("replay_is_the_run", claim, mutant, check, "many events", source=source)


def _text() -> Law:
    def check(subject: Scheduling, script: Script, seen: Seen) -> None:
        here = play(subject, script)
        cut = len(script.moves) * 7 % len(here.told)
        state, machine = through_text(here.told[cut].after), subject.scheduler(script.rules)
        seen("groups in the state", any(entries(state.groups)))
        require(state == here.told[cut].after, f"the state after event {cut} is another one as text")
        for told in here.told[cut + 1 :]:
            if told.before.stopped:
                break
            state, commands = machine.step(state, told.event)
            require((state, commands) == (told.after, told.commands), f"after event {cut}, {told.event} goes elsewhere")

    claim = "A run that goes on from its state as text, cut anywhere, is the run that never stopped."
    mutant = ("knows the states it made by heart", scheduler_mutants.by_heart)
    source = "design: whole-run checkpoint"
    return scheduler_law("text_keeps_the_state", claim, mutant, check, "groups in the state", source=source)
