"""Problems run through their cycles: the machine of the schedule, with handlers that call models, wait and publish.

Calls that are due are made together, those of each worker as one batch with its own model; a call's sampling key depends on
its attempt and its cycle step alone.
"""

from collections.abc import Callable, Sequence

import torch
from attrs import Factory, frozen

from ...core import keys
from ...core.keys import Key
from ...core.language.attempt import Said
from ...core.language.events import LENGTH
from ...core.language.reasoning_cache import ReasoningCache
from ...core.language.reasoning_events import (
    Call,
    CallFailed,
    Fetch,
    Fetched,
    GroupResult,
    Publish,
    Published,
    Replied,
    Schedule,
    Wait,
    Waited,
)
from ...core.language.reasoning_rollouts import call_request
from ...core.language.reasoning_schedule import reasoning_machine
from ...core.language.reasoning_settings import Settings
from ...core.language.reasoning_state import REASONING, InferenceProblemState, Problem, Reply
from ...core.language.requests import Request, words_of
from ..drive import drive
from ..effects.gathered import gathered, pause, side_by_side

MAY_PASS = (TimeoutError, ConnectionError, torch.OutOfMemoryError)  # what a call may fail with and be made again
BLANK = Problem(problem_id="", problem_text="", answer="")


@frozen(kw_only=True)
class Asked:
    """A call as it is put to a model."""

    prompt: str
    request: Request
    limit: int  # tokens of the reply, at most


Speak = Callable[[int, Sequence[Asked]], Sequence[Said | tuple[()]]]  # (worker, calls) -> () where there is no room
Told = Callable[[GroupResult], None]


def attempt_request(key: Key, number: int, stream: str) -> Request:
    """The request that all calls of an attempt take their keys from.

    >>> attempt_request(keys.key(0), 5, "evaluation").task
    (1, 0)
    """
    return Request(
        id=number, group=number, task=(int(stream == "evaluation"), 0), sampling=words_of(keys.fold_in(key, number))
    )


@frozen(kw_only=True)
class _World:
    """The handlers of a schedule: problems that are given, a model that is asked, a place where groups go."""

    problems: Sequence[Problem]
    speak: Speak
    decode: Callable[[Sequence[int]], str]
    key: Key
    limits: tuple[int, int]
    version: int
    stream: str
    publish: Told
    found: list[GroupResult] = Factory(list)

    def fetch(self, command: Fetch) -> Fetched:
        """The next problems."""
        some = tuple(self.problems[command.first : command.first + command.most])
        return Fetched(first=command.first, problems=some, last=command.first + len(some) == len(self.problems))

    def tell(self, command: Publish) -> Published:
        """Publishes a group."""
        self.publish(command.result)
        self.found.append(command.result)
        return Published(number=command.result.number)

    def call(self, calls: Sequence[Call]) -> list[Replied | CallFailed]:
        """Makes all calls that are due, the batch of each worker beside the others'."""
        each = [[one for one in calls if one.llm == llm] for llm in sorted({one.llm for one in calls})]
        told = {one.attempt: one for some in side_by_side(self._batch, each) for one in some}
        return [told[one.attempt] for one in calls]

    def _batch(self, calls: Sequence[Call]) -> list[Replied | CallFailed]:
        try:
            said = self.speak(calls[0].llm, [self._asked(call) for call in calls])
        except MAY_PASS as fault:
            return [CallFailed(attempt=call.attempt, asked=call.asked, error=repr(fault)) for call in calls]
        return [self._replied(call, one) for call, one in zip(calls, said, strict=True)]

    def _asked(self, call: Call) -> Asked:
        state = InferenceProblemState(problem=BLANK, overall_cycle_step=call.ask.cycle_step)
        request = call_request(attempt_request(self.key, call.attempt, self.stream), state, 0)
        limit = self.limits[call.ask.turn_type != REASONING]
        return Asked(prompt=call.ask.prompt_text, request=request, limit=limit)

    def _replied(self, call: Call, said: Said | tuple[()]) -> Replied:
        """The reply, empty and cut off where the prompt left no room for one."""
        text, reason = ("", LENGTH) if isinstance(said, tuple) else (self.decode(said.ids), said.finish_reason)
        number, version = call.ask.cycle_step, self.version
        reply = Reply(cycle_step=number, text=text, finish_reason=reason, model_version=version, said=said)
        return Replied(attempt=call.attempt, asked=call.asked, reply=reply)

    def wait(self, waits: Sequence[Wait]) -> list[Waited]:
        """Lets the longest of the delays pass, and so all of them."""
        pause(max(one.seconds for one in waits))
        return [Waited(attempt=one.attempt, asked=one.asked) for one in waits]


def cycled(
    cache: ReasoningCache,
    settings: Settings,
    problems: Sequence[Problem],
    speak: Speak,
    decode: Callable[[Sequence[int]], str],
    key: Key,
    *,
    limits: tuple[int, int],
    version: int = 0,
    stream: str = "training",
    publish: Told = lambda result: None,
) -> tuple[GroupResult, ...]:
    """The groups of all problems, in the order in which they were published.

    `limits` are the tokens of a step of reasoning and of a summary. Raises: ChoiceError.
    """
    world = _World(
        problems=problems,
        speak=speak,
        decode=decode,
        key=key,
        limits=limits,
        version=version,
        stream=stream,
        publish=publish,
    )
    machine = reasoning_machine(cache, settings, llms=settings.rollout_workers)
    effects = gathered({Fetch: world.fetch, Publish: world.tell}, {Call: world.call, Wait: world.wait})
    for _ in drive(machine, Schedule(), effects):
        pass
    return tuple(world.found)
