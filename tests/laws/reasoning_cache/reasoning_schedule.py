"""Laws of the reasoning schedule: under failures, delays and repetitions nothing is lost, duplicated or out of bounds.

The subject is a factory of machines, as `reasoning_machine`; runs go through `reasoning_world`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from attrs import evolve

from purestep.core.language.reasoning_cache.events import (
    CacheState,
    CallFailed,
    CallModel,
    FinishedAttempt,
    GroupPublished,
    GroupResult,
    PublishGroup,
    Replied,
    Wait,
    Waited,
)
from purestep.core.language.reasoning_cache.machine import ReasoningCache
from purestep.core.language.reasoning_cache.rollouts import at_turn
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.machine import Command, Event, Machine, Started
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from .reasoning_world import OFTEN, Factory, Plan, Trace, plans, ran

# --- mutants ---
# Common errors when model calls fail: attempts that are lost, duplicated or mixed up.


Answer = tuple[CacheState, tuple[Command, ...]]
Step = Callable[[CacheState, Event], Answer]


def _stepping(change: Callable[[Step, CacheState, Event], Answer]) -> Callable[[Factory], Factory]:
    def make(factory: Factory) -> Factory:
        def made(cache: ReasoningCache, settings: CacheSettings, **options: Any) -> Machine[CacheState]:
            step = factory(cache, settings, **options).step
            return Machine(lambda schedule, event: change(step, schedule, event))

        return made

    return make


def _with_settings(settings: Callable[[CacheSettings], CacheSettings]) -> Callable[[Factory], Factory]:
    def make(factory: Factory) -> Factory:
        def made(cache: ReasoningCache, told: CacheSettings, **options: Any) -> Machine[CacheState]:
            return factory(cache, settings(told), **options)

        return made

    return make


def _begins_anew(step: Step, schedule: CacheState, event: Event) -> Answer:
    """Keep the stored texts of an attempt that is returned to the queue, and restart its cycles."""
    before = {one.number: one.returns for one in (*schedule.running, *schedule.waiting)}
    after, commands = step(schedule, event)
    back = {one.number for one in (*after.running, *after.waiting) if one.returns > before.get(one.number, 0)}
    old = {one.number: one.state.overall_cycle_step for one in schedule.running}

    def anew(one: Any) -> Any:
        return evolve(one, state=evolve(one.state, overall_cycle_step=0)) if one.number in back else one

    calls = tuple(
        evolve(command, ask=evolve(command.ask, cycle_step=0))
        if isinstance(command, CallModel) and command.attempt in back and old.get(command.attempt)
        else command
        for command in commands
    )
    return evolve(after, running=tuple(map(anew, after.running)), waiting=tuple(map(anew, after.waiting))), calls


def _any_published(step: Step, schedule: CacheState, event: Event) -> Answer:
    if isinstance(event, GroupPublished) and schedule.result_queue:
        event = evolve(event, number=schedule.result_queue[0].number)
    return step(schedule, event)


def _publishes_often(step: Step, schedule: CacheState, event: Event) -> Answer:
    after, commands = step(schedule, event)
    first = tuple(PublishGroup(result=result) for result in after.result_queue[:1])
    return after, (*commands, *(one for one in first if one not in commands))


def _forgets(step: Step, schedule: CacheState, event: Event) -> Answer:
    after, commands = step(schedule, event)
    if isinstance(event, Started):
        commands = tuple(command for command in commands if not isinstance(command, CallModel | Wait))
    return after, commands


def _steady(step: Step, schedule: CacheState, event: Event) -> Answer:
    after, commands = step(schedule, event)
    return after, tuple(evolve(one, seconds=0.5) if isinstance(one, Wait) else one for one in commands)


def _counts_any_failure(step: Step, schedule: CacheState, event: Event) -> Answer:
    if isinstance(event, CallFailed):
        asks = next((one.asks for one in schedule.running if one.number == event.attempt), event.asked)
        event = evolve(event, asked=asks)
    return step(schedule, event)


def _first_model(step: Step, schedule: CacheState, event: Event) -> Answer:
    after, commands = step(schedule, event)
    calls = tuple(evolve(one, llm=0) if isinstance(one, CallModel) else one for one in commands)
    return evolve(after, running=tuple(evolve(one, llm=0) for one in after.running)), calls


begins_anew = _stepping(_begins_anew)
any_published = _stepping(_any_published)
publishes_often = _stepping(_publishes_often)
forgets = _stepping(_forgets)
steady = _stepping(_steady)
counts_any_failure = _stepping(_counts_any_failure)
first_model = _stepping(_first_model)
one_result_more = _with_settings(lambda settings: evolve(settings, result_queue_size=settings.result_queue_size + 1))
one_problem_more = _with_settings(lambda settings: evolve(settings, problem_queue_size=settings.problem_queue_size + 1))
one_place_more = _with_settings(lambda settings: evolve(settings, llm_max_rollouts=settings.llm_max_rollouts + 1))

MUTANTS: dict[str, Callable[[Any], Any]] = {
    "takes any word of a publication for that of the first result": any_published,
    "admits one problem more": one_problem_more,
    "has one attempt more on each model": one_place_more,
}


# --- laws ---


SOURCE = "core.language.reasoning_cache.schedule: groups of attempts, bounded queues, retries"


def reasoning_schedule_laws() -> Suite:
    """The laws of the machine that runs groups of attempts."""
    laws = _clean(), _once(), _bounds(), _resumed(), _stale(), _back_off(), _spread()
    return Suite("reasoning_schedule_laws", laws)


_law = law_constructor(plans, SOURCE)


def _attempts(results: Iterable[GroupResult]) -> dict[tuple[int, int], FinishedAttempt]:
    """Finished attempts by group and rollout_index."""
    return {(result.number, one.state.rollout_index): one for result in results for one in result.attempts}


def _told(trace: Trace, *kinds: type) -> int:
    return sum(isinstance(event, kinds) for event in trace.events)


def _clean() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        clean, trace = ran(factory, plan, script=b""), ran(factory, plan)
        seen("failures", _told(trace, CallFailed))
        seen("an attempt that went back", any(one.returns for state in trace.states for one in state.running))
        wanted, found = (_attempts(one.published.values()) for one in (clean, trace))
        for which, one in found.items():
            seen("an attempt that was given up", one.failed)
            require(not one.failed or plan.returns < OFTEN, "nothing is given up as long as it may go back")
            whole = wanted[which].state
            steps = one.state.overall_cycle_step
            cut = at_turn(whole, 1 + steps // 2) if steps % 2 == 0 else whole
            same("steps", steps, steps if one.failed else 2 * plan.cycles)
            require(
                steps % 2 == 1 or one.state == cut, f"attempt {which} is that of a run without failures, up to its end"
            )
            texts = one.state.reasoning_string_store
            same("reasoning", texts, whole.reasoning_string_store[: len(texts)])
            same("turns", len(texts), (steps + 1) // 2)

    mutant = Mutant("begins the cycles of an attempt anew when it goes back to wait", begins_anew)
    claim = "Every attempt is, up to where it comes, that of a run in which nothing failed."
    needs = "failures", "an attempt that went back", "an attempt that was given up"
    return _law("as_if_nothing_failed", claim, mutant, check, *needs)


def _once() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        trace = ran(factory, plan)
        seen("replies that came again", len(set(map(repr, trace.events))) < len(trace.events))
        groups = plan.problems * plan.samples
        left = Counter(
            (one.state.problem.problem_id, one.state.sample_id, one.state.rollout_index)
            for result in trace.published.values()
            for one in result.attempts
        )
        three = (range(plan.problems), range(plan.samples), range(plan.attempts))
        wanted = Counter((str(p), s, a) for p in three[0] for s in three[1] for a in three[2])
        require(left == wanted, f"attempts that left are {sorted(left.items())}, wanted each of {sorted(wanted)} once")
        same("publications", (trace.publications, trace.last.published), (groups, groups))
        at_rest = trace.last.running, trace.last.waiting, trace.last.open_groups, trace.last.problem_queue
        same("what is left", at_rest, ((), (), (), ()))

    mutant = Mutant("publishes the first result again when something happens", publishes_often)
    claim = "Each attempt at each sample of each problem leaves exactly once, in one group with its neighbours."
    return _law("leaves_once", claim, mutant, check, "replies that came again")


def _bounds() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        for state in ran(factory, plan).states:
            seen("a full queue of results", len(state.result_queue) == plan.result_queue)
            seen("a full queue of problems", len(state.problem_queue) == plan.problem_queue)
            loads = Counter(one.llm for one in state.running)
            require(len(state.result_queue) <= plan.result_queue, f"{len(state.result_queue)} results wait")
            require(len(state.problem_queue) <= plan.problem_queue, f"{len(state.problem_queue)} problems wait")
            require(set(loads) <= set(range(plan.llms)), f"attempts are on the models {sorted(loads)}")
            require(max(loads.values(), default=0) <= plan.places, f"attempts by model are {dict(loads)}")
            opened = sum(len(group.attempts) < plan.attempts for group in state.open_groups)
            under_way = len(state.running) + len(state.waiting)
            require(opened <= under_way, "each group that is not whole has an attempt under way")

    mutant = Mutant("lets one result more wait", one_result_more)
    claim = "No queue and no model ever holds more than it may."
    return _law("bounds", claim, mutant, check, "a full queue of results", "a full queue of problems")


def _resumed() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        plan = evolve(plan, returns=OFTEN)
        whole, broken = ran(factory, plan, script=b""), ran(factory, plan, restarts=True)
        seen("a restart with calls under way", broken.restarts and any(state.running for state in broken.states[1:]))
        seen("several restarts", broken.restarts > 1)
        require(broken.published.keys() == whole.published.keys(), "the same groups are published")
        require(_attempts(broken.published.values()) == _attempts(whole.published.values()), "with the same attempts")
        same("publications", broken.last.published, len(whole.published))

    mutant = Mutant("forgets calls that were under way when it stopped", forgets)
    claim = "Written as JSON and begun again at any event, a run publishes what it would have published."
    needs = "a restart with calls under way", "several restarts"
    return _law("resumed_is_never_stopped", claim, mutant, check, *needs)


def _stale() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        trace, machine = ran(factory, plan), plan.machine(factory)
        for number, state in enumerate(trace.states[1:]):
            for place in range(max(0, number - 12), number + 1):
                event, had_effect = trace.events[place], trace.states[place] != trace.states[place + 1]
                if had_effect and not isinstance(event, Started):
                    seen("a failure that was told before", isinstance(event, CallFailed))
                    require(machine.step(state, event) == (state, ()), f"{event}, told again, changes something")

    mutant = Mutant("counts the failure of a call that was given up before", counts_any_failure)
    claim = "What has had its effect changes nothing and leads to nothing when it is told again."
    return _law("told_twice", claim, mutant, check, "a failure that was told before")


def _back_off() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        plan = evolve(plan, retries=2)
        trace, failures = ran(factory, plan), Counter[int]()
        for event, commands, (before, after) in zip(trace.events, trace.commands, pairwise(trace.states), strict=True):
            waits = [one for one in commands if isinstance(one, Wait)]
            if isinstance(event, Replied) and before != after:
                failures[event.attempt] = 0
            if isinstance(event, CallFailed) and before != after:
                seen("a second failure", failures[event.attempt])
                wanted = [0.5 * 2 ** failures[event.attempt]] if failures[event.attempt] < plan.retries else []
                same("seconds to wait", [one.seconds for one in waits], wanted)
                failures[event.attempt] = failures[event.attempt] + 1 if wanted else 0
            else:
                same("waits", waits, [])
            require(not isinstance(event, Waited) or before == after or commands, "a try follows the wait")

    mutant = Mutant("waits as long before each try", steady)
    claim = "The wait before try k + 1 of a call is retry_base_delay 2^k; after max_retries tries there is none."
    return _law("back_off", claim, mutant, check, "a second failure")


def _loads(state: CacheState, llms: int) -> list[int]:
    return [sum(one.llm == llm for one in state.running) for llm in range(llms)]


def _spread() -> Law:
    def check(factory: Factory, plan: Plan, seen: Seen) -> None:
        plan = evolve(plan, llms=2, places=3)
        for before, after in pairwise(ran(factory, plan).states):
            placed = {one.number for one in before.running}
            loads = _loads(after, plan.llms)
            for one in after.running:
                if one.number not in placed:
                    seen("a second attempt", len(after.running) > 1)
                    require(
                        loads[one.llm] <= min(loads) + 1, f"an attempt went to model {one.llm}; they now have {loads}"
                    )

    mutant = Mutant("takes the first model always", first_model)
    claim = "An attempt goes to a model that has the fewest."
    return _law("fewest_first", claim, mutant, check, "a second attempt")
