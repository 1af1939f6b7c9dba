"""The scheduler of concurrent attempts as a pure machine: admission, waiting, model calls and publication.

Problems enter a bounded queue; each gets `num_samples_per_problem` groups of `attempts`, whose attempts run as slots become
free, each on the model with the fewest attempts. A finished group enters a bounded queue of results and is published from
there, in order; while that queue is full no new group is opened. A failed call is retried after retry_base_delay 2^k seconds,
at most max_retries times; then its attempt goes to the end of the waiting queue, at its current step, and after `max_returns`
of these it finishes as failed.

Events name the attempt, the cycle step and the number of the call, so that duplicate, late or reordered events have no
effect. The state is JSON; after `Started` the machine repeats all pending commands.
"""

from attrs import evolve, frozen

from ...errors import ChoiceError, PurestepError, describe_error, message
from ...machine import Command, Event, Interrupted, Machine, Started, Stop
from ..events import ABORT
from .events import (
    CacheState,
    CallFailed,
    CallModel,
    Fetch,
    Fetched,
    FinishedAttempt,
    GroupPublished,
    GroupResult,
    PublishGroup,
    Replied,
    RunningAttempt,
    Wait,
    Waited,
)
from .machine import ReasoningCache, due, take_reply
from .settings import CacheSettings, check_settings
from .state import InferenceProblemState, ModelRequest, Problem

RETURNS = 10  # how often an attempt whose retries failed goes back to the waiting queue
OUT_OF_TRIES = "out of tries"
Answer = tuple[CacheState, tuple[Command, ...]]


@frozen(kw_only=True)
class _CyclePlan:
    cache: ReasoningCache
    settings: CacheSettings
    llms: int
    returns: int


def reasoning_machine(
    cache: ReasoningCache, settings: CacheSettings, *, llms: int = 1, max_returns: int = RETURNS
) -> Machine[CacheState]:
    """Return the machine that runs groups of attempts on `llms` models; its initial state is `CacheState()`.

    A handler that raises ends the run; report transient errors as `CallFailed`. Raises: ChoiceError; its step also raises
    it for more problems than requested, or for none without `last`.

    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout)
    >>> machine = reasoning_machine(cache, CacheSettings(output_dir="runs/rc", problem_queue_size=4))
    >>> asking, commands = machine.step(CacheState(), Started())
    >>> commands
    (Fetch(first=0, most=4),)
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> _, commands = machine.step(asking, Fetched(first=0, problems=(problem,), last=True))
    >>> [(call.attempt, call.llm, call.ask.cycle_step) for call in commands]
    [(0, 0, 0)]
    """
    check_settings(settings)
    for name, value, least in (("llms", llms, 1), ("max_returns", max_returns, 0)):
        if value < least:
            where = f"reasoning_machine: {name}"
            raise ChoiceError(message(where, got=value, wanted=f"at least {least}", remedy="raise it"))
    plan = _CyclePlan(cache=cache, settings=settings, llms=llms, returns=max_returns)

    def move(schedule: CacheState, event: Event) -> Answer:
        if isinstance(event, Interrupted):
            return schedule, (Stop("interrupted"),)
        after, commands = _told(plan, schedule, event)
        if after is schedule and not isinstance(event, Started):
            return schedule, commands
        return _settled(plan, schedule, after, commands)

    return Machine(move)


def _told(plan: _CyclePlan, schedule: CacheState, event: Event) -> Answer:
    """Return the direct result of an event; the identical schedule object if the event has no effect."""
    if isinstance(event, Started):
        return schedule, _again(plan, schedule)
    if isinstance(event, Fetched):
        return _fetched(plan, schedule, event), ()
    if isinstance(event, GroupPublished):
        queue = schedule.result_queue
        if not queue or queue[0].number != event.number:
            return schedule, ()
        return evolve(schedule, result_queue=queue[1:], published=schedule.published + 1), ()
    if not isinstance(event, Replied | CallFailed | Waited):
        return schedule, ()
    for one in schedule.running:
        if one.number == event.attempt:
            return _heard(plan, schedule, one, event)
    return schedule, ()


def _heard(plan: _CyclePlan, schedule: CacheState, one: RunningAttempt, event: Replied | CallFailed | Waited) -> Answer:
    """Process an event of a running attempt. A reply to an earlier call counts if it is for the current step."""
    if isinstance(event, Replied) and event.reply.finish_reason != ABORT:
        try:
            state = take_reply(plan.cache, one.state, event.reply)
        except PurestepError:
            raise
        except Exception as error:  # of a rollout policy: a retry would raise again
            return _left(schedule, one, describe_error(error)), ()
        if state is one.state:
            return schedule, ()
        return _called(plan, schedule, evolve(one, state=state, failures=0, waits=False))
    if event.asked != one.asks or one.waits != isinstance(event, Waited):
        return schedule, ()
    return _failed(plan, schedule, one, event.error) if isinstance(event, CallFailed) else _called(plan, schedule, one)


def _again(plan: _CyclePlan, schedule: CacheState) -> tuple[Command, ...]:
    """Return the commands of everything pending, to repeat them."""
    running = tuple(_wait(plan, one) if one.waits else _call(plan, one) for one in schedule.running)
    publish = tuple(PublishGroup(result=result) for result in schedule.result_queue[:1])
    return (*running, *publish, *((_fetch(plan, schedule),) if schedule.fetching else ()))


def _room(plan: _CyclePlan, schedule: CacheState) -> int:
    return plan.settings.problem_queue_size - len(schedule.problem_queue)


def _fetch(plan: _CyclePlan, schedule: CacheState) -> Fetch:
    return Fetch(first=schedule.admitted, most=_room(plan, schedule))


def _fetched(plan: _CyclePlan, schedule: CacheState, event: Fetched) -> CacheState:
    if not schedule.fetching or event.first != schedule.admitted:
        return schedule
    least, most, got = 0 if event.last else 1, _room(plan, schedule), len(event.problems)
    if not least <= got <= most:
        wanted, remedy = f"{least} to {most}", "give what was asked for, and say which are the last"
        raise ChoiceError(message("Fetched: number of problems", got=got, wanted=wanted, remedy=remedy))
    queue = (*schedule.problem_queue, *((problem, 0) for problem in event.problems))
    admitted = schedule.admitted + got
    return evolve(schedule, problem_queue=queue, admitted=admitted, fetching=False, exhausted=event.last)


def _call(plan: _CyclePlan, one: RunningAttempt) -> Command:
    asked = due(plan.cache, one.state)
    return (
        CallModel(attempt=one.number, asked=one.asks, llm=one.llm, ask=asked) if isinstance(asked, ModelRequest) else ()
    )


def _wait(plan: _CyclePlan, one: RunningAttempt) -> Command:
    seconds = plan.settings.retry_base_delay * 2 ** (one.failures - 1)
    return Wait(attempt=one.number, asked=one.asks, seconds=seconds)


def _called(plan: _CyclePlan, schedule: CacheState, one: RunningAttempt) -> Answer:
    """Make the attempt's next call, or finish it if it has made all of them."""
    if isinstance(due(plan.cache, one.state), tuple):
        return _left(schedule, one, ""), ()
    calling = evolve(one, asks=one.asks + 1, waits=False)
    return _placed(schedule, calling), (_call(plan, calling),)


def _failed(plan: _CyclePlan, schedule: CacheState, one: RunningAttempt, error: str) -> Answer:
    """Retry a call after a delay; after the last retry, put the attempt back into the waiting queue, or finish it as failed."""
    if one.failures < plan.settings.max_retries:
        waiting = evolve(one, failures=one.failures + 1, waits=True)
        return _placed(schedule, waiting), (_wait(plan, waiting),)
    if one.returns >= plan.returns:
        return _left(schedule, one, error or OUT_OF_TRIES), ()
    returned = evolve(one, failures=0, returns=one.returns + 1, llm=-1)
    return evolve(_without(schedule, one), waiting=(*schedule.waiting, returned)), ()


def _placed(schedule: CacheState, one: RunningAttempt) -> CacheState:
    running = tuple(one if other.number == one.number else other for other in schedule.running)
    return evolve(schedule, running=running)


def _without(schedule: CacheState, one: RunningAttempt) -> CacheState:
    return evolve(schedule, running=tuple(other for other in schedule.running if other.number != one.number))


def _left(schedule: CacheState, one: RunningAttempt, failed: str) -> CacheState:
    """Move the attempt from the running ones to its group's result."""
    left = FinishedAttempt(state=one.state, failed=failed)
    groups = tuple(
        evolve(group, attempts=tuple(sorted((*group.attempts, left), key=lambda each: each.state.rollout_index)))
        if group.number == one.group
        else group
        for group in schedule.open_groups
    )
    return evolve(_without(schedule, one), open_groups=groups)


def _settled(plan: _CyclePlan, before: CacheState, after: CacheState, commands: tuple[Command, ...]) -> Answer:
    """Advance results, attempts and problems as far as the queues have room."""
    after = _queued(plan, after)
    after, calls = _filled(plan, after)
    heads = [[result.number for result in schedule.result_queue[:1]] for schedule in (before, after)]
    publish = tuple(PublishGroup(result=result) for result in after.result_queue[:1]) if heads[0] != heads[1] else ()
    wanted = _room(plan, after) > 0 and not (after.fetching or after.exhausted)
    fetch = (_fetch(plan, after),) if wanted else ()
    after = evolve(after, fetching=after.fetching or wanted)
    left = after.problem_queue or after.open_groups or after.result_queue or not after.exhausted
    stop = () if left else (Stop("all is published"),)
    return after, (*commands, *calls, *publish, *fetch, *stop)


def _queued(plan: _CyclePlan, schedule: CacheState) -> CacheState:
    """Move finished groups into the queue of results, as far as there is room."""
    whole = [group for group in schedule.open_groups if len(group.attempts) == plan.settings.attempts]
    moved = tuple(whole[: plan.settings.result_queue_size - len(schedule.result_queue)])
    remaining = tuple(group for group in schedule.open_groups if group not in moved)
    return evolve(schedule, open_groups=remaining, result_queue=(*schedule.result_queue, *moved))


def _filled(plan: _CyclePlan, schedule: CacheState) -> Answer:
    """Start waiting attempts in free slots; if none waits, open a group, unless the queue of results is full."""
    calls: tuple[Command, ...] = ()
    while len(schedule.running) < plan.llms * plan.settings.llm_max_rollouts:
        if not schedule.waiting:
            if not schedule.problem_queue or len(schedule.result_queue) >= plan.settings.result_queue_size:
                break
            schedule = _opened(plan, schedule)
        first, *rest = schedule.waiting
        load = [sum(one.llm == llm for one in schedule.running) for llm in range(plan.llms)]
        one = evolve(first, llm=load.index(min(load)), asks=first.asks + 1)
        schedule = evolve(schedule, waiting=tuple(rest), running=(*schedule.running, one))
        calls = (*calls, _call(plan, one))
    return schedule, calls


def _opened(plan: _CyclePlan, schedule: CacheState) -> CacheState:
    """Open the next group: add its attempts to the waiting queue."""
    (problem, sample_id), *rest = schedule.problem_queue
    number, attempts = schedule.groups, plan.settings.attempts
    more = ((problem, sample_id + 1),) if sample_id + 1 < plan.settings.num_samples_per_problem else ()
    made = tuple(
        RunningAttempt(number=number * attempts + index, group=number, state=_begun(problem, sample_id, index))
        for index in range(attempts)
    )
    return evolve(
        schedule,
        problem_queue=(*more, *rest),
        waiting=(*schedule.waiting, *made),
        open_groups=(*schedule.open_groups, GroupResult(number=number, attempts=())),
        groups=number + 1,
    )


def _begun(problem: Problem, sample_id: int, rollout_index: int) -> InferenceProblemState:
    return InferenceProblemState(problem=problem, sample_id=sample_id, rollout_index=rollout_index)
