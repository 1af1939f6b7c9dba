"""How a token is drawn from logits: from the whole distribution at a temperature, from its nucleus, or the likeliest.

A draw takes one uniform number for each token and nothing else that is random, and gives the log-prob of what it drew under
the distribution it really drew from. So the same numbers draw the same tokens, whatever else is drawn beside them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from . import keys
from .errors import ChoiceError, message

Draw = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # (uniform [*], logits [*, V]) -> (token int64 [*], log_prob [*])
GREEDY = 0.0  # the temperature at which the likeliest token is taken


def drawing(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """The draw of a temperature: `greedy` at 0, else `sampled`. Raises: ChoiceError.

    >>> drawing(temperature=GREEDY)(torch.tensor(0.9), torch.tensor([2.0, 1.0]))
    (tensor(0), tensor(0.))
    """
    return greedy if temperature == GREEDY else sampled(temperature=temperature, top_p=top_p)


def sampled(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """The draw from softmax(logits / temperature), of which only the nucleus is left where top_p is below 1.

    The token is the one whose slice of [0, 1) holds the uniform number. Computed in float32 or better. Raises: ChoiceError.

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
    """The first of the likeliest tokens; what is certain has log-prob 0. Shapes: [*], [*, V] -> int64 [*], [*].

    >>> greedy(torch.tensor(0.5), torch.tensor([1.0, 3.0, 3.0]))
    (tensor(1), tensor(0.))
    """
    return logits.argmax(-1), torch.zeros_like(uniform)


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """The logits of the likeliest tokens that together have at least the probability top_p, -inf for all others: [*, V].

    Of equal tokens those of lower id come first; the likeliest is always kept.
    Source: Holtzman et al. 2020, arXiv:1904.09751.

    >>> nucleus(torch.log(torch.tensor([0.1, 0.6, 0.3])), 0.7)
    tensor([   -inf, -0.5108, -1.2040])
    """
    order = torch.sort(logits, dim=-1, descending=True, stable=True)
    probability = torch.softmax(order.values, -1)
    before = probability.cumsum(-1) - probability
    first = torch.arange(logits.shape[-1], device=logits.device) == 0
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order.indices, first | (before < top_p))
    return torch.where(kept, logits, -torch.inf)


def _log_prob(logits: Tensor, token: Tensor) -> Tensor:
    chosen = logits.gather(-1, token[..., None])[..., 0]
    return chosen - torch.logsumexp(logits, -1)
