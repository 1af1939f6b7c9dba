"""Sampling of a token from logits: from the whole distribution at a temperature, from its nucleus, or greedily.

A draw uses one uniform number per token as its only source of randomness, and returns the token's log-prob under the
distribution it was sampled from. So the same numbers give the same tokens, independent of other rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import keys
from ..errors import ChoiceError, message

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


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Return the logits of the smallest set of most probable tokens with probability >= top_p, -inf for all others: [*, V].

    Of equal tokens those with lower ids come first; the most probable one is always kept.
    Source: Holtzman et al. 2020, arXiv:1904.09751.

    >>> nucleus(torch.log(torch.tensor([0.1, 0.6, 0.3])), 0.7)
    tensor([   -inf, -0.5108, -1.2040])
    """
    return torch.where(_kept(logits, top_p), logits, -torch.inf)


def support(logits: Tensor, token: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of the nucleus and of `token`, -inf for all others, and whether the nucleus leaves the token out.

    S_t = nucleus(logits_t, top_p_t) united with {token_t};  all tokens where top_p_t >= 1, with the same bits

    For scoring a token that another policy sampled: its own nucleus held the token, this one need not. The set is a constant
    for the gradient. Shapes: [*, V], int [*], [*] -> [*, V], bool [*].

    >>> logits = torch.log(torch.tensor([[0.1, 0.6, 0.3]])).expand(2, 3)
    >>> support(logits, torch.tensor([0, 2]), torch.tensor([0.7, 0.7]))
    (tensor([[-2.3026, -0.5108, -1.2040],
            [   -inf, -0.5108, -1.2040]]), tensor([ True, False]))
    """
    limit = top_p[..., None]
    kept = _kept(logits.detach(), limit) | (limit >= 1.0)
    own = torch.arange(logits.shape[-1], device=logits.device) == token[..., None]
    return torch.where(kept | own, logits, -torch.inf), ~kept.gather(-1, token[..., None])[..., 0]


def _kept(logits: Tensor, top_p: Tensor | float) -> Tensor:
    """Return whether each token is in the nucleus: bool [*, V]."""
    order = torch.sort(logits, dim=-1, descending=True, stable=True)
    probability = torch.softmax(order.values, -1)
    before = probability.cumsum(-1) - probability
    first = torch.arange(logits.shape[-1], device=logits.device) == 0
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order.indices, first | (before < top_p))


def _log_prob(logits: Tensor, token: Tensor) -> Tensor:
    chosen = logits.gather(-1, token[..., None])[..., 0]
    return chosen - torch.logsumexp(logits, -1)
