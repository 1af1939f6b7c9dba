"""Prompts to a run's model: the queries of a prompting as attempts of one turn, completed wherever the run samples."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.keys import Key
from ...core.language.events import LENGTH
from ...core.language.parsers import chain
from ...core.language.prompting import Prompting, Query, Response, prompted
from ...core.language.protocol import Protocol, protocol
from ...core.language.requests import Request
from ...core.language.rollout import add_output
from ...core.language.task import Conversation
from ...core.language.text_env import Outcome, TextEnv
from ...core.language.types import ModelOutput, ModelTurn, Rollout
from ..effects.clock import sleep
from ..effects.generation.engine import complete, generator
from ..machine.batched_effects import side_by_side
from .components import Attempts, TextComponents, begin_attempt, prompt_length

MAY_PASS = (TimeoutError, ConnectionError, torch.OutOfMemoryError)  # errors after which a call may be retried
Complete = Callable[[Protocol[Any, Any], Attempts, int], Attempts]  # (rules, begun, worker) -> ended
Source = Callable[[float, float], Complete]  # (temperature, top_p) -> how attempts are completed, with fixed weights


def conversation_rules(conversation: Conversation) -> Protocol[Any, Any]:
    """Return the protocol of an environment that shows the texts of one side of a conversation, whatever the replies are.

    >>> rules = conversation_rules(("2?", "two", "3?", "three"))
    >>> rules.env.step(rules.env.params, 0, "two", ())
    (2, Outcome(observation='3?', reward=0.0, terminated=False, truncated=False))
    """

    def step(texts: Conversation, place: int, action: Any, key: Key) -> tuple[int, Outcome]:
        following = place + 2
        over = following >= len(texts)
        return following, Outcome(observation="" if over else texts[following], terminated=over)

    world: TextEnv[Any, int] = TextEnv(conversation, lambda texts, key: (0, texts[0]), step)
    return protocol(world, chain(), max_steps=max(1, (len(conversation) + 1) // 2), incomplete="accept")


RULES = conversation_rules(("",))  # of a single completion: independent of its attempt's first observation


def query_attempt(parts: TextComponents, query: Query, number: int) -> Rollout[Any] | tuple[()]:
    """Return the attempt at a query before the model's output; () where its prompt leaves no room for a reply."""
    if not prompt_fits(parts, query.prompt):
        return ()
    request = Request(id=number, group=number, task=(2 * number, 0), sampling=query.sampling)
    return begin_attempt(parts, conversation_rules((query.prompt,)), request, query.max_new_tokens)


def prompt_fits(parts: TextComponents, prompt: str) -> bool:
    """Return whether a prompt leaves room for a reply of one token or more."""
    return prompt_length(parts, prompt) < parts.sampling.capacity


def response_of(parts: TextComponents, attempt: Rollout[Any] | tuple[()], version: int) -> Response:
    """Return a finished attempt at a query as a response; an empty response cut off by length where there was no room."""
    said = _said(attempt)
    if isinstance(said, tuple):
        return Response(finish_reason=LENGTH, version=version)
    text = parts.codec.decode(said.ids)
    return Response(text=text, finish_reason=said.finish_reason, said=said, version=max((version, *said.versions)))


def _said(attempt: Rollout[Any] | tuple[()]) -> ModelOutput | tuple[()]:
    pieces = () if isinstance(attempt, tuple) else attempt.pieces
    return next((piece.said for piece in pieces if isinstance(piece, ModelTurn)), ())


def completing_here(parts: TextComponents, params: Any, version: int, *, temperature: float, top_p: float) -> Complete:
    """Return a function that completes begun attempts in this process, with all parameters of the library's model."""
    speakers = (parts.speaker, *parts.speakers)

    def ended(rules: Protocol[Any, Any], begun: Attempts, worker: int) -> Attempts:
        made = generator(
            speakers[worker % len(speakers)],
            rules,
            parts.codec,
            slots=max(1, min(parts.sampling.slots, len(begun))),
            capacity=parts.sampling.capacity,
            max_new_tokens=max(one.max_new_tokens for one in begun),
            temperature=temperature,
            top_p=top_p,
        )
        return complete(made, params, version, begun)

    return ended


def ask_prompts(
    parts: TextComponents,
    ended: Complete,
    prompting: Prompting[Any, Any],
    key: Key,
    number: int,
    count: int,
    version: int,
) -> Any:
    """Return the result of a prompting; queries that are due are completed together, and the workers run concurrently."""

    def batch(places: Sequence[tuple[int, Query]]) -> dict[int, Response]:
        begun = {place: query_attempt(parts, query, place) for place, query in places}
        room = {place: one for place, one in begun.items() if not isinstance(one, tuple)}
        try:
            done = ended(RULES, tuple(room.values()), places[0][1].worker) if room else ()
        except MAY_PASS as fault:
            return {place: Response(error=repr(fault), version=version) for place, _ in places}
        found = dict(zip(room, done, strict=True))
        return {place: response_of(parts, found.get(place, ()), version) for place in begun}

    def responses(queries: tuple[Query, ...]) -> list[Response]:
        if delay := max(one.delay for one in queries):
            sleep(delay)
        numbered = list(enumerate(queries))
        workers = sorted({one.worker for one in queries})
        each = [[pair for pair in numbered if pair[1].worker == worker] for worker in workers]
        found = {place: one for some in side_by_side(batch, each) for place, one in some.items()}
        return [found[place] for place, _ in numbered]

    return prompted(prompting, key, number, count, responses)


def spoken(parts: TextComponents, conversation: Conversation) -> Rollout[Any] | tuple[()]:
    """Return a given conversation as an attempt with log-probs and versions of 0; () where a reply does not fit."""
    rules = conversation_rules(conversation)
    request = Request(id=0, group=0, task=(0, 0), sampling=(0, 0))
    attempt = begin_attempt(parts, rules, request)
    for text in conversation[1::2]:
        ids = parts.spell(text)
        if len(ids) > attempt.room:
            return ()
        zeros = (0,) * len(ids)
        said = ModelOutput(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros)
        attempt = add_output(rules, parts.codec, attempt, said)
    return attempt
