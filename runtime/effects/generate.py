"""Generation in this process: attempts at requests, decoded in slots, with work for the host only where a call has ended.

A `Generation` is a value: attempts, which of them sits in which slot, and the slots' tokens and caches. `advance` takes it
one chunk of tokens further with the weights it is given, so whoever holds it may go on with other weights: caches that
older ones have filled are filled anew, and each token carries the version it was sampled with. What is sampled depends on
weights, context and the request's key, up to rounding on nothing else: not on slots, chunks or the other attempts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.causal import CausalModel
from ...core.decode import Decoder, chunk
from ...core.errors import ChoiceError, message
from ...core.language.attempt import begin_attempt
from ...core.language.codec import Codec, widened
from ...core.language.protocol import Protocol
from ...core.language.requests import Request, Rollout
from ...core.language.requests import rollouts as rollouts_of
from ...core.record import replace
from ...core.sampling import drawing
from ...core.slots import Decoding, idle
from ..compile import program
from .causal_lm import in_place
from .generate_turns import FREE, AnyAttempt, Ending, Generation, Host, never, prefilled, seated

Params = Any
REACH = 16  # caches are read up to a multiple of it
Progress = Callable[[int, int], None]  # (attempts that have ended, all of them)


@frozen
class Generator:
    """`begin(params, version, attempts) -> generation`, `advance(params, version, generation) -> generation`.

    `advance` takes the caches over: of what it was given, nothing is to be advanced again.
    """

    begin: Callable[[Params, int, Sequence[AnyAttempt]], Generation]
    advance: Callable[[Params, int, Generation], Generation]


def quiet(ended: int, whole: int) -> None:
    """The progress that nobody is told of."""
    del ended, whole


def generator(
    model: CausalModel,
    protocol: Protocol[Any, Any],
    codec: Codec,
    *,
    slots: int = 64,
    capacity: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    chunk_length: int = 4,
    compiled: bool = False,
    ending: Ending = never,
) -> Generator:
    """What generates with a model: at most `slots` attempts at a time, each of at most `capacity` tokens.

    A call ends at a stop token of the codec, where its room is used up, or at the first token with which `ending` says that
    its text is over; it is looked at after each `chunk_length` tokens, and what was sampled beyond is dropped. Ids of the
    model that the codec has not are read as nothing. At temperature 0 the likeliest token is taken. `compiled` compiles the
    chunk as one graph, for the shapes of these slots.
    Raises: ChoiceError.
    """
    _check_room(model, codec, slots, chunk_length)
    decoder = Decoder(in_place(model), drawing(temperature=temperature, top_p=top_p), codec.stop)
    host = Host(protocol, widened(codec, model.vocabulary), temperature, top_p, ending)

    def steps(params: Params, version: Tensor, decoding: Decoding) -> Decoding:
        return chunk(decoder, params, version, decoding, chunk_length, lowering="python")

    def near(params: Params, version: Tensor, decoding: Decoding) -> Decoding:
        """Reads no more of the caches than any row has come to, which shapes compiled once cannot follow."""
        whole, reach = decoding.cache, int(decoding.position.max()) + chunk_length
        part = tuple(tensor[:, : -(-reach // REACH) * REACH] for tensor in whole)
        return replace(steps(params, version, replace(decoding, cache=part)), cache=whole)

    run = program(steps, name="generate") if compiled else near if decoder.model is not model else steps

    def begin(params: Params, version: int, attempts: Sequence[AnyAttempt]) -> Generation:
        _check(attempts, capacity, max_new_tokens)
        decoding = idle(model, params, slots=slots, capacity=capacity, longest=max_new_tokens)
        seats = (FREE,) * slots
        return Generation(attempts=tuple(attempts), seats=seats, following=0, decoding=decoding, version=version)

    def advance(params: Params, version: int, generation: Generation) -> Generation:
        with torch.no_grad():
            stamp, placed = torch.tensor(version), seated(generation, version)
            decoding = run(params, stamp, prefilled(decoder, params, stamp, placed))
            return host.heard(evolve(placed, decoding=decoding))

    return Generator(begin, advance)


def complete(
    made: Generator, params: Params, version: int, attempts: Sequence[AnyAttempt], *, progress: Progress = quiet
) -> tuple[AnyAttempt, ...]:
    """The attempts, each taken to its end with one set of weights, in the order given."""
    generation = made.begin(params, version, attempts)
    while not generation.over:
        generation = made.advance(params, version, generation)
        progress(sum(not isinstance(one.end, tuple) for one in generation.attempts), len(attempts))
    return generation.attempts


def rollouts(
    model: CausalModel,
    params: Params,
    protocol: Protocol[Any, Any],
    codec: Codec,
    asked: Sequence[Request | Rollout],
    *,
    version: int = 0,
    slots: int = 64,
    capacity: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    chunk_length: int = 4,
    compiled: bool = False,
    ending: Ending = never,
    progress: Progress = quiet,
) -> tuple[AnyAttempt, ...]:
    """The ended attempts at some requests, in their order: for each of a request's participants one.

    `generator` says what the options mean; to sample often, or compiled, make one and keep it. Raises: ChoiceError, also
    where a prompt leaves no room.
    """
    room = {"capacity": capacity, "max_new_tokens": max_new_tokens}
    each = [one for some in asked for one in ((some,) if isinstance(some, Rollout) else rollouts_of(some))]
    attempts = [begin_attempt(protocol, codec, one, **room) for one in each]
    made = generator(
        model,
        protocol,
        codec,
        slots=max(1, min(slots, len(attempts))),
        temperature=temperature,
        top_p=top_p,
        chunk_length=chunk_length,
        compiled=compiled,
        ending=ending,
        **room,
    )
    return complete(made, params, version, attempts, progress=progress)


def _check_room(model: CausalModel, codec: Codec, slots: int, chunk_length: int) -> None:
    if codec.vocabulary > model.vocabulary:
        where, wanted = "generator: codec.vocabulary", f"at most the model's {model.vocabulary}"
        remedy = "take the tokenizer that the model was made with"
        raise ChoiceError(message(where, got=codec.vocabulary, wanted=wanted, remedy=remedy))
    if min(slots, chunk_length) < 1:
        got = slots, chunk_length
        raise ChoiceError(message("generator: slots, chunk_length", got=got, wanted="at least 1", remedy="give more"))


def _check(attempts: Sequence[AnyAttempt], capacity: int, longest: int) -> None:
    for one in attempts:
        if one.capacity > capacity or one.max_new_tokens > longest:
            got, wanted = (one.capacity, one.max_new_tokens), f"at most the slots' {(capacity, longest)}"
            where, remedy = "begin: an attempt's capacity and max_new_tokens", "give the generator as much"
            raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))
        if not one.ids:
            remedy = "let the codec mark where the model is to speak"
            raise ChoiceError(message("begin: prompt", got="without a token", wanted="one or more", remedy=remedy))
