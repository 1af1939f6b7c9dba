"""Problems run through their cycles: the machine of the schedule, with handlers that call models, wait and publish.

Calls that are due are made together, those of each worker as one batch with its own model; a call's sampling key depends on
its attempt and its cycle step alone.
"""

from collections.abc import Callable, Sequence

import torch
from attrs import evolve, frozen

from ...core import keys
from ...core.keys import Key
from ...core.language.attempt import Heard, Said
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
from ...core.language.reasoning_rollouts import call_request, place
from ...core.language.reasoning_schedule import reasoning_machine
from ...core.language.reasoning_settings import Settings
from ...core.language.reasoning_state import REASONING, InferenceProblemState, Problem, Reply
from ...core.language.requests import Request, words_of
from ...core.language.world import Outcome, TextEnv
from ..drive import drive
from ..effects.gathered import gathered, pause, side_by_side
from .parts import Calls, Parts, Voice, fits, sampled

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


def prompts_world(prompts: Sequence[str]) -> TextEnv[tuple[str, ...], tuple[()]]:
    """The world of calls with these prompts: each is one episode, which pays nothing.

    >>> world = prompts_world(["2 + 3?"])
    >>> world.reset(world.params, keys.key(0))
    ((), '2 + 3?')
    """
    return TextEnv(
        tuple(prompts),
        lambda params, key: ((), params[place(words_of(key)) % len(params)]),
        lambda params, state, action, key: (state, Outcome(terminated=True)),
    )


def speaking(parts: Parts, voice: Voice) -> Speak:
    """What calls the workers' models, each its own, with the voice's parameters."""

    def speak(worker: int, asked: Sequence[Asked]) -> Sequence[Said | tuple[()]]:
        places = [place for place, one in enumerate(asked) if fits(parts, one.prompt)]
        if not places:
            return [()] * len(asked)
        room = [asked[place] for place in places]
        calls = Calls(prompts_world([one.prompt for one in room]), tuple(one.limit for one in room))
        placed = [call_of(one.request, number) for number, one in enumerate(room)]
        ended = sampled(parts, evolve(voice, worker=worker), calls, placed)
        found = {place: _said(one.pieces) for place, one in zip(places, ended, strict=True)}
        return [found.get(place, ()) for place in range(len(asked))]

    return speak


def call_of(request: Request, number: int) -> Request:
    """The request for a call, as the one of that number among others; its key stays."""
    task = 2 * number + request.task[0] % 2, 0
    return Request(id=request.id, group=request.group, task=task, sampling=request.sampling)


def _said(pieces: Sequence[object]) -> Said | tuple[()]:
    return next((piece.said for piece in pieces if isinstance(piece, Heard)), ())


def attempt_request(key: Key, number: int, stream: str) -> Request:
    """The request that all calls of an attempt take their keys from.

    >>> attempt_request(keys.key(0), 5, "evaluation").task
    (1, 0)
    """
    return Request(
        id=number, group=number, task=(int(stream == "evaluation"), 0), sampling=words_of(keys.fold_in(key, number))
    )


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
    found: list[GroupResult] = []

    def fetch(command: Fetch) -> Fetched:
        some = tuple(problems[command.first : command.first + command.most])
        return Fetched(first=command.first, problems=some, last=command.first + len(some) == len(problems))

    def publish_(command: Publish) -> Published:
        publish(command.result)
        found.append(command.result)
        return Published(number=command.result.number)

    def asked(call: Call) -> Asked:
        state = InferenceProblemState(problem=BLANK, overall_cycle_step=call.ask.cycle_step)
        request = call_request(attempt_request(key, call.attempt, stream), state, 0)
        return Asked(prompt=call.ask.prompt_text, request=request, limit=limits[call.ask.turn_type != REASONING])

    def work(calls: Sequence[Call]) -> list[Replied | CallFailed]:
        try:
            said = speak(calls[0].llm, [asked(call) for call in calls])
        except MAY_PASS as fault:
            return [CallFailed(attempt=call.attempt, asked=call.asked, error=repr(fault)) for call in calls]
        return [_replied(call, one, decode, version) for call, one in zip(calls, said, strict=True)]

    def call(calls: Sequence[Call]) -> list[Replied | CallFailed]:
        each = [[one for one in calls if one.llm == llm] for llm in sorted({one.llm for one in calls})]
        told = {one.attempt: one for some in side_by_side(work, each) for one in some}
        return [told[one.attempt] for one in calls]

    def wait(waits: Sequence[Wait]) -> list[Waited]:
        pause(max(one.seconds for one in waits))
        return [Waited(attempt=one.attempt, asked=one.asked) for one in waits]

    machine = reasoning_machine(cache, settings, llms=settings.rollout_workers)
    for _ in drive(machine, Schedule(), gathered({Fetch: fetch, Publish: publish_}, {Call: call, Wait: wait})):
        pass
    return tuple(found)


def _replied(call: Call, said: Said | tuple[()], decode: Callable[[Sequence[int]], str], version: int) -> Replied:
    """The reply, empty and cut off where the prompt left no room for one."""
    text, reason = ("", LENGTH) if isinstance(said, tuple) else (decode(said.ids), said.finish_reason)
    reply = Reply(cycle_step=call.ask.cycle_step, text=text, finish_reason=reason, model_version=version, said=said)
    return Replied(attempt=call.attempt, asked=call.asked, reply=reply)
