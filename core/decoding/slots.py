"""Slots in which episodes are decoded: for each row its known tokens, its position in the KV cache, and its current call.

A row's tokens are known (context, or sampled before) or still to be sampled. Each row has its own position, so there is no
padding and a slot takes its next request while the others continue. Rewinding is free: cache entries after a smaller position
are ignored. This module does not run the model; `core.decoding.decode` does.
"""

from typing import Any

import torch
from torch import Tensor

from .. import keys
from ..causal import CausalModel
from ..errors import ChoiceError, message
from ..keys import Key
from ..record import record, replace, take, tensor
from ..transcript.record import ABSENT

Params = Any


@record
class Decoding:
    """B slots of L tokens each, in which one call may sample up to N."""

    cache: Any  # of the model; rows are the first axis of each of its tensors
    token: Tensor = tensor("* L", "int")  # the first `known` are valid; the rest is arbitrary
    known: Tensor = tensor("*", "int")  # number of known tokens
    position: Tensor = tensor("*", "int")  # number of tokens in the cache
    speaking: Tensor = tensor("*", "bool")  # a call is running: it samples after the known tokens
    stopped: Tensor = tensor("*", "bool")  # the last call ended with a stop token, not by its limit
    count: Tensor = tensor("*", "int")  # number of tokens sampled by the last call
    room: Tensor = tensor("*", "int")  # maximum number of tokens that it may sample
    noise: Tensor = tensor("* N", "float")  # the uniform number from which each of them is drawn
    log_prob: Tensor = tensor("* N", "float")  # of each under the distribution it was drawn from
    version: Tensor = tensor("* N", "int")  # of the weights it was drawn with; ABSENT from `count` on


def empty_slots(model: CausalModel, params: Params, *, slots: int, capacity: int, longest: int) -> Decoding:
    """Return empty slots for `capacity` tokens each, of which one call samples at most `longest`.

    Raises: ChoiceError.

    >>> from ..bigram import bigram
    >>> empty_slots(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2).known
    tensor([0, 0])
    """
    if min(slots, capacity, longest) < 1:
        got = slots, capacity, longest
        raise ChoiceError(message("idle: room", got=got, wanted="at least 1 each", remedy="give more"))
    cache = model.begin(params, slots, capacity)
    device = cache[0].device
    zero = torch.zeros(slots, dtype=torch.int64, device=device)
    noise = torch.zeros(slots, longest, device=device)
    return Decoding(
        cache=cache,
        token=torch.zeros(slots, capacity, dtype=torch.int64, device=device),
        speaking=zero.to(torch.bool),
        stopped=zero.to(torch.bool),
        noise=noise,
        log_prob=noise.clone(),
        version=torch.full_like(noise, ABSENT, dtype=torch.int64),
        **{name: zero.clone() for name in ("known", "position", "count", "room")},
    )


def seat(decoding: Decoding, rows: Tensor, token: Tensor, known: Tensor, key: Key, room: Tensor) -> Decoding:
    """Return the decoding with new tokens in some rows, and a call started in those of them that have room.

    A row's cache is reused for the common prefix of old and new tokens: pass a longer row to append, a shorter one to rewind.
    The last token is always fed again, since its logits give the call's first token. Token i of the call is drawn with
    uniform(fold_in(key, i)). Shapes: rows int [R], each once; token int [R, L], known int [R], key [R, 2], room int [R].

    >>> from ..bigram import bigram
    >>> slots = empty_slots(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2)
    >>> one = torch.ones(1, dtype=torch.int64)
    >>> slots = seat(slots, one, torch.tensor([[7, 8, 0, 0]]), 2 * one, keys.key(0)[None], 9 * one)
    >>> slots.known, slots.speaking, slots.room
    (tensor([0, 2]), tensor([False,  True]), tensor([0, 2]))
    """
    old, size = take(decoding, rows), decoding.token.shape[-1]
    place = torch.arange(size, device=token.device)
    equal = (token == old.token) & (place < torch.minimum(known, old.known)[..., None])
    common = equal.to(torch.int64).cumprod(-1).sum(-1)
    held = torch.minimum(torch.minimum(old.position, common), known - 1).clamp(min=0)
    longest = decoding.noise.shape[-1]
    number = torch.arange(longest, device=token.device)
    allowed = torch.minimum(room, size - known).clamp(0, longest)
    new = {
        "token": token,
        "known": known,
        "position": held,
        "speaking": allowed > 0,
        "stopped": torch.zeros_like(old.stopped),
        "count": torch.zeros_like(old.count),
        "room": allowed,
        "noise": keys.uniform(keys.fold_in(key[..., None, :], number)),
        "log_prob": torch.zeros_like(old.log_prob),
        "version": torch.full_like(old.version, ABSENT),
    }
    return replace(decoding, **{name: getattr(decoding, name).index_put((rows,), value) for name, value in new.items()})


def forget(decoding: Decoding) -> Decoding:
    """Return the decoding with an empty cache, for new weights: all known tokens have to be fed again.

    >>> from ..bigram import bigram
    >>> slots = empty_slots(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2)
    >>> slots = replace(slots, known=torch.tensor([3, 2]), position=torch.tensor([1, 2]))
    >>> pending(slots), pending(forget(slots))
    (tensor([2, 0]), tensor([3, 2]))
    """
    return replace(decoding, position=torch.zeros_like(decoding.position))


def pending(decoding: Decoding) -> Tensor:
    """Return the number of known tokens that each row has yet to feed: int [B].

    >>> from ..bigram import bigram
    >>> pending(empty_slots(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2))
    tensor([0, 0])
    """
    return decoding.known - decoding.position
