"""A causal model with integer arithmetic: it returns the same bits in any batch, cache and lowering.

Laws about where and when tokens are sampled, and not about their probabilities, need a model without rounding errors.
"""

import torch
from torch import Tensor

from ...core import keys
from ...core.causal import Cache, CausalModel
from ...core.keys import Key

MODULUS = 251
WEIGHTS = 16  # a token's weight is in 1 .. WEIGHTS


def table_causal(vocabulary: int = 6, *, window: int = 1 << 10) -> CausalModel:
    """Return a model in which every token changes all later outputs, depending on its position; no two params agree.

    Its params are int64 [2]. A token a at position s has the worth m(s) (a + 1), the hidden state at t is the sum of the
    worths of the tokens up to t, and the logits are the weights of the candidates for the next token.
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
    """Return the params for a key."""
    return keys.randint(key, (2,), 0, MODULUS)
