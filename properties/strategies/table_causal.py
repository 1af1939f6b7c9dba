"""A causal model of integers: what it reads, weighs and draws has the same bits in any batch, cache and lowering.

Laws about where and when tokens are sampled, and not about what a model prefers, need one that cannot round.
"""

import torch
from torch import Tensor

from ...core import keys
from ...core.causal import Cache, CausalModel
from ...core.keys import Key

MODULUS = 251
WEIGHTS = 16  # a token weighs 1 .. WEIGHTS
GRAIN = 1 << 24  # uniform numbers are multiples of its inverse


def table_causal(vocabulary: int = 6, *, window: int = 1 << 10) -> CausalModel:
    """A model of which every token moves all that follow, by where it stands; no two params agree.

    Its params are int64 [2]. A token a at place s is worth m(s) (a + 1), the hidden state at t is what the tokens up to t
    are worth together, and the logits are the weights of the tokens that follow.
    """

    def worth(params: Tensor, tokens: Tensor, place: Tensor) -> Tensor:
        multiplier = (params[0] * (place + 1) * (place + 3) + params[1]) % MODULUS + 1
        return multiplier * (tokens + 1)

    def hidden_of(seen: Tensor, worths: Tensor) -> Tensor:
        return (seen * worths[..., None, :]).sum(-1, keepdim=True).to(torch.float32)

    def apply(params: Tensor, tokens: Tensor, position: Tensor | tuple[()], mask: Tensor | tuple[()]) -> Tensor:
        place = torch.arange(tokens.shape[-1], device=tokens.device)
        seen = mask if isinstance(mask, Tensor) else place <= place[:, None]
        return hidden_of(seen, worth(params, tokens, position if isinstance(position, Tensor) else place))

    def head(params: Tensor, hidden: Tensor) -> Tensor:
        token = torch.arange(vocabulary, device=hidden.device)
        mixed = hidden.to(torch.int64) % MODULUS * (token + 5) * (token + 2) + params[1]
        return (mixed % MODULUS % WEIGHTS + 1).to(torch.float32)

    def begin(params: Tensor, rows: int, capacity: int) -> Cache:
        return (torch.zeros(rows, capacity, dtype=torch.int64, device=params.device),)

    def extend(params: Tensor, cache: Cache, tokens: Tensor, position: Tensor) -> tuple[Tensor, Cache]:
        place = position[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        worths = cache[0].scatter(1, place, worth(params, tokens, place))
        seen = torch.arange(worths.shape[1], device=tokens.device) <= place[..., None]
        return hidden_of(seen, worths), (worths,)

    return CausalModel(
        init=init,
        apply=apply,
        head=head,
        begin=begin,
        extend=extend,
        vocabulary=vocabulary,
        width=1,
        window=window,
    )


def init(key: Key) -> Tensor:
    """The params of a key."""
    return keys.randint(key, (2,), 0, MODULUS)


def weighed(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The token whose slice of all weights holds the number; for its log-prob, its weight less the largest possible."""
    weights = logits.to(torch.int64)
    beyond = weights.cumsum(-1) * GRAIN > ((uniform * GRAIN).to(torch.int64) * weights.sum(-1))[..., None]
    token = beyond.to(torch.int64).argmax(-1)
    return token, (weights.gather(-1, token[..., None])[..., 0] - WEIGHTS).to(uniform.dtype)
