"""How people lose, double or tangle attempts when calls of models fail."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.core.language.reasoning_cache import ReasoningCache
from purestep.core.language.reasoning_events import Call, CallFailed, Publish, Published, Schedule, Wait
from purestep.core.language.reasoning_settings import Settings
from purestep.core.machine import Command, Event, Machine, Started

from .reasoning_world import Factory

Answer = tuple[Schedule, tuple[Command, ...]]
Step = Callable[[Schedule, Event], Answer]


def _stepping(change: Callable[[Step, Schedule, Event], Answer]) -> Callable[[Factory], Factory]:
    def make(factory: Factory) -> Factory:
        def made(cache: ReasoningCache, settings: Settings, **options: Any) -> Machine[Schedule]:
            step = factory(cache, settings, **options).step
            return Machine(lambda schedule, event: change(step, schedule, event))

        return made

    return make


def _with_settings(settings: Callable[[Settings], Settings]) -> Callable[[Factory], Factory]:
    def make(factory: Factory) -> Factory:
        def made(cache: ReasoningCache, told: Settings, **options: Any) -> Machine[Schedule]:
            return factory(cache, settings(told), **options)

        return made

    return make


def _begins_anew(step: Step, schedule: Schedule, event: Event) -> Answer:
    """An attempt that goes back to wait keeps what it has stored, and begins its cycles from the first."""
    before = {one.number: one.returns for one in (*schedule.running, *schedule.waiting)}
    after, commands = step(schedule, event)
    back = {one.number for one in (*after.running, *after.waiting) if one.returns > before.get(one.number, 0)}
    old = {one.number: one.state.overall_cycle_step for one in schedule.running}

    def anew(one: Any) -> Any:
        return evolve(one, state=evolve(one.state, overall_cycle_step=0)) if one.number in back else one

    calls = tuple(
        evolve(command, ask=evolve(command.ask, cycle_step=0))
        if isinstance(command, Call) and command.attempt in back and old.get(command.attempt)
        else command
        for command in commands
    )
    return evolve(after, running=tuple(map(anew, after.running)), waiting=tuple(map(anew, after.waiting))), calls


def _any_published(step: Step, schedule: Schedule, event: Event) -> Answer:
    if isinstance(event, Published) and schedule.result_queue:
        event = evolve(event, number=schedule.result_queue[0].number)
    return step(schedule, event)


def _publishes_often(step: Step, schedule: Schedule, event: Event) -> Answer:
    after, commands = step(schedule, event)
    first = tuple(Publish(result=result) for result in after.result_queue[:1])
    return after, (*commands, *(one for one in first if one not in commands))


def _forgets(step: Step, schedule: Schedule, event: Event) -> Answer:
    after, commands = step(schedule, event)
    if isinstance(event, Started):
        commands = tuple(command for command in commands if not isinstance(command, Call | Wait))
    return after, commands


def _steady(step: Step, schedule: Schedule, event: Event) -> Answer:
    after, commands = step(schedule, event)
    return after, tuple(evolve(one, seconds=0.5) if isinstance(one, Wait) else one for one in commands)


def _counts_any_failure(step: Step, schedule: Schedule, event: Event) -> Answer:
    if isinstance(event, CallFailed):
        asks = next((one.asks for one in schedule.running if one.number == event.attempt), event.asked)
        event = evolve(event, asked=asks)
    return step(schedule, event)


def _first_model(step: Step, schedule: Schedule, event: Event) -> Answer:
    after, commands = step(schedule, event)
    calls = tuple(evolve(one, llm=0) if isinstance(one, Call) else one for one in commands)
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
