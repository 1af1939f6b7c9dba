"""A causal language model as a value: pure functions of its parameters, whatever library it comes from.

Two ways lead through one set of weights: `apply` reads whole sequences, as a learner does; `extend` goes on from a cache, as a
sampler does. Both give the last layer's hidden states, so that logits are made only where they are needed, and a value head
can read the same.
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
    for "each sees itself and what precedes it", or bool [B, L, L], query by key. Tokens behind a row's end change nothing
    before it.
    `head(params, hidden [*, H]) -> logits [*, V]`, where those at t speak of token t + 1.
    `begin(params, rows, capacity) -> cache`, an empty one; its tensors are [rows, capacity, ...].
    `extend(params, cache, tokens [B, Q], position [B]) -> (hidden [B, Q, H], cache)`: row b's tokens stand at position_b,
    position_b + 1, ...; each sees itself and what the cache holds before it. What stands in the cache at or behind a row's
    position is never seen, and is written over: to go back, pass a smaller position. position + Q is at most the capacity.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Tensor, Tensor | tuple[()], Tensor | tuple[()]], Tensor]
    head: Callable[[Params, Tensor], Tensor]
    begin: Callable[[Params, int, int], Cache]
    extend: Callable[[Params, Cache, Tensor, Tensor], tuple[Tensor, Cache]]
    vocabulary: int  # V
    width: int  # H
    window: int  # the longest sequence it was made for
