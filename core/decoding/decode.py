"""Decoding in slots: one pure step that feeds each row's next tokens to a model and samples one more in generating rows.

A token is drawn from the whole distribution at a temperature, from its nucleus, or greedily. One uniform number is the only
source of its randomness; its log-prob is that under the distribution it was sampled from.

A step feeds known tokens that are not in the KV cache yet; after the last of them it samples, if the row is generating. An
idle row waits: its position does not change, and the values computed for it are overwritten later. A chunk of steps is a
scan. The same numbers give the same tokens, independent of the length of chunks, of slots and of other rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from .. import keys
from ..causal import CausalModel
from ..errors import ChoiceError, message
from ..record import replace
from ..scan import scan
from ..transcript.log_probs import nucleus
from .slots import Decoding

Params = Any
Draw = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # (uniform [*], logits [*, V]) -> (token int64 [*], log_prob [*])
GREEDY = 0.0  # the temperature of greedy sampling


def drawing(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """Return the draw for a temperature: `greedy` at 0, else `sampled`. Raises: ChoiceError.

    >>> drawing(temperature=GREEDY)(torch.tensor(0.9), torch.tensor([2.0, 1.0]))
    (tensor(0), tensor(0.))
    """
    return greedy if temperature == GREEDY else sampled(temperature=temperature, top_p=top_p)


def sampled(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """Return the draw from softmax(logits / temperature), restricted to the nucleus if top_p is below 1.

    The token is the one whose interval of [0, 1) contains the uniform number. Computed in float32 or better.
    Raises: ChoiceError.

    >>> even = torch.zeros(2)
    >>> sampled()(torch.tensor([0.4, 0.6]), even.expand(2, 2))
    (tensor([0, 1]), tensor([-0.6931, -0.6931]))
    """
    if not 0.0 < temperature < float("inf"):
        remedy = "use greedy for the likeliest token"
        raise ChoiceError(message("sampled: temperature", got=temperature, wanted="a number above 0", remedy=remedy))
    if not 0.0 < top_p <= 1.0:
        raise ChoiceError(message("sampled: top_p", got=top_p, wanted="0 < top_p <= 1", remedy="1 keeps all tokens"))

    def draw(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        heated = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        allowed = nucleus(heated, top_p) if top_p < 1.0 else heated
        token = keys.inverse_cdf(uniform, allowed)
        return token, _log_prob(allowed, token)

    return draw


def greedy(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first most probable token, with log-prob 0 since it is certain. Shapes: [*], [*, V] -> int64 [*], [*].

    >>> greedy(torch.tensor(0.5), torch.tensor([1.0, 3.0, 3.0]))
    (tensor(1), tensor(0.))
    """
    return logits.argmax(-1), torch.zeros_like(uniform)


def _log_prob(logits: Tensor, token: Tensor) -> Tensor:
    chosen = logits.gather(-1, token[..., None])[..., 0]
    return chosen - torch.logsumexp(logits, -1)


@frozen
class Decoder:
    """The constants of decoding: the model, the sampling function, and the stop tokens."""

    model: CausalModel
    draw: Draw
    stop: tuple[int, ...]


def decode_step(
    decoder: Decoder, params: Params, version: Tensor | int, decoding: Decoding, *, width: int = 1
) -> Decoding:
    """Feed up to `width` known tokens of each row, and sample after the last of them in the generating rows.

    A sampled token becomes the next known one, so the following step feeds it. It ends its call if it is a stop token or if
    `room` tokens have been sampled. Raises: ChoiceError for a width above the capacity.

    >>> from ..bigram import bigram
    >>> from ..keys import key
    >>> from .slots import empty_slots, seat
    >>> table, one = torch.eye(3).roll(1, -1), torch.tensor([1])  # behind 0 comes 1, behind 1 comes 2
    >>> slots = empty_slots(bigram(3), table, slots=1, capacity=4, longest=3)
    >>> slots = seat(slots, 0 * one, torch.zeros(1, 4, dtype=torch.int64), one, key(0)[None], 3 * one)
    >>> slots = decode_step(Decoder(bigram(3), greedy, (2,)), table, 5, slots)
    >>> slots.token, slots.known, slots.version
    (tensor([[0, 1, 0, 0]]), tensor([2]), tensor([[ 5, -1, -1]]))
    """
    size = decoding.token.shape[-1]
    if not 1 <= width <= size:
        wanted, remedy = f"1 to the capacity {size}", "feed longer rows in several steps"
        raise ChoiceError(message("step: width", got=width, wanted=wanted, remedy=remedy))
    start = decoding.position.clamp(max=size - width)  # feeding a token twice gives the same result
    place = start[..., None] + torch.arange(width, device=start.device)
    hidden, cache = decoder.model.extend(params, decoding.cache, decoding.token.gather(-1, place), start)
    position = torch.minimum(start + width, decoding.known)
    last = (position - 1 - start).clamp(min=0)[..., None, None].expand(*start.shape, 1, hidden.shape[-1])
    logits = decoder.model.head(params, hidden.gather(-2, last)[..., 0, :])
    drawn, log_prob = decoder.draw(_at(decoding.noise, decoding.count), logits)
    fed = replace(decoding, cache=cache, position=position)
    return _said(decoder, fed, decoding.speaking & (position == decoding.known), drawn, log_prob, version)


def _said(
    decoder: Decoder, decoding: Decoding, speaks: Tensor, drawn: Tensor, log_prob: Tensor, version: Tensor | int
) -> Decoding:
    """Return the decoding with the sampled tokens appended in rows where `speaks` is true."""
    stops = torch.zeros_like(speaks)
    for token in decoder.stop:
        stops = stops | (drawn == token)
    count = decoding.count + speaks
    over = speaks & (stops | (count >= decoding.room))
    here = speaks[..., None] & _places(decoding.token, decoding.known)
    number = speaks[..., None] & _places(decoding.noise, decoding.count)
    return replace(
        decoding,
        token=torch.where(here, drawn[..., None], decoding.token),
        known=decoding.known + speaks,
        speaking=decoding.speaking & ~over,
        stopped=torch.where(speaks, stops, decoding.stopped),
        count=count,
        log_prob=torch.where(number, log_prob[..., None].to(decoding.log_prob.dtype), decoding.log_prob),
        version=torch.where(number, version, decoding.version),
    )


def _places(like: Tensor, index: Tensor) -> Tensor:
    """Return a one-hot mask of the index in rows shaped like `like`: bool [B, K]."""
    return torch.arange(like.shape[-1], device=like.device) == index[..., None]


def _at(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(-1, index.clamp(max=rows.shape[-1] - 1)[..., None])[..., 0]


def chunk(
    decoder: Decoder,
    params: Params,
    version: Tensor | int,
    decoding: Decoding,
    length: int,
    *,
    lowering: str = "auto",
) -> Decoding:
    """Run `length` steps with one token of each row per step; `lowering` as in `core.scan`.

    >>> from ..bigram import bigram
    >>> from ..keys import key
    >>> from .slots import empty_slots, seat
    >>> table, one = torch.eye(3).roll(1, -1), torch.tensor([1])  # behind 0 comes 1, behind 1 comes 2
    >>> slots = empty_slots(bigram(3), table, slots=1, capacity=4, longest=3)
    >>> slots = seat(slots, 0 * one, torch.zeros(1, 4, dtype=torch.int64), one, key(0)[None], 3 * one)
    >>> slots = chunk(Decoder(bigram(3), greedy, (2,)), table, 5, slots, 3)
    >>> slots.token, slots.speaking, slots.stopped
    (tensor([[0, 1, 2, 0]]), tensor([False]), tensor([True]))
    """
    last, _ = scan(
        lambda now, _: (decode_step(decoder, params, version, now), ()), decoding, length=length, lowering=lowering
    )
    return last
