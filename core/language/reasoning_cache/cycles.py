"""Runs of problems through their cycles, as prompting: the schedule's calls become queries, its groups the result.

Pending calls are made together. A call's sampling key depends on its attempt and its cycle step only, so that slots, workers,
queues and repeated calls do not change the texts of a run.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from attrs import evolve, frozen

from ...keys import Key, fold_in
from ...machine import Event, Machine, Started
from ..prompting import Prompting, Query, Response
from ..requests import STREAMS, Request, key_of, words_of
from .events import (
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
from .machine import ReasoningCache
from .rollouts import call_request
from .schedule import reasoning_machine
from .settings import CacheSettings
from .state import REASONING, InferenceProblemState, Problem, Reply

R = TypeVar("R")
BLANK = Problem(problem_id="", problem_text="", answer="")
Drawn = Callable[[Key, int, int], tuple[Problem, ...]]  # (key, first, count) -> problems


@frozen(kw_only=True)
class Cycles:
    """Unfinished runs. `found` are the finished groups, in the order of their completion."""

    number: int  # of the prompting
    count: int  # of its problems
    key: tuple[int, int]  # of its calls
    problems: tuple[Problem, ...]
    schedule: CacheState
    found: tuple[GroupResult, ...] = ()
    calls: tuple[CallModel, ...] = ()  # pending
    waits: tuple[Wait, ...] = ()  # before retries of failed calls


def cycling(
    cache: ReasoningCache,
    settings: CacheSettings,
    problems: Drawn,
    result: Callable[[Key, Cycles], R],
    *,
    limits: tuple[int, int],
    stream: str = "training",
    folded: Callable[[Key, int], Key] = fold_in,
) -> Prompting[tuple[Key, Cycles], R]:
    """Return the prompting that runs problems through the cycles of a cache; number n starts with problem n * count.

    `limits` are the maximum tokens of a reasoning step and of a summary, `folded(key, number)` returns the key of the calls,
    and `result(key, cycles)` the result of the runs at the end. Raises: ChoiceError.

    >>> from ... import keys
    >>> from ..prompting import prompted
    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=2)
    >>> one = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> made = cycling(
    ...     cache,
    ...     CacheSettings(output_dir="runs/rc"),
    ...     lambda key, first, count: (one,),
    ...     lambda key, cycles: cycles.found[0].attempts[0].state.overall_cycle_step,
    ...     limits=(8, 4),
    ... )
    >>> prompted(made, keys.key(0), 0, 1, lambda queries: [Response(text="5") for _ in queries])
    4
    """
    machine = reasoning_machine(cache, settings, llms=settings.rollout_workers)

    def begin(key: Key, number: int, count: int) -> tuple[tuple[Key, Cycles], tuple[Query, ...]]:
        begun = Cycles(
            number=number,
            count=count,
            key=words_of(folded(key, number)),
            problems=problems(key, number * count, count),
            schedule=CacheState(),
        )
        return _next(key, begun, [Started()])

    def step(
        state: tuple[Key, Cycles], responses: tuple[Response, ...]
    ) -> tuple[tuple[Key, Cycles], tuple[Query, ...]]:
        key, cycles = state
        events = [_event(call, one) for call, one in zip(cycles.calls, responses, strict=True)]
        return _next(key, evolve(cycles, calls=()), events)

    def _next(key: Key, cycles: Cycles, events: Iterable[Event]) -> tuple[tuple[Key, Cycles], tuple[Query, ...]]:
        cycles, delay = _moved(machine, cycles, events)
        return (key, cycles), tuple(_query(cycles, call, limits, stream, delay) for call in cycles.calls)

    return Prompting(begin=begin, step=step, result=lambda state: result(*state))


def _moved(machine: Machine[CacheState], cycles: Cycles, events: Iterable[Event]) -> tuple[Cycles, float]:
    """Process events until calls are pending, and return the new state and the seconds to wait before the calls."""
    waiting, schedule, delay = deque(events), cycles.schedule, 0.0
    found, calls, waits = list(cycles.found), list[CallModel](), list(cycles.waits)
    while waiting:
        schedule, commands = machine.step(schedule, waiting.popleft())
        for command in commands:
            if isinstance(command, Fetch):
                waiting.append(_fetched(cycles.problems, command))
            elif isinstance(command, PublishGroup):
                found.append(command.result)
                waiting.append(GroupPublished(number=command.result.number))
            elif isinstance(command, CallModel):
                calls.append(command)
            elif isinstance(command, Wait):
                waits.append(command)
        if not waiting and not calls and waits:
            delay = max(one.seconds for one in waits)
            waiting.extend(Waited(attempt=one.attempt, asked=one.asked) for one in waits)
            waits = []
    return evolve(cycles, schedule=schedule, found=tuple(found), calls=tuple(calls), waits=tuple(waits)), delay


def _fetched(problems: tuple[Problem, ...], command: Fetch) -> Fetched:
    some = problems[command.first : command.first + command.most]
    return Fetched(first=command.first, problems=some, last=command.first + len(some) == len(problems))


def _query(cycles: Cycles, call: CallModel, limits: tuple[int, int], stream: str, delay: float) -> Query:
    state = InferenceProblemState(problem=BLANK, overall_cycle_step=call.ask.cycle_step)
    request = call_request(attempt_request(key_of(cycles.key), call.attempt, stream), state, 0)
    return Query(
        prompt=call.ask.prompt_text,
        sampling=request.sampling,
        max_new_tokens=limits[call.ask.turn_type != REASONING],
        worker=call.llm,
        delay=delay,
    )


def attempt_request(key: Key, number: int, stream: str) -> Request:
    """Return the request from which all calls of an attempt derive their keys.

    >>> from ... import keys
    >>> attempt_request(keys.key(0), 5, "evaluation").task
    (1, 0)
    """
    return Request(id=number, group=number, task=(STREAMS[stream], 0), sampling=words_of(fold_in(key, number)))


def _event(call: CallModel, one: Response) -> Replied | CallFailed:
    if one.error:
        return CallFailed(attempt=call.attempt, asked=call.asked, error=one.error)
    reply = Reply(
        cycle_step=call.ask.cycle_step,
        text=one.text,
        finish_reason=one.finish_reason,
        model_version=one.version,
        said=one.said,
    )
    return Replied(attempt=call.attempt, asked=call.asked, reply=reply)
