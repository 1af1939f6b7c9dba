"""A causal language model as a value: pure functions of its parameters, independent of the library that implements it.

There are two forward passes with the same weights: `apply` on whole sequences, for a learner; `extend` from a KV cache, for a
sampler. Both return the last layer's hidden states, so that logits are computed only where they are needed, and a value head
can use the same states.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen
from torch import Tensor

from .keys import Key

Params = Any
Cache = tuple[Tensor, ...]


@frozen(kw_only=True)
class CausalModel:
    """The functions of a model; params are any tree of tensors.

    `init(key) -> params`.
    `apply(params, tokens [B, L], position, mask) -> hidden [B, L, H]`: position is () for 0, 1, ..., or int [B, L]; mask is ()
    for causal attention, or bool [B, L, L], query by key. Tokens after a row's end do not affect the ones before it.
    `head(params, hidden [*, H]) -> logits [*, V]`; the logits at t predict token t + 1.
    `begin(params, rows, capacity) -> cache`, an empty one; its tensors are [rows, capacity, ...].
    `extend(params, cache, tokens [B, Q], position [B]) -> (hidden [B, Q, H], cache)`: row b's tokens are at position_b,
    position_b + 1, ...; each attends to itself and to the cache before it. Cache entries at or after a row's position are
    ignored and overwritten: to rewind, pass a smaller position. position + Q is at most the capacity.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Tensor, Tensor | tuple[()], Tensor | tuple[()]], Tensor]
    head: Callable[[Params, Tensor], Tensor]
    begin: Callable[[Params, int, int], Cache]
    extend: Callable[[Params, Cache, Tensor, Tensor], tuple[Tensor, Cache]]
    vocabulary: int  # V
    width: int  # H
    window: int  # the longest supported sequence
