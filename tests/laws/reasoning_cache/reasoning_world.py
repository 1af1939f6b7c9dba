"""A simulation of model calls that fail, arrive late or twice, or are lost, for the laws of the reasoning schedule."""

import json
from collections.abc import Callable
from typing import Any

from attrs import frozen, mutable
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.language.reasoning_cache.events import (
    SCHEDULE_CLASSES,
    CacheState,
    CallFailed,
    CallModel,
    Fetch,
    Fetched,
    GroupPublished,
    GroupResult,
    PublishGroup,
    Replied,
    Wait,
    Waited,
)
from purestep.core.language.reasoning_cache.machine import reasoning_cache
from purestep.core.language.reasoning_cache.rollouts import solution_rollout, summarization_rollout
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.language.reasoning_cache.state import Problem, Reply
from purestep.core.machine import Command, Event, Machine, Started, Stop
from purestep.properties.framework.law import Broken
from purestep.runtime.machine.json_codec import decode, encode, json_line

Factory = Callable[..., Machine[CacheState]]  # as reasoning_machine
FOREVER = 2000  # events of a run that does not end
OFTEN = 99  # returns: more than any script has failures


@frozen
class Plan:
    """All sizes and limits, and a script: a byte per event, which selects the next event and its fault."""

    problems: int
    samples: int
    attempts: int
    cycles: int
    llms: int
    places: int
    problem_queue: int
    result_queue: int
    retries: int
    returns: int
    script: bytes

    @property
    def settings(self) -> CacheSettings:
        """The settings of the machine."""
        return CacheSettings(
            output_dir="nowhere",
            num_reasoning_steps=self.cycles,
            num_samples_per_problem=self.samples,
            attempts=self.attempts,
            llm_max_rollouts=self.places,
            problem_queue_size=self.problem_queue,
            result_queue_size=self.result_queue,
            max_retries=self.retries,
            retry_base_delay=0.5,
        )

    def machine(self, factory: Factory) -> Machine[CacheState]:
        """The machine of this plan."""
        cache = reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=self.cycles)
        return factory(cache, self.settings, llms=self.llms, max_returns=self.returns)


def plans() -> SearchStrategy[Plan]:
    """Draw small plans with long scripts."""
    few, two = st.integers(1, 3), st.integers(1, 2)
    returns = st.sampled_from((0, 1, OFTEN, OFTEN))
    script = st.binary(min_size=24, max_size=60)
    return st.builds(Plan, st.integers(1, 4), two, few, two, two, two, two, two, st.integers(0, 2), returns, script)


@mutable
class Trace:
    """The history of a run: the states before each event, the events, and the commands that followed."""

    states: list[CacheState]
    events: list[Event]
    commands: list[tuple[Command, ...]]
    published: dict[int, GroupResult]
    publications: int = 0  # performed
    restarts: int = 0

    @property
    def last(self) -> CacheState:
        """The state at the end."""
        return self.states[-1]


def answer(plan: Plan, trace: Trace, command: Command) -> Event:
    """The result of a command without a fault: always the same for the same command."""
    if isinstance(command, Fetch):
        numbers = range(command.first, min(command.first + command.most, plan.problems))
        problems = tuple(Problem(problem_id=str(n), problem_text=f"{n} + 0?", answer=str(n)) for n in numbers)
        return Fetched(first=command.first, problems=problems, last=numbers.stop == plan.problems)
    if isinstance(command, CallModel):
        number = command.ask.cycle_step
        reply = Reply(cycle_step=number, text=f"{command.attempt}, step {number}", model_version=number)
        return Replied(attempt=command.attempt, asked=command.asked, reply=reply)
    if isinstance(command, Wait):
        return Waited(attempt=command.attempt, asked=command.asked)
    trace.publications += 1
    trace.published.setdefault(command.result.number, command.result)
    return GroupPublished(number=command.result.number)


def ran(factory: Factory, plan: Plan, *, script: bytes | None = None, restarts: bool = False) -> Trace:
    """Return the trace of a whole run. A byte of the script selects the next event, and its highest bits the fault.

    Raises: Broken if the run does not end, or has no more events before its stop command.
    """
    machine, left = plan.machine(factory), list(plan.script if script is None else script)
    trace = Trace([CacheState()], [], [], {})
    waiting: list[Any] = [Started()]  # commands to be performed, and events that come late
    while waiting:
        if len(trace.events) > FOREVER:
            raise Broken(f"{FOREVER} events, and no end")
        byte = left.pop(0) if left else 0
        event, more = _happens(plan, trace, waiting.pop(byte % len(waiting)), byte >> 5)
        if byte >> 5 == 7 and restarts and trace.events:
            trace.states[-1] = decode(json.loads(json_line(encode(trace.last))), SCHEDULE_CLASSES)
            event, more, waiting = Started(), [], []
            trace.restarts += 1
        state, commands = machine.step(trace.last, event)
        trace.events.append(event)
        trace.states.append(state)
        trace.commands.append(commands)
        if any(isinstance(command, Stop) for command in commands):
            return trace
        waiting += [*commands, *more]
    raise Broken(f"the machine stands still after {type(trace.events[-1]).__name__}, without a command to stop")


def _happens(plan: Plan, trace: Trace, chosen: Any, how: int) -> tuple[Event, list[Any]]:
    """The next event, and the later ones: the same event again, or the late reply of a call that failed."""
    if not isinstance(chosen, Fetch | CallModel | Wait | PublishGroup):
        return chosen, []
    event = answer(plan, trace, chosen)
    if isinstance(chosen, CallModel) and how in (3, 4, 5):
        failed = CallFailed(attempt=chosen.attempt, asked=chosen.asked, error="busy")
        return failed, [event] if how == 5 else []
    return event, [event] if how == 6 else []
