"""Generation in this process: attempts at requests, decoded in slots; the host has to act only when a model call has ended.

A `Generation` is a value: the attempts, their slots, and the slots' tokens and caches. `advance` decodes one more chunk of
tokens with the weights it is given, which may differ from the last ones: caches that older weights filled are recomputed, and
each token carries the version it was sampled with. Samples depend on the weights, the context and the request's key, and (up to
rounding) on nothing else: not on slots, chunks or the other attempts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ....core.causal import CausalModel
from ....core.decoding.decode import Decoder, chunk, drawing
from ....core.decoding.slots import Decoding, empty_slots
from ....core.errors import ChoiceError, message
from ....core.language.codec import Codec, widened
from ....core.language.protocol import Protocol
from ....core.language.requests import Request, RolloutSpec
from ....core.language.requests import rollouts as rollouts_of
from ....core.language.rollout import begin_rollout
from ....core.record import replace
from ...compile import program
from ..hugging_face.causal_lm import reusing_cache
from .scheduling import FREE, AnyAttempt, ChunkProcessor, Ending, Generation, assign_slots, never, prefilled

Params = Any
REACH = 16  # caches are read up to a multiple of it
Progress = Callable[[int, int], None]  # (finished attempts, all attempts)


@frozen
class Generator:
    """`begin(params, version, attempts) -> generation`, `advance(params, version, generation) -> generation`.

    `advance` overwrites the caches of the generation it is given, which must not be advanced again.
    """

    begin: Callable[[Params, int, Sequence[AnyAttempt]], Generation]
    advance: Callable[[Params, int, Generation], Generation]


def report_nothing(ended: int, whole: int) -> None:
    """Report no progress."""
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
    """Return a generator for a model: at most `slots` attempts at a time, each of at most `capacity` tokens.

    A call ends at a stop token of the codec, when its token budget is used up, or at the first token at which `ending` returns
    a finish reason for its text; this is checked after each `chunk_length` tokens, and tokens sampled beyond the end are
    dropped. Ids of the model that are not in the codec's vocabulary decode to nothing. At temperature 0 the most probable token
    is taken. `compiled` compiles the chunk as one graph, for the shapes of these slots. Raises: ChoiceError.
    """
    _check_room(model, codec, slots, chunk_length)
    decoder = Decoder(reusing_cache(model), drawing(temperature=temperature, top_p=top_p), codec.stop)
    host = ChunkProcessor(protocol, widened(codec, model.vocabulary), temperature, top_p, ending)

    def steps(params: Params, version: Tensor, decoding: Decoding) -> Decoding:
        return chunk(decoder, params, version, decoding, chunk_length, lowering="python")

    def near(params: Params, version: Tensor, decoding: Decoding) -> Decoding:
        """Read the caches only up to the longest row; for compiled code, whose shapes are fixed, this is not possible."""
        whole, reach = decoding.cache, int(decoding.position.max()) + chunk_length
        part = tuple(tensor[:, : -(-reach // REACH) * REACH] for tensor in whole)
        return replace(steps(params, version, replace(decoding, cache=part)), cache=whole)

    run = program(steps, name="generate") if compiled else near if decoder.model is not model else steps

    def begin(params: Params, version: int, attempts: Sequence[AnyAttempt]) -> Generation:
        _check(attempts, capacity, max_new_tokens)
        decoding = empty_slots(model, params, slots=slots, capacity=capacity, longest=max_new_tokens)
        seats = (FREE,) * slots
        return Generation(attempts=tuple(attempts), seats=seats, following=0, decoding=decoding, version=version)

    def advance(params: Params, version: int, generation: Generation) -> Generation:
        with torch.no_grad():
            stamp, placed = torch.tensor(version), assign_slots(generation, version)
            decoding = run(params, stamp, prefilled(decoder, params, stamp, placed))
            return host.process(evolve(placed, decoding=decoding))

    return Generator(begin, advance)


def complete(
    made: Generator,
    params: Params,
    version: int,
    attempts: Sequence[AnyAttempt],
    *,
    progress: Progress = report_nothing,
) -> tuple[AnyAttempt, ...]:
    """Return the attempts, each decoded to its end with one set of weights, in the order given."""
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
    asked: Sequence[Request | RolloutSpec],
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
    progress: Progress = report_nothing,
) -> tuple[AnyAttempt, ...]:
    """Return the finished attempts at some requests, in their order: one for each of a request's participants.

    For the options see `generator`; to sample often, or compiled, make one generator and keep it. Raises: ChoiceError, also
    if a prompt leaves no room.
    """
    room = {"capacity": capacity, "max_new_tokens": max_new_tokens}
    each = [one for some in asked for one in ((some,) if isinstance(some, RolloutSpec) else rollouts_of(some))]
    attempts = [begin_rollout(protocol, codec, one, **room) for one in each]
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
