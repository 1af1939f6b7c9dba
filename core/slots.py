"""Slots in which episodes are decoded: what each row knows of its tokens, what its cache holds of them, and its call.

A row's tokens are known (it was told them, or sampled them before) or to be sampled. Rows have positions of their own, so
nothing is padded and a slot takes its next request while the others go on. To go back costs nothing: what stands in a cache
behind a smaller position is never seen. Here nothing is computed with a model; `core.decode` does that.
"""

from typing import Any

import torch
from torch import Tensor

from . import keys
from .causal import CausalModel
from .errors import ChoiceError, message
from .keys import Key
from .record import record, replace, take, tensor
from .transcript import ABSENT

Params = Any


@record
class Decoding:
    """B slots of L tokens, in each of which a call may sample up to N."""

    cache: Any  # of the model; the rows come first in each of its tensors
    token: Tensor = tensor("* L", "int")  # the first `known` of them; behind them stands anything
    known: Tensor = tensor("*", "int")  # how many tokens are known
    position: Tensor = tensor("*", "int")  # how many of them the cache holds
    speaking: Tensor = tensor("*", "bool")  # a call is under way: behind the known tokens it samples
    stopped: Tensor = tensor("*", "bool")  # the last call ended in a stop token; else for want of room
    count: Tensor = tensor("*", "int")  # how many tokens the last call has sampled
    room: Tensor = tensor("*", "int")  # how many it may sample
    noise: Tensor = tensor("* N", "float")  # the uniform number that each of them is drawn with
    log_prob: Tensor = tensor("* N", "float")  # of each under the distribution it was drawn from
    version: Tensor = tensor("* N", "int")  # of the weights it was drawn with; ABSENT behind `count`


def idle(model: CausalModel, params: Params, *, slots: int, capacity: int, longest: int) -> Decoding:
    """Slots in which nothing is known, for `capacity` tokens each, of which one call samples at most `longest`.

    Raises: ChoiceError.

    >>> from .bigram import bigram
    >>> idle(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2).known
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
    """The decoding with other tokens in some rows, and a call due in those of them that have room.

    What a row's cache holds of the tokens it had stays as far as the new ones begin with them: to append is to give the
    longer row, to go back the shorter one. The last token is always fed again, since the call begins with what follows it.
    Token i of the call is drawn with uniform(fold_in(key, i)). Shapes: rows int [R], each once; token int [R, L], known
    int [R], key [R, 2], room int [R].

    >>> from .bigram import bigram
    >>> slots = idle(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2)
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
    """The decoding with nothing in its cache, for weights that did not fill it: all known tokens are to be fed again.

    >>> from .bigram import bigram
    >>> slots = idle(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2)
    >>> slots = replace(slots, known=torch.tensor([3, 2]), position=torch.tensor([1, 2]))
    >>> pending(slots), pending(forget(slots))
    (tensor([2, 0]), tensor([3, 2]))
    """
    return replace(decoding, position=torch.zeros_like(decoding.position))


def pending(decoding: Decoding) -> Tensor:
    """How many known tokens each row has yet to feed: int [B].

    >>> from .bigram import bigram
    >>> pending(idle(bigram(3), torch.eye(3), slots=2, capacity=4, longest=2))
    tensor([0, 0])
    """
    return decoding.known - decoding.position
