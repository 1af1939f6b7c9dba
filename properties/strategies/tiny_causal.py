"""A causal language model of 63 float64 parameters: embeddings and one attention layer, with a full and a cached pass."""

import torch
from torch import Tensor

from ...core import keys
from ...core.causal import Cache, CausalModel, Params
from ...core.keys import Key


def tiny_causal(*, vocabulary: int = 5, width: int = 3, window: int = 16) -> CausalModel:
    """Return the model; its output depends on every token so far and on their positions.

    >>> model = tiny_causal()
    >>> params = model.init(keys.key(0))
    >>> model.head(params, model.apply(params, torch.tensor([[1, 2]]), (), ())).shape
    torch.Size([1, 2, 5])
    """

    def init(key: Key) -> Params:
        words, places = keys.split(key)
        shapes = {"words": (words, (vocabulary, width)), "places": (places, (window, width))}
        return {name: keys.normal(own, shape, dtype=torch.float64) for name, (own, shape) in shapes.items()}

    def told(params: Params, tokens: Tensor, position: Tensor) -> Tensor:
        result: Tensor = params["words"][tokens] + params["places"][position]
        return result

    def apply(params: Params, tokens: Tensor, position: Tensor | tuple[()], mask: Tensor | tuple[()]) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        position = place.expand(tokens.shape) if isinstance(position, tuple) else position
        seen = place[:, None] >= place if isinstance(mask, tuple) else mask
        own = told(params, tokens, position)
        return _attended(own, own, seen)

    def head(params: Params, hidden: Tensor) -> Tensor:
        logits: Tensor = hidden @ params["words"].mT
        return logits

    def begin(params: Params, rows: int, capacity: int) -> Cache:
        return (params["words"].new_zeros(rows, capacity, width),)

    def extend(params: Params, cache: Cache, tokens: Tensor, position: Tensor) -> tuple[Tensor, Cache]:
        (before,) = cache
        place = position[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        own = told(params, tokens, place)
        index = place[..., None].expand(own.shape)
        after = before.scatter(1, index, own)
        seen = place[..., None] >= torch.arange(before.shape[1], device=tokens.device)
        return _attended(own, after, seen), (after,)

    return CausalModel(
        init=init, apply=apply, head=head, begin=begin, extend=extend, vocabulary=vocabulary, width=width, window=window
    )


def _attended(query: Tensor, key: Tensor, seen: Tensor) -> Tensor:
    scores = torch.where(seen, query @ key.mT, -torch.inf)
    result: Tensor = query + (scores.softmax(-1) @ key).tanh()
    return result
