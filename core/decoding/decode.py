"""Decoding in slots: one pure step that feeds each row's next tokens to a model and samples one more in generating rows.

A step feeds known tokens that are not in the KV cache yet; after the last of them it samples, if the row is generating. An
idle row waits: its position does not change, and the values computed for it are overwritten later. A chunk of steps is a
scan. The sampled tokens do not depend on the length of chunks, on slots or on other rows.
"""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..causal import CausalModel
from ..errors import ChoiceError, message
from ..record import replace
from ..scan import scan
from .sampling import Draw
from .slots import Decoding

Params = Any


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
    >>> from .sampling import greedy
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
    >>> from .sampling import greedy
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
