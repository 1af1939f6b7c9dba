"""An OpenAI-compatible server that is sent texts alone: episodes for evaluation, which cannot be trained on.

Any such server will do, also one that returns neither ids nor log-probs. The results are episodes and not attempts: without
the sampled ids there is no transcript, and tokenising a text again need not give the ids that the model sampled.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ....core.language.episode import Completion, Episode
from ....core.language.events import LENGTH, STOP, Event, Sampled, System
from ....core.language.protocol import Protocol, begin, step
from ....core.language.requests import RolloutSpec, key_of, world_key
from .client import Server, all_of, answered, aside, finished, refused, seed_of

P = TypeVar("P")
S = TypeVar("S")


def spoken(
    server: Server,
    protocol: Protocol[P, S],
    rollouts: Sequence[RolloutSpec],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
) -> tuple[Episode[S], ...]:
    """Return the episodes of rollouts, in order, with the server's current model; its own chat template makes the prompts.

    Requests run concurrently. If one fails, or on Ctrl-C, the others are cancelled. Raises: ServerError.
    """
    return finished(speaking(server, protocol, rollouts, max_new_tokens=max_new_tokens, temperature=temperature))


async def speaking(
    server: Server,
    protocol: Protocol[P, S],
    rollouts: Sequence[RolloutSpec],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
) -> tuple[Episode[S], ...]:
    """Coroutine version of `spoken`: cancelling it cancels all its requests."""
    turns = asyncio.Semaphore(server.concurrency)
    steps = asyncio.Semaphore(server.concurrency)

    async with server.connect() as client:
        create = client.chat.completions.with_raw_response.create

        async def episode_of(rollout: RolloutSpec) -> Episode[S]:
            async with steps:
                episode, _ = await aside(begin, protocol, key_of(rollout.request.task))
            while isinstance(episode.end, tuple):
                body: Mapping[str, Any] = {
                    "model": server.model,
                    "messages": messages(episode.events),
                    "max_tokens": max_new_tokens,
                    "temperature": temperature,
                    "seed": seed_of(rollout, episode.calls),
                }
                async with turns:
                    reply = await answered(server, partial(create, **body))
                key = world_key(rollout.request, episode.calls)
                said = completion_of(reply, server.url)
                async with steps:
                    episode, _ = await aside(step, protocol, episode, said, key)
            return episode

        return await all_of([episode_of(rollout) for rollout in rollouts])


def messages(events: Sequence[Event]) -> list[dict[str, str]]:
    """Return the events of an episode as chat messages: the environment's and tools' texts have the role user.

    >>> from purestep.core.language.events import ToolResult, User
    >>> told = ToolResult("LOOKUP", "dosk", "2", auxiliary=False)
    >>> [one["role"] for one in messages((User("?"), Sampled("LOOKUP[dosk]", 0, 0, "stop"), told))]
    ['user', 'assistant', 'user']
    """
    roles = {System: "system", Sampled: "assistant"}
    return [{"role": roles.get(type(event), "user"), "content": event.text} for event in events]


def completion_of(reply: Any, url: str) -> Completion:
    """Return the completion in a server's answer: text and finish reason. Raises: ServerError if there is none.

    >>> completion_of({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}, "http://a/v1")
    Completion(text='hi', finish_reason='stop')
    """
    try:
        (choice,) = reply["choices"]
        text, finish = choice["message"]["content"], choice["finish_reason"]
    except (KeyError, TypeError, ValueError):
        text, finish = (), ""
    if not isinstance(text, str) or finish not in (STOP, LENGTH):
        wanted, remedy = "one choice with a text, ended by stop or length", "see what the server means by it"
        raise refused(url, "answer", got=repr(reply)[:200], wanted=wanted, remedy=remedy)
    return Completion(text, finish)
